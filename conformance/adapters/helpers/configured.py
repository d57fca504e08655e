"""Functions that take their settings in one config object: ``mask_tokens(ids, config)``. They get the model's."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from torch import nn

from conformance.adapters.inference.construct import CONFIGS
from conformance.adapters.whole.configs import config_class, configs_of, is_config


class Configured:
    """A function that is called without its config. configs: by the name of the parameter."""

    def __init__(self, function: Callable[..., Any], configs: Mapping[str, Any]) -> None:
        self.__wrapped__ = function
        self.__name__, self.__doc__, self.__module__ = function.__name__, function.__doc__, function.__module__
        given = inspect.signature(function)
        rest = [one for one in given.parameters.values() if one.name not in configs]
        self.__signature__ = given.replace(parameters=rest)
        self.configs = configs

    def __call__(self, *args: Any, **words: Any) -> Any:
        return self.__wrapped__(**self.__signature__.bind(*args, **words).arguments, **self.configs)

    def of(self, function: Callable[..., Any]) -> Configured:
        """Another function with the same configs."""
        return Configured(function, self.configs)


def configured(function: Callable[..., Any], model: nn.Module, options: Mapping[str, Any]) -> Callable[..., Any]:
    """The function without its configs, where it requires some by their names or classes: the model's own, those of the
    options which the model was made with, or new ones with their defaults. Any other function as it is."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # torch's own, as a static method
        return function
    many = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
    module = sys.modules.get(function.__module__)
    if module is None or any(one.kind in many for one in parameters):
        return function
    known = [*configs_of(model), *filter(is_config, options.values())]
    given: dict[str, Any] = {}
    for one in parameters:
        cls = config_class(one, module)
        if one.default is not one.empty or (cls is None and one.name not in CONFIGS):
            continue
        config = next((held for held in known if cls is None or isinstance(held, cls)), None)
        with suppress(Exception):  # it has fields without a default
            config = cls() if config is None and cls is not None else config
        if config is not None:
            given[one.name] = config
        elif one.name in CONFIGS:
            return function
    return Configured(function, given) if given else function
