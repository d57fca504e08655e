"""Functions beside a model that remember its mode and put it back: do they change it in between?

It is read in their text, and only where all that the model goes through is known: what it is handed to may switch it.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from textwrap import dedent
from types import FunctionType
from typing import Any

from torch import nn

from conformance.places import is_users

_SWITCHES = re.compile(r"\.(eval|train)\(|\.training\s*=[^=]|setattr\(")
"""What may change a mode, in whatever form."""
_NAMED_SO = re.compile(r"eval|train|(^|_)modes?(_|$)|switch|context|hook|callback|apply|backward|attr$")
"""Names of what may do it elsewhere."""
_HARMLESS = ("next", "iter", "len", "isinstance", "id", "type", "str", "repr")
"""What a model is handed to that changes nothing."""


@dataclass(frozen=True)
class Kept:
    """A function that remembers the mode of a model and puts it back. changes: whether something may change it in
    between; place: file:line of where it is remembered."""

    name: str
    changes: bool
    place: str


def functions_that_remember(cls: type) -> Iterator[Kept]:
    """Those of the file of a model's class."""
    module = sys.modules.get(cls.__module__)
    for value in list(vars(module).values()) if module is not None else ():
        function = inspect.unwrap(value) if isinstance(value, FunctionType) else None
        if function is None or function.__module__ != cls.__module__ or not is_users(function.__code__.co_filename):
            continue
        try:
            tree: Any = ast.parse(dedent(inspect.getsource(function))).body[0]
        except (OSError, SyntaxError, TypeError, IndexError):
            continue  # its text is not to be had
        if isinstance(tree, ast.FunctionDef):
            yield from _kept(function, tree)


def _kept(function: FunctionType, tree: ast.FunctionDef) -> Iterator[Kept]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        found = re.fullmatch(r"(\w+)\.training", ast.unparse(node.value))
        if found is None or found[1] not in inspect.signature(function).parameters:
            continue
        model, mode = found[1], node.targets[0].id
        if back := [one for one in ast.walk(tree) if _puts_back(one, model, mode)]:
            place = f"{function.__code__.co_filename}:{function.__code__.co_firstlineno - 1 + node.lineno}"
            yield Kept(tree.name, _may_change(function, tree, model, back), place)
            return


def _puts_back(node: ast.AST, model: str, mode: str) -> bool:
    """``model.train(mode)``, or ``if mode: model.train()``."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == mode:
        return [ast.unparse(one) for one in node.body] == [f"{model}.train()"] and not node.orelse
    return isinstance(node, ast.Call) and ast.unparse(node) in (f"{model}.train({mode})", f"{model}.train(mode={mode})")


def _may_change(function: FunctionType, tree: ast.FunctionDef, model: str, back: list[ast.AST]) -> bool:
    """Whether something may change the mode in between, by what it says or because it is not known."""
    if not all(ast.unparse(one).startswith(("torch.", "no_grad", "inference_mode")) for one in tree.decorator_list):
        return True
    known = {id(inner) for one in back for inner in ast.walk(one)}
    rest = [node for one in tree.body for node in ast.walk(one) if id(node) not in known]
    targets = (one for node in rest if isinstance(node, ast.Assign) for one in node.targets)
    if any(ast.unparse(one) == model or ast.unparse(one).endswith(".training") for one in targets):
        return True
    calls = [node for node in rest if isinstance(node, ast.Call)]
    runs = any(ast.unparse(call.func).split(".")[0] == model for call in calls)
    return not runs or any(_call_may(function, call, model) for call in calls)


def _call_may(function: FunctionType, call: ast.Call, model: str) -> bool:
    called = ast.unparse(call.func)
    owner, _, name = called.rpartition(".")
    if called == model or owner.split(".")[0] == "torch":
        return False
    texts = _texts("".join(linecache.getlines(function.__code__.co_filename, function.__globals__)))
    if _NAMED_SO.search(name.lower()) or name in texts.switching:
        return True
    if owner == model:  # a method of its own, or of torch's that only tells
        return name not in texts.known and not hasattr(nn.Module, name)
    handed = [ast.unparse(one) for one in (*call.args, *(keyword.value for keyword in call.keywords))]
    if not any(one == model or one.startswith(f"{model}.modules(") for one in handed):
        return False
    return called not in texts.known and called not in _HARMLESS


@dataclass(frozen=True)
class _Texts:
    """The functions and methods of a file by their names: all, and those that may change a mode by themselves or by one
    that they call."""

    known: frozenset[str]
    switching: frozenset[str]


@lru_cache(maxsize=8)
def _texts(text: str) -> _Texts:
    found = [(one.name, ast.unparse(one)) for one in ast.walk(ast.parse(text)) if isinstance(one, ast.FunctionDef)]
    switching = {name for name, body in found if _SWITCHES.search(body)}
    while True:
        calls = re.compile(rf"(?<!def )\b({'|'.join(map(re.escape, switching))})\(")
        more = {name for name, body in found if switching and calls.search(body)} - switching
        if not more:
            return _Texts(frozenset(name for name, _ in found), frozenset(switching))
        switching |= more
