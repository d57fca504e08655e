"""Classes that are made by a classmethod of their own (``GPT.from_config(cfg)``, ``GPT.tiny()``).

Such a method is called where the user points at it, and for a class whose own calls show nothing. One that reads a
file or asks a network for weights is never called for a class.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any, TypeGuard

from torch import nn

from conformance.adapters.whole.syntax import Scope
from conformance.adapters.whole.usage import Surroundings, Usage

_FETCHES = re.compile(r"load|open|read|download|pretrained|checkpoint|fetch|urlopen|request|hub|safetensors", re.I)
"""Words in the name of a method, or of what it calls, by which it needs more than its arguments."""


def is_classmethod(found: Any) -> TypeGuard[MethodType]:
    """Whether it is a classmethod of a class of modules, bound to it."""
    owner = getattr(found, "__self__", None)
    return isinstance(found, MethodType) and isinstance(owner, type) and issubclass(owner, nn.Module)


def is_maker(found: Any) -> TypeGuard[FunctionType | MethodType]:
    """Whether it is a function or a classmethod, which may make modules."""
    return isinstance(found, FunctionType) or is_classmethod(found)


def name_of(found: Any) -> str:
    """What a user writes for it: "GPT", "make_model", "GPT.from_config"."""
    return f"{_owner(found).__name__}.{found.__name__}" if is_classmethod(found) else str(found.__name__)


def _owner(method: MethodType) -> type[nn.Module]:
    owner: type[nn.Module] = method.__self__  # type: ignore[assignment]
    return owner


def makers_of(cls: type, around: Surroundings) -> Iterator[MethodType]:
    """The public classmethods of a class that return an instance and need nothing but their arguments, in order."""
    for name, value in vars(cls).items() if issubclass(cls, nn.Module) else ():
        if not isinstance(value, classmethod) or name.startswith("_") or _FETCHES.search(name):
            continue
        method = getattr(cls, name)
        inside = around.scope_of(method) if hasattr(method, "__code__") else None
        if inside is not None and returns_its_class(inside) and not fetches(inside):
            yield method


def returns_its_class(inside: Scope) -> bool:
    """Whether a classmethod returns ``cls(...)``, by its syntax, alone or under a name."""
    return any(_is_its_class(returned, inside) for returned in inside.returned())


def _is_its_class(node: ast.expr, scope: Scope) -> bool:
    if isinstance(node, ast.Name):
        binding = scope.binding(node.id, node.lineno)
        return binding is not None and binding.kind == "value" and _is_its_class(binding.node, scope)
    function, first = scope.function, node.func if isinstance(node, ast.Call) else None
    if function is None or not function.args.args or not isinstance(first, ast.Name):
        return False
    owner = scope.parent.node if scope.parent is not None and scope.parent.is_class else None
    return first.id in (function.args.args[0].arg, getattr(owner, "name", ""))


def fetches(inside: Scope) -> bool:
    """Whether what a function calls reads files or asks a network, by the names."""
    called = (ast.unparse(node.func) for node in ast.walk(inside.node) if isinstance(node, ast.Call))
    return any(_FETCHES.search(name) for name in called)


def usages_of(made_by: Any, around: Surroundings) -> list[Usage]:
    """The calls of a class, function or classmethod; of a classmethod those that name its class, or one below it."""
    found = around.usages(made_by)
    if not is_classmethod(made_by):
        return found
    owner = _owner(made_by)
    families = {cls.__name__ for cls in (owner, *owner.__subclasses__())}

    def holder(usage: Usage) -> str:
        function = usage.call.func
        return ast.unparse(function.value).rpartition(".")[2] if isinstance(function, ast.Attribute) else ""

    return [usage for usage in found if holder(usage) in families]
