"""Config objects: which classes only hold settings, and their fields under other values."""

from __future__ import annotations

import argparse
import ast
import copy
import inspect
import re
import textwrap
from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import nn

from conformance.adapters.inference.construct import CONFIGS
from conformance.adapters.whole.sizes import Sizing, Unknown, meaning, plain, small

_CONFIG_NAME = re.compile(r"config|cfg|conf$|args|param|option|setting|namespace|edict|attrdict|dotdict|^CN$", re.I)

_EMPTY = vars(nn.Module()).keys()
"""What every module keeps: its parameters, parts and hooks are no settings."""


class Options(dict):
    """Settings as attributes and as items, as the config objects of many files are."""

    def __getattr__(self, name: str) -> Any:
        try:
            value = self[name]
        except KeyError:
            raise AttributeError(name, name=name, obj=self) from None
        return Options(value) if type(value) is dict else value

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __deepcopy__(self, memo: dict[int, Any]) -> Options:
        return type(self)(copy.deepcopy(dict(self), memo))


class Guessed(Options):
    """A config that has every name that says what it means, with a small value."""

    def __missing__(self, name: str) -> Any:
        try:
            self[name] = small(name)
        except Unknown:
            raise KeyError(name) from None
        return self[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self or (default is None and meaning(name)) else default


def is_config(value: Any) -> bool:
    """Whether it is an object (or a class) that holds settings."""
    if isinstance(value, (nn.Module, torch.Tensor, str, int, float, Enum)) or value is None:
        return False
    if isinstance(value, (Mapping, SimpleNamespace, argparse.Namespace)) or is_dataclass(value):
        return True
    cls = value if isinstance(value, type) else type(value)
    return not issubclass(cls, nn.Module) and _is_config_class(cls)


def _is_config_class(cls: type) -> bool:
    """Whether constructing it only stores values: a class that says so by its kind or its name."""
    kinds = (dict, SimpleNamespace, argparse.Namespace, Enum)
    stores = is_dataclass(cls) or issubclass(cls, kinds) or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
    return stores or hasattr(cls, "model_fields") or bool(_CONFIG_NAME.search(cls.__name__))


def is_tuple(value: Any) -> bool:
    """Whether it is a tuple with names, whose fields cannot be set."""
    return isinstance(value, tuple) and hasattr(value, "_replace")


def may_construct(cls: type) -> bool:
    return issubclass(cls, nn.Module) or (cls.__module__ != "builtins" and _is_config_class(cls))


def class_named_like(name: str, module: ModuleType) -> type | None:
    """The class of a module that a parameter's name tells: `decoder_layer` DecoderLayer, `config` its only config."""
    wanted = name.lower().replace("_", "")
    classes = {n.lower(): c for n, c in vars(module).items() if isinstance(c, type) and may_construct(c)}
    foreign = ("torch", "types", "argparse")  # torch's Parameter is no config, whatever its name looks like
    classes = {n: c for n, c in classes.items() if c.__module__.partition(".")[0] not in foreign}
    if name.lower() in CONFIGS:
        configs = [c for c in dict.fromkeys(classes.values()) if not issubclass(c, nn.Module)]
        named = [
            c for c in configs if _CONFIG_NAME.search(c.__name__)
        ]  # a dataclass may also hold what forward returns
        return next((found[0] for found in (named, configs) if len(found) == 1), None)
    return classes.get(wanted)


def config_class(parameter: inspect.Parameter, module: ModuleType) -> type | None:
    """The class of the config that a parameter takes: its annotation, else what its name tells; None for neither."""
    said = parameter.annotation
    cls = vars(module).get(said) if isinstance(said, str) else said
    if isinstance(cls, type) and cls.__module__ not in ("builtins", "types", "argparse") and is_config(cls):
        return cls
    return class_named_like(parameter.name, module) if parameter.name in CONFIGS else None


def resized(config: Any, sizing: Sizing, depth: int = 6) -> Any:
    """The config with its fields, and those of configs inside, as `sizing` gives them; a copy where any changes, and
    anything else as it is."""
    if not is_config(config) or depth == 0:
        return config
    by_item = isinstance(config, Mapping) or _has_items(config)
    held = fields_of(config)
    changed = {
        key: resized(value, sizing, depth - 1) if is_config(value) else plain(sizing.of(key, value))
        for key, value in held.items()
        if isinstance(key, str)
    }
    changed = {key: value for key, value in changed.items() if value is not held[key] and value != held[key]}
    if not changed:
        return config
    if isinstance(config, type):
        return type(config.__name__, (config,), changed)
    config = copy.copy(config) if isinstance(config, Mapping) or not by_item else copy.deepcopy(config)
    for key, value in changed.items():
        config = with_value(config, key, value, by_item)
    return config


def _has_items(config: Any) -> bool:
    """Whether a config object is used as a mapping without being one, as ml_collections' are."""
    methods = ("keys", "items", "__getitem__", "__setitem__")
    return not isinstance(config, type) and all(callable(getattr(type(config), name, None)) for name in methods)


def fields_of(config: Any) -> dict[Any, Any]:
    """The fields (or items) of a config object, with those of its class."""
    if isinstance(config, Mapping) or _has_items(config):
        return dict(config.items())
    if isinstance(config, tuple):
        return dict(config._asdict())  # type: ignore[attr-defined]
    classes = config.__mro__ if isinstance(config, type) else type(config).__mro__
    held: dict[str, Any] = {}
    for cls in reversed(classes[:-1]):
        held |= {k: v for k, v in vars(cls).items() if not k.startswith("_") and isinstance(v, (int, float, str))}
    return held if isinstance(config, type) else held | dict(getattr(config, "__dict__", {}))


def configs_of(module: nn.Module) -> list[Any]:
    """The config objects that a module keeps."""
    kept = ((name, value) for name, value in vars(module).items() if name not in _EMPTY)
    return [value for _, value in kept if is_config(value) and not isinstance(value, type)]


def settings_of(module: nn.Module) -> list[dict[Any, Any]]:
    """By name what a module keeps, and the fields of each config that it keeps."""
    return [vars(module), *map(fields_of, configs_of(module))]


def with_value(holder: Any, key: Any, value: Any, is_item: bool) -> Any:
    """The config with one field (or item) set, in place where that can be."""
    if is_item:
        holder[key] = value
    elif isinstance(holder, tuple):
        return holder._replace(**{key: value})  # type: ignore[attr-defined]
    elif is_dataclass(holder):
        object.__setattr__(holder, key, value)
    else:
        setattr(holder, key, value)
    return holder


def overridden_defaults(cls: Any) -> dict[str, Any]:
    """The settings of a constructor that takes any keywords and puts them over a dict of its file:
    ``def __init__(self, **options): self.options = {**DEFAULTS, **options}``. {} where it does nothing of the kind."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls.__init__)))
    except (OSError, TypeError, SyntaxError, AttributeError):
        return {}
    scope = getattr(cls.__init__, "__globals__", {})
    keywords = next((n.kwarg.arg for n in ast.walk(tree) if isinstance(n, ast.arguments) and n.kwarg), "")
    for node in ast.walk(tree) if keywords else ():
        parts: list[ast.expr] = []
        if isinstance(node, ast.Dict):
            parts = [value for key, value in zip(node.keys, node.values, strict=True) if key is None]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            parts = [node.left, node.right]
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "dict":
            parts = [*node.args, *(word.value for word in node.keywords if word.arg is None)]
        names = [part.id if isinstance(part, ast.Name) else "" for part in parts]
        held = scope.get(names[0]) if len(names) == 2 and names[1] == keywords else None
        if isinstance(held, Mapping) and all(isinstance(name, str) for name in held):
            return dict(held)
    return {}
