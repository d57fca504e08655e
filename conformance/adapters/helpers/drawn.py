"""How a function that trains takes its batches: what it draws them from, and what it takes them apart into."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from textwrap import dedent
from types import FunctionType
from typing import Any

from torch import Tensor


def tree_of(function: Callable[..., Any]) -> ast.AST:
    """Raises OSError where its source is not to be had."""
    return ast.parse(dedent(inspect.getsource(inspect.unwrap(function))))


def drawn(tree: ast.AST, name: str) -> ast.AST | None:
    """What a loop or `next` binds a batch to that comes from what has a name."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.For, ast.comprehension)) and (target := _bound(node.iter, node.target, name)):
            return target
        if isinstance(node, ast.Assign) and re.search(rf"\bnext\(.*\b{name}\b", ast.unparse(node.value)):
            return node.targets[0]
    for node in ast.walk(tree):  # what goes over it may have a name of its own, and be drawn from as a whole
        if isinstance(node, ast.Assign) and re.search(rf"\b(iter|cycle)\(.*\b{name}\b", ast.unparse(node.value)):
            return drawn(tree, ast.unparse(node.targets[0]))
        if isinstance(node, ast.Call) and re.fullmatch(rf"next\({name}\)", ast.unparse(node)):
            return node
    return None


def _bound(source: ast.expr, target: ast.expr, name: str) -> ast.expr | None:
    """What a loop binds the items of what has a name to, bare or in tqdm, enumerate, zip and the like: not its
    numbers."""
    if re.search(rf"\b{name}\b", ast.unparse(source)) is None:
        return None
    called = ast.unparse(source.func) if isinstance(source, ast.Call) else ""
    if isinstance(source, ast.Call) and called == "zip" and isinstance(target, ast.Tuple):
        found = (_bound(one, to, name) for one, to in zip(source.args, target.elts, strict=False))
        return next((one for one in found if one is not None), None)
    if "range(" in ast.unparse(source):
        return None
    counted = "enumerate(" in ast.unparse(source) and isinstance(target, ast.Tuple)
    return target.elts[1] if counted else target  # type: ignore[attr-defined]


class Parts(dict[str, None]):
    """The names that a batch is asked for. by_attribute: as attributes of an object, not as keys."""

    by_attribute = False


def parts_of(function: Callable[..., Any], tree: ast.AST, batch: ast.AST) -> list[str] | Parts:
    """The names that a batch is taken apart into, in order; of a dictionary or an object the names that it is asked
    for, also in functions of the file that it is handed to."""
    if isinstance(batch, ast.Tuple):
        return [ast.unparse(one) for one in batch.elts]
    asked, fields, most = Parts(), Parts(), -1
    for node in _about(function, tree, getattr(batch, "id", "")):
        if isinstance(node, ast.Assign):
            assert isinstance(node.targets[0], ast.Tuple)
            return [ast.unparse(one) for one in node.targets[0].elts]
        if isinstance(node, ast.Attribute):
            fields[node.attr] = None
            continue
        key = getattr(getattr(node, "slice", None), "value", None)
        if isinstance(key, str):
            asked[key] = None
        elif type(key) is int:
            most = max(most, key)
    fields.by_attribute = True
    own = Parts({name: None for name in fields if not hasattr(Tensor, name) and not hasattr(dict, name)})
    own.by_attribute = True
    return asked or own or ["" for _ in range(most + 1)]


def _about(function: Callable[..., Any], tree: ast.AST, name: str, seen: tuple[Any, ...] = ()) -> Iterator[ast.AST]:
    """The places that take a part of what has a name: here, and in functions of the file that it is handed to."""
    for node in ast.walk(tree):
        held = getattr(node, "value", None)
        taken = not isinstance(node, ast.Assign) or isinstance(node.targets[0], ast.Tuple)
        if isinstance(held, ast.Name) and held.id == name and taken:
            yield node
        other = called_of(function, node)
        if other is None or other in seen:
            continue
        given = next((p for p, text in handed(node, other).items() if text == name), None)
        if given is not None:
            yield from _about(other, tree_of(other), given, (*seen, other))


def called_of(function: Callable[..., Any], node: ast.AST) -> FunctionType | None:
    """The function of the same file that a call is of, if it is of one by its name."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return None
    plain = inspect.unwrap(function)
    found = getattr(plain, "__globals__", {}).get(node.func.id)
    found = inspect.unwrap(found) if callable(found) else None
    return found if isinstance(found, FunctionType) and found.__module__ == plain.__module__ else None


def handed(node: ast.AST, to: FunctionType) -> dict[str, str]:
    """What a call hands to each parameter of a function, as text."""
    assert isinstance(node, ast.Call)
    found = dict(zip(inspect.signature(to).parameters, map(ast.unparse, node.args), strict=False))
    return found | {one.arg: ast.unparse(one.value) for one in node.keywords if one.arg}
