"""What a part keeps for other methods than its forward: a loss, a sampler."""

from __future__ import annotations

import ast
import inspect
from contextlib import suppress
from textwrap import dedent

from torch import nn


def is_for_another_method(module: nn.Module, path: str) -> bool:
    """Whether the tensor at a path is read in its part's code, and in nothing that its forward leads to."""
    holder, _, name = path.rpartition(".")
    readers, calls = set(), {}
    for method, tree in _methods(type(module.get_submodule(holder))):
        own = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_self(node.value)]
        calls[method] = {node.attr for node in own}
        if any(node.attr == name and isinstance(node.ctx, ast.Load) for node in own):
            readers.add(method)
    led, waiting = set(), ["forward"]
    while waiting:
        method = waiting.pop()
        led.add(method)
        waiting += [other for other in calls.get(method, ()) if other in calls and other not in led]
    return bool(readers - led - {"__init__"}) and not readers & led


def _methods(cls: type) -> list[tuple[str, ast.AST]]:
    """The methods that a class and the user's classes above it define, as syntax."""
    found: dict[str, ast.AST] = {}
    for base in cls.__mro__:
        if base.__module__.startswith("torch."):
            break
        with suppress(OSError, TypeError, SyntaxError):
            body = ast.parse(dedent(inspect.getsource(base))).body[0]
            statements = body.body if isinstance(body, ast.ClassDef) else []
            found = {s.name: s for s in statements if isinstance(s, ast.FunctionDef)} | found
    return list(found.items())


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"
