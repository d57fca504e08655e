"""What a part keeps for other methods than its forward: a loss, a sampler."""

from __future__ import annotations

import ast
import inspect
from contextlib import suppress
from textwrap import dedent

from torch import nn

from conformance.adapters.whole.class_source import file_of


def is_for_another_method(module: nn.Module, path: str) -> bool:
    """Whether the tensor at a path is read in its part's code, or by a function beside it that takes the part, and in
    nothing that its forward leads to."""
    holder, _, name = path.rpartition(".")
    cls: type = type(module.get_submodule(holder))
    readers, calls = set(), {}
    for method, tree in _methods(cls):
        own = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _is_self(node.value)]
        calls[method] = {node.attr for node in own}
        if any(node.attr == name and isinstance(node.ctx, ast.Load) for node in own):
            readers.add(method)
    led, waiting = set(), ["forward"]
    while waiting:
        method = waiting.pop()
        led.add(method)
        waiting += [other for other in calls.get(method, ()) if other in calls and other not in led]
    return not readers & led and (bool(readers - led - {"__init__"}) or _is_read_beside(cls, name))


def _is_read_beside(cls: type, name: str) -> bool:
    """Whether a function of the class's file reads an attribute of this name of something that it is handed:
    ``pinball(output, target, model.quantiles)``."""
    found = file_of(cls)
    functions = [one for one in found[0].body if isinstance(one, ast.FunctionDef)] if found else []
    for function in functions:
        given = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
        read = (node for node in ast.walk(function) if isinstance(node, ast.Attribute) and node.attr == name)
        if any(isinstance(node.value, ast.Name) and node.value.id in given for node in read):
            return True
    return False


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
