"""A forward that takes its inputs packed in one: `batch["input_ids"]`, `batch.src`, `query, document = pair`."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from textwrap import dedent

import torch
from torch import nn


def packed_in(module: nn.Module) -> tuple[str, dict[str, bool], bool]:
    """(the one parameter of forward that holds all inputs, its keys in the order of their use -> whether each is
    required, whether they stand in a tuple in this order); ("", {}, False) where forward takes its inputs one by
    one."""
    parameters = [p for p in inspect.signature(module.forward).parameters.values() if p.kind not in _REST]
    required = [p.name for p in parameters if p.default is p.empty]
    if len(required) != 1:
        return "", {}, False
    name = required[0]
    try:
        tree = ast.parse(dedent(inspect.getsource(inspect.unwrap(type(module).forward))))
    except (OSError, TypeError, SyntaxError):
        return "", {}, False
    for node in ast.walk(tree):
        names = _unpacked(node, name)
        if len(names) > 1:
            return name, dict.fromkeys(names, True), True
    guarded = {
        node.left.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant) and _is(node.comparators[0], name)
    }
    keys: dict[str, bool] = {}
    for node in ast.walk(tree):
        key, is_required = _key(node, name)
        if key:
            keys[key] = (keys.get(key, False) or is_required) and key not in guarded
    for part in _handed_on(module, tree, name) if not keys else ():
        inner, keys, in_order = packed_in(part)
        if inner:
            return name, keys, in_order
    return (name, keys, False) if keys else ("", {}, False)


def _handed_on(module: nn.Module, tree: ast.AST, name: str) -> Iterator[nn.Module]:
    """The parts that a forward hands a parameter to, and nothing else: ``self.net(batch)``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is(node.func.value, "self"):
            part = getattr(module, node.func.attr, None)
            if isinstance(part, nn.Module) and len(node.args) == 1 and not node.keywords and _is(node.args[0], name):
                yield part


_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_METHODS = ("keys", "values", "items", "get", "pop", "to", "update", "copy")


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _unpacked(node: ast.AST, name: str) -> list[str]:
    """The names of a statement ``a, b = name``; none of any other."""
    if not isinstance(node, ast.Assign) or not _is(node.value, name) or not isinstance(node.targets[0], ast.Tuple):
        return []
    parts = node.targets[0].elts
    return (
        [part.id for part in parts if isinstance(part, ast.Name)] if all(isinstance(p, ast.Name) for p in parts) else []
    )


def _key(node: ast.AST, name: str) -> tuple[str, bool]:
    """The key that an expression reads from what `name` holds, and whether it fails without it."""
    if isinstance(node, ast.Subscript) and _is(node.value, name) and isinstance(node.slice, ast.Constant):
        return (node.slice.value, True) if isinstance(node.slice.value, str) else ("", False)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is(node.func.value, name):
        asked = node.args[0] if node.func.attr == "get" and node.args else None
        return (asked.value, False) if isinstance(asked, ast.Constant) and isinstance(asked.value, str) else ("", False)
    if isinstance(node, ast.Attribute) and _is(node.value, name):
        known = hasattr(torch.Tensor, node.attr) or node.attr in _METHODS  # a tensor has those
        return ("", False) if known else (node.attr, True)
    return "", False
