"""What the user's files hold that a parameter may be given: objects, what functions return, instances of classes.

`Holdings` looks for it by what is done with the parameter (`Use`); `fits` says whether a value has all that is read of
it.
"""

from __future__ import annotations

import ast
import copy
import inspect
from collections.abc import Iterator, Mapping
from enum import Enum
from types import FunctionType
from typing import Any

import torch
from torch import nn

from conformance.adapters.inference.construct import CONFIGS
from conformance.adapters.whole.classmethods import fetches
from conformance.adapters.whole.configs import Options, is_config
from conformance.adapters.whole.returning import Returns
from conformance.adapters.whole.sizes import Unknown
from conformance.adapters.whole.uses import Use, named


def fits(value: Any, use: Use) -> bool:
    """Whether a value has what is read of it, and takes what is done with it."""
    if value is None:
        return True
    if any(name not in use.defaults and not hasattr(value, name) for name in use.attributes):
        return False
    if use.items and not (hasattr(type(value), "__getitem__") and not isinstance(value, (str, list, tuple))):
        return False
    if isinstance(value, Mapping) and any(key not in use.defaults and not _has_item(value, key) for key in use.items):
        return False
    if isinstance(value, torch.nn.Module):
        return True  # a module is often counted and indexed only where it is a list of modules
    if use.is_called and not callable(value):
        return False
    if (use.counted or use.is_sequence) and not hasattr(type(value), "__len__" if use.counted else "__iter__"):
        return hasattr(type(value), "__getitem__")
    return not isinstance(value, bool) or not use.computed or use.tested


def _has_item(value: Mapping[Any, Any], key: str) -> bool:
    try:
        value[key]
    except LookupError:
        return False
    return True


class Holdings:
    """What the files of a class or function hold for its parameters."""

    def __init__(self, evaluator: Returns, made_by: Any) -> None:
        self.evaluator, self.around, self.made_by = evaluator, evaluator.around, made_by

    def option(self, use: Use) -> Any:
        """A member of an enumeration that the value is compared with."""
        for node, scope in use.options:
            option = named(node, scope, self.around.module)
            if isinstance(option, Enum):
                return option
        return None

    def held(self, name: str, use: Use) -> Iterator[Any]:
        """Objects of the user's files, then what their functions return, sections of config files (for a whole config
        that is a way of its own), and instances of their classes."""
        held = [value for key, value in vars(self.around.module).items() if not key.startswith("__")]
        objects = [v for v in held if not isinstance(v, (type, FunctionType, nn.Module))]
        yield from (copy.deepcopy(v) for v in objects if is_config(v) and fits(v, use))
        yield from (v for v in objects if not is_config(v) and self.around.is_users(type(v)))
        yield from self._returned()
        if name.lower() not in CONFIGS and {*use.attributes, *use.items} - use.defaults.keys():
            yield from (Options(section) for _, section in self.around.settings)
        yield from self._instances(name, use, [v for v in held if isinstance(v, type)])
        yield from self._instances(name, use, list(self._settings_elsewhere(use)))

    def _settings_elsewhere(self, use: Use) -> Iterator[type]:
        """The classes of the user's other files whose fields have all that is read of the value: a model may be handed
        settings that it never imports. One field is a coincidence."""
        wanted = use.attributes.keys() - use.defaults.keys()
        sources = self.around.sources[1:] if len(wanted) > 1 else []
        for source in sources:
            for node in source.tree.body if all(name in source.text for name in wanted) else ():
                if isinstance(node, ast.ClassDef) and wanted <= _members_of(node):
                    cls = getattr(self.around.imported(source), node.name, None)
                    if isinstance(cls, type) and is_config(cls):
                        yield cls

    def _returned(self) -> Iterator[Any]:
        """The settings that functions of the file return, by their syntax, called without arguments."""
        for function in vars(self.around.module).values():
            if not isinstance(function, FunctionType) or not self.around.is_users(function):
                continue
            inside = self.around.scope_of(function)
            if inside is None or any(p.default is p.empty and p.kind < 2 for p in parameters_of(function)):
                continue
            call = ast.Call(ast.Name(function.__name__, ast.Load()), [], [])
            try:
                value = self.evaluator.returned(inside, call, inside)
            except Unknown:
                continue
            if is_config(value):
                yield value

    def _instances(self, name: str, use: Use, classes: list[type]) -> Iterator[Any]:
        """Instances of the user's own classes that have what is read of the value, those called alike first."""
        wanted = [n for n in use.attributes if n not in use.defaults]
        wanted += ["__len__"] * use.counted + ["__getitem__"] * bool(use.items or use.last >= 0)
        able = [
            cls
            for cls in classes
            if cls is not self.made_by
            and self.around.is_users(cls)
            and not issubclass(cls, Enum)
            and (not issubclass(cls, nn.Module) or use.is_called)
            and set(wanted) <= self._members(cls)
        ]
        lower = name.lower().replace("_", "")
        alike = [c for c in able if lower in c.__name__.lower() or c.__name__.lower() in lower]
        chosen = alike or (able if len(able) == 1 or len(wanted) > 1 else [])
        for cls in sorted(chosen, key=lambda c: issubclass(c, nn.Module)):
            init = cls.__init__ if isinstance(vars(cls).get("__init__"), FunctionType) else None
            inside = self.around.scope_of(init) if init is not None else None
            if inside is not None and fetches(inside):
                continue
            try:
                yield self.evaluator.made(cls)
            except Exception:
                continue

    def _members(self, cls: type) -> set[str]:
        """What instances of a class have: its attributes and methods, fields, and what its methods set."""
        found = set(dir(cls)) | {name for base in cls.__mro__ for name in getattr(base, "__annotations__", {})}
        for value in (v for base in cls.__mro__[:-1] for v in vars(base).values() if isinstance(v, FunctionType)):
            inside = self.around.scope_of(value)
            for node in ast.walk(inside.node) if inside is not None else ():
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    found |= {node.attr} if ast.unparse(node.value) == "self" else set()
        return found


def _members_of(node: ast.ClassDef) -> set[str]:
    """The fields and methods that a class has by its syntax."""
    found = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
    found |= {one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)}
    targets = [target for one in node.body if isinstance(one, ast.Assign) for target in one.targets]
    return found | {target.id for target in targets if isinstance(target, ast.Name)}


def parameters_of(function: Any) -> list[inspect.Parameter]:
    """The parameters of a class or function; none where they cannot be told."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []
