"""What the text of a function that trains says about modes: is training gone on with in evaluation mode?

A run shows the same, where the function can be called. Many need data of the user's, or make their model themselves.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from torch import nn

from conformance.adapters.functions.subjects import file_of
from conformance.adapters.helpers.drawn import called_of, handed, tree_of
from conformance.places import short

_RESTS = (nn.modules.dropout._DropoutNd, nn.modules.batchnorm._BatchNorm)
_SETS = re.compile(r"\.train\(|\.training\b.*=|setattr\(")
"""What may set training mode again, in whatever form."""
_OTHERS = re.compile(r"teacher|ema|target|ref|frozen|swa|averag|best|old", re.IGNORECASE)
"""Names of models beside the one that is trained: they stay in evaluation."""


def rests(module: nn.Module) -> bool:
    """Whether a model has parts that do something else in evaluation."""
    parts = (one for one in module.modules() if isinstance(one, _RESTS))
    return any(getattr(one, "p", 1.0) > 0 for one in parts)


def left_in_evaluation(function: Callable[..., Any]) -> str:
    """The place where a loop that trains a model sets it to evaluation, while nothing in the loop sets it back; empty
    where there is none."""
    plain: Any = inspect.unwrap(function)
    try:
        for loop in ast.walk(tree_of(plain)):
            seen = _seen(plain, loop.body) if isinstance(loop, (ast.For, ast.While)) else _Seen()
            lines = [line for name, line in seen.evaluated.items() if name in seen.trained and not _OTHERS.search(name)]
            if lines and not seen.sets:
                return f"{short(plain.__code__.co_filename)}:{plain.__code__.co_firstlineno - 1 + min(lines)}"
    except (OSError, SyntaxError, TypeError, ValueError):
        pass  # its text is not to be had
    return ""


@dataclass
class _Seen:
    """What some statements do, also in functions of the file that they call, by the names that things have in these
    statements. evaluated: what is set to evaluation, with the line; called: what is called as models are; trained: the
    same where a backward pass is made. sets: whether something may set training mode."""

    evaluated: dict[str, int] = field(default_factory=dict)
    called: set[str] = field(default_factory=set)
    trained: set[str] = field(default_factory=set)
    sets: bool = False


def _seen(function: FunctionType, body: list[ast.stmt], on_the_way: tuple[FunctionType, ...] = ()) -> _Seen:
    seen = _Seen(sets=any(_SETS.search(re.sub(r"\.train\(False\)", "", ast.unparse(one))) for one in body))
    calls = [node for one in body for node in ast.walk(one) if isinstance(node, ast.Call)]
    for call in calls:
        if isinstance(call.func, ast.Attribute):
            owner = ast.unparse(call.func.value)
            if call.func.attr == "eval" or ast.unparse(call).endswith(".train(False)"):
                seen.evaluated.setdefault(owner, call.lineno)
            seen.called.add(owner)
            seen.sets |= any(_SETS.search(text) for text in _classes_with(function, call.func.attr))
        elif isinstance(call.func, ast.Name):
            seen.called.add(call.func.id)
            other = called_of(function, call)
            if other is not None and other not in on_the_way:
                inner = _seen(other, tree_of(other).body[0].body, (*on_the_way, other))  # type: ignore[attr-defined]
                _take_over(seen, inner, handed(call, other), call.lineno)
    if any(isinstance(call.func, ast.Attribute) and call.func.attr == "backward" for call in calls):
        seen.trained |= seen.called
    return seen


def _take_over(seen: _Seen, inner: _Seen, given: dict[str, str], line: int) -> None:
    """What a function does with its parameters, it does with what it is given."""
    seen.sets |= inner.sets
    for parameter, text in given.items():
        if parameter in inner.evaluated:
            seen.evaluated.setdefault(text, line)
        if parameter in inner.called - inner.evaluated.keys():
            seen.called.add(text)
        if parameter in inner.trained:
            seen.trained.add(text)


def _classes_with(function: FunctionType, method: str) -> Iterator[str]:
    """The texts of the classes of the file that have a method of some name."""
    text = file_of(function)
    if f"def {method}(" in text:
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and any(getattr(one, "name", "") == method for one in node.body):
                yield ast.unparse(node)
