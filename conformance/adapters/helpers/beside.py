"""What stands in a model's file beside the model and can be called: functions, losses that are modules, methods that
use no part of the model, and objects of plain classes, such as a collator."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import wraps
from types import FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

from torch import Tensor, nn

from conformance.adapters.functions.subjects import source_of
from conformance.adapters.helpers.acting import acts
from conformance.adapters.helpers.configured import configured
from conformance.adapters.helpers.criteria import CRITERION, made_of_defaults
from conformance.adapters.helpers.handed import names_of
from conformance.adapters.helpers.training import is_trainer
from conformance.adapters.helpers.trial import HELPERS
from conformance.adapters.whole.configs import config_class, configs_of, fields_of, is_config, settings_of
from conformance.adapters.whole.guests import Guest
from conformance.adapters.whole.sizes import small
from conformance.adapters.whole.usage import surroundings

_MANY = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def functions_beside(found: Any, model: nn.Module, options: Mapping[str, Any]) -> list[Callable[..., Any]]:
    """The functions of the file that a class, function, method or instance stands in. options: of the model."""
    holder = found if isinstance(found, (type, FunctionType, MethodType)) else type(found)
    module = sys.modules.get(holder.__module__)
    return [configured(one, model, options) for one in functions_of(module)] if module is not None else []


def classes_beside(found: Any) -> list[type]:
    """The classes of the file that a class, function or instance stands in: losses may be written so."""
    holder = found if isinstance(found, (type, FunctionType, MethodType)) else type(found)
    values = vars(sys.modules.get(holder.__module__, SimpleNamespace())).values()
    return [one for one in values if isinstance(one, type) and one.__module__ == holder.__module__]


def criteria_beside(found: Any) -> list[Callable[..., Any]]:
    """The losses of the file that are modules without parameters, which can be made of their defaults, as functions:
    DistillationLoss is called as distillation_loss."""
    return [made for cls in classes_beside(found) if (made := as_criterion(cls)) is not None]


def as_criterion(cls: type) -> Callable[..., Any] | None:
    """The forward of a module that is called a loss, under its name; None where it is none of these."""
    is_named = issubclass(cls, nn.Module) and CRITERION.search(cls.__name__) is not None
    made = made_of_defaults(cls) if is_named else None
    return None if made is None else _named(made.forward, _words(cls.__name__))


def of_guest(guest: Guest, model: nn.Module, options: Mapping[str, Any]) -> list[Callable[..., Any]]:
    """What was pointed at in a file without a model, taken as what stands in a model's own file is."""
    found = [*functions_beside(guest.found, model, options), *criteria_beside(guest.found)]
    found += [*classes_beside(guest.found), *objects_beside(guest.found, model, options)]
    return [one for one in found if guest.is_meant(one)]


def _words(name: str) -> str:
    """DistillationLoss as distillation_loss."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def objects_beside(found: Any, model: nn.Module, options: Mapping[str, Any]) -> list[Callable[..., Any]]:
    """The methods with a helper's name of the file's plain classes, such as a collator or a schedule of noise, and
    their call under the name of the class. What their constructors require is taken by its name from what the model
    keeps, the options that it was made with and the file's constants; else it is a small value for what the name means.
    """
    made: list[Callable[..., Any]] = []
    for cls in classes_beside(found):
        methods = {name: one for name, one in vars(cls).items() if isinstance(one, FunctionType)}
        named = {_words(cls.__name__) if name == "__call__" else name: one for name, one in methods.items()}
        known_as = {name: names_of(cls) if one.__name__ == "__call__" else (name,) for name, one in named.items()}
        helping = {
            name: one for name, one in named.items() if any(kind.fits(name, *known_as[name]) for kind in HELPERS)
        }
        if cls.__bases__ != (object,) or not helping or acts(cls):
            continue
        with suppress(Exception):  # it wants what nothing here shows
            one = cls(**_required(cls, model, options))
            made += [MethodType(_named(function, name), one) for name, function in helping.items()]
    return made


def _required(cls: type, model: nn.Module, options: Mapping[str, Any]) -> dict[str, Any]:
    """What a class requires, by name. Raises Unknown where a name means nothing."""
    module = sys.modules[cls.__module__]
    configs = [fields_of(one) for one in options.values() if is_config(one)]
    told = (vars(module), *configs, options, *reversed(settings_of(model)))
    known = {str(key).lower(): value for held in told for key, value in held.items()}
    given = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        if parameter.default is not parameter.empty or parameter.kind in _MANY:
            continue
        config = config_class(parameter, module)
        if config is not None:
            given[name] = next((one for one in configs_of(model) if isinstance(one, config)), None) or config()
        else:
            given[name] = known[name.lower()] if name.lower() in known else small(name, parameter.annotation)
    return given


def _named(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        return function(*given, **named)

    call.__name__ = name
    return call


def methods_of(module: nn.Module) -> list[Callable[..., Any]]:
    """The methods that a model has beside its forward and that use none of its parts: a loss of two vectors, the
    choice of words to mask. They are bound to it, and so know its settings."""
    cls = type(module)
    own = {
        name: function
        for name, function in inspect.getmembers(cls, inspect.isfunction)
        if function.__module__ == cls.__module__ and name != "forward" and not name.startswith("__")
    }
    return [getattr(module, name) for name, function in own.items() if not _uses_parts(module, function, own)]


def methods_of_parts(module: nn.Module) -> list[Callable[..., Any]]:
    """The same of its parts, one of each class, where the name is that of a helper: the buckets of a T5's distances."""
    around = surroundings(sys.modules[type(module).__module__])
    parts = {type(part): part for part in module.modules() if part is not module and around.is_users(type(part))}
    found = (one for part in parts.values() for one in methods_of(part))
    return [one for one in found if any(kind.fits(one.__name__) for kind in HELPERS)]


def training_methods_of(module: nn.Module) -> list[Callable[..., Any]]:
    """The methods of a model's own class whose names say that they train it."""
    own = (function for function in vars(type(module)).values() if isinstance(function, FunctionType))
    return [getattr(module, function.__name__) for function in own if is_trainer(function)]


def _uses_parts(module: nn.Module, function: FunctionType, own: Mapping[str, FunctionType]) -> bool:
    source = source_of(function)
    body = re.sub(r"(?s)\bdef\b.*?\bself\b", "", source, count=1)
    if not source or re.search(r"\bself\b(?!\.)|\bsuper\s*\(", body):
        return True
    used = (_kept(module, name) for name in re.findall(r"\bself\.(\w+)", source))
    return any(isinstance(one, (nn.Module, nn.Parameter, MethodType, Tensor)) for one in used)


def _kept(module: nn.Module, name: str) -> Any:
    """What a model keeps under a name; None for nothing, and where a property raises, such as Lightning's trainer."""
    with suppress(Exception):
        return getattr(module, name)
    return None


def functions_of(module: ModuleType) -> Iterator[Callable[..., Any]]:
    """The functions that a module defines, and the static methods of its classes."""
    for value in list(vars(module).values()):
        if isinstance(value, FunctionType) and inspect.unwrap(value).__module__ == module.__name__:
            yield value
        if isinstance(value, type) and value.__module__ == module.__name__:
            yield from (one.__func__ for one in vars(value).values() if isinstance(one, staticmethod))
