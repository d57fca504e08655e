"""A forward that takes its inputs packed in one: `batch["input_ids"]`, `batch.src`, `query, document = pair`."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from textwrap import dedent
from typing import Any

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
    return _read_of(module, type(module).forward, required[0], frozenset())


def _read_of(
    module: nn.Module, function: Callable[..., Any], name: str, seen: frozenset[str]
) -> tuple[str, dict[str, bool], bool]:
    """What a method reads of one of its parameters, and what the methods and parts read to which it hands that."""
    try:
        tree = ast.parse(dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError):
        return "", {}, False
    called = _called(tree, name)
    for node in ast.walk(tree):
        names = _unpacked(node, called)
        if len(names) > 1:
            return name, dict.fromkeys(names, True), True
    guarded = {
        node.left.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant) and _is(node.comparators[0], called)
    }
    keys: dict[str, bool] = {}
    for node in ast.walk(tree):
        key, is_required = _key(node, called)
        if key:
            keys[key] = (keys.get(key, False) or is_required) and key not in guarded
    found = [packed_in(part) for part in _handed_on(module, tree, called)]
    found += [
        _read_of(module, method, parameter, seen | {method.__name__})
        for method, parameter in _own_methods(module, tree, called)
        if method.__name__ not in seen
    ]
    for inner, of_part, in_order in found:
        if inner and in_order and not keys:
            return name, of_part, True
        keys |= {key: is_required for key, is_required in of_part.items() if key not in keys and not in_order}
    return (name, keys, False) if keys else ("", {}, False)


def _called(tree: ast.AST, name: str) -> set[str]:
    """The names that a forward gives a parameter: its own, and ``z`` behind ``z = batch``."""
    plain = (node for node in ast.walk(tree) if isinstance(node, ast.Assign) and _is(node.value, {name}))
    return {name, *(target.id for node in plain for target in node.targets if isinstance(target, ast.Name))}


def _handed_on(module: nn.Module, tree: ast.AST, called: set[str]) -> Iterator[nn.Module]:
    """The parts that a forward hands a parameter to, and no other data: ``self.net(batch, train=False)``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is(node.func.value, {"self"}):
            part = getattr(module, node.func.attr, None)
            alone = len(node.args) == 1 and all(isinstance(word.value, ast.Constant) for word in node.keywords)
            if isinstance(part, nn.Module) and alone and _is(node.args[0], called):
                yield part


def _own_methods(module: nn.Module, tree: ast.AST, called: set[str]) -> Iterator[tuple[Callable[..., Any], str]]:
    """The methods of its own that a forward hands a parameter to, each with the name that it has there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is(node.func.value, {"self"}):
            method = vars(type(module)).get(node.func.attr)
            if not inspect.isfunction(method):
                continue
            names = [one.name for one in inspect.signature(method).parameters.values() if one.kind not in _REST][1:]
            given = [*zip(names, node.args, strict=False), *((word.arg, word.value) for word in node.keywords)]
            yield from ((method, name) for name, value in given if name and _is(value, called))


_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_METHODS = ("keys", "values", "items", "get", "pop", "to", "update", "copy")


def _is(node: ast.expr, called: set[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in called


def _unpacked(node: ast.AST, called: set[str]) -> list[str]:
    """The names of a statement ``a, b = batch``; none of any other."""
    if not isinstance(node, ast.Assign) or not _is(node.value, called) or not isinstance(node.targets[0], ast.Tuple):
        return []
    parts = node.targets[0].elts
    return (
        [part.id for part in parts if isinstance(part, ast.Name)] if all(isinstance(p, ast.Name) for p in parts) else []
    )


def _key(node: ast.AST, called: set[str]) -> tuple[str, bool]:
    """The key that an expression reads from what a name of `called` holds, and whether it fails without it."""
    if isinstance(node, ast.Subscript) and _is(node.value, called) and isinstance(node.slice, ast.Constant):
        return (node.slice.value, True) if isinstance(node.slice.value, str) else ("", False)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is(node.func.value, called):
        asked = node.args[0] if node.func.attr == "get" and node.args else None
        return (asked.value, False) if isinstance(asked, ast.Constant) and isinstance(asked.value, str) else ("", False)
    if isinstance(node, ast.Attribute) and _is(node.value, called):
        known = hasattr(torch.Tensor, node.attr) or node.attr in _METHODS  # a tensor has those
        return ("", False) if known else (node.attr, True)
    return "", False
