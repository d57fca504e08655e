"""The edit that mends a function: one change of its syntax after which the trial finds nothing wrong.

The changed function is compiled beside the user's, from a copy of its names; nothing of the user's is touched.
"""

from __future__ import annotations

import ast
import copy
import inspect
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from textwrap import dedent
from types import FrameType, MethodType
from typing import Any

from conformance.adapters.functions.subjects import file_of
from conformance.adapters.helpers.configured import Configured

SECONDS = 1.5
"""Processor time after which no further edit is tried."""
SECONDS_OF_AN_EDIT = 0.4
"""Processor time after which an edit is given up, where a loop may never end with it."""

_OPERATORS: dict[type, tuple[type, ...]] = {
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div, ast.Add),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Div, ast.Mult),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
}
_COMPARISONS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.Gt, ast.GtE),
    ast.LtE: (ast.Lt, ast.GtE, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt, ast.LtE),
    ast.GtE: (ast.Gt, ast.LtE, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_NAMES = (
    "max min", "any all", "sum mean", "argmax argmin", "ones zeros", "ones_like zeros_like", "triu tril", "le lt",
    "ge gt", "eq ne", "numel sum",  ("repeat "
"repeat_interleave"), "scatter gather", "cos sin", "exp log", "rsqrt sqrt", "floor ceil",
)  # fmt: skip
_TWINS = {a: b for pair in _NAMES for a, b in (pair.split(), pair.split()[::-1])}


@dataclass(frozen=True)
class Edit:
    """line: of the user's file. text: the statement as it should be."""

    line: int
    text: str


def mended(function: Callable[..., Any], is_right: Callable[[Callable[..., Any]], bool]) -> Edit | None:
    """The first edit of a function with which it is right; None when none is found in time."""
    owner, given = getattr(function, "__self__", None), function
    function = inspect.unwrap(getattr(function, "__func__", function))
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    if not isinstance(tree.body[0], ast.FunctionDef) or function.__closure__:
        return None
    tree.body[0].decorator_list = []
    loops = re.search(r"\bwhile\b", file_of(function)) is not None
    until = time.process_time() + SECONDS
    for stage, changed, statement in edits(tree):
        if time.process_time() > until:
            return None
        if isinstance(statement, ast.Return) and isinstance(statement.value, ast.Tuple):
            continue  # by its names the results are told apart
        with suppress(Exception, _Endless):
            scope = dict(function.__globals__)
            exec(compile(ast.fix_missing_locations(changed), function.__code__.co_filename, "exec"), scope)
            made = scope[tree.body[0].name]
            made.__module__, made.__wrapped__ = function.__module__, function  # its text is that of the user's
            made = given.of(made) if isinstance(given, Configured) else made
            with _ending(function.__code__.co_filename, loops):
                right = is_right(made if owner is None else MethodType(made, owner))
            if right:
                text = ast.unparse(statement).split("\n")[0] if stage in (_likely, _parts_left_out) else ""
                return Edit(first + statement.lineno - 1, text)
    return None


class _Endless(BaseException):
    """An edit makes a loop that does not end. No trial may take it for an error of the function."""


@contextmanager
def _ending(file: str, loops: bool) -> Iterator[None]:
    """What runs inside, of the code of a file, ends after a while with _Endless. loops: whether this may be needed."""
    before, until = sys.gettrace(), time.process_time() + SECONDS_OF_AN_EDIT

    def each(frame: FrameType, event: str, arg: Any) -> Any:
        if time.process_time() > until:
            raise _Endless
        return each

    if not loops:
        yield
        return
    sys.settrace(lambda frame, event, arg: each if frame.f_code.co_filename == file else None)
    try:
        yield
    finally:
        sys.settrace(before)


def edits(tree: ast.Module) -> Iterator[tuple[Changes, ast.Module, ast.stmt]]:
    """The stage, a copy of the tree with one change, and the changed statement; the likeliest mistakes first."""
    options = {id(node) for part in ast.walk(tree) if isinstance(part, ast.arguments) for node in ast.walk(part)}
    places = [
        (n, node) for n, node in enumerate(ast.walk(tree)) if isinstance(node, _CHANGED) and id(node) not in options
    ]
    names, told = _local_names(tree), _told(tree)
    for changes in (_likely, _parts_left_out, _other_names, _grown):
        for number, node in places:
            for choice in range(len(changes(node, names, told))):
                changed = copy.deepcopy(tree)
                target = next(n for at, n in enumerate(ast.walk(changed)) if at == number)
                new = changes(target, names, told)[choice]()
                parent = _Replaced(target, new)
                changed = parent.visit(changed)
                yield changes, changed, _statement(changed, new)


_CHANGED = (
    ast.BinOp, ast.Compare, ast.UnaryOp, ast.Constant, ast.Call, ast.Slice, ast.Attribute, ast.Name, ast.Subscript,
    ast.IfExp,
)  # fmt: skip
Change = Callable[[], ast.AST]
Changes = Callable[[Any, list[str], list[float]], list[Change]]


def _with(node: Any, **fields: Any) -> Change:
    def change() -> ast.AST:
        new = copy.deepcopy(node)
        for name, value in fields.items():
            setattr(new, name, value)
        return new

    return change


def _likely(node: Any, names: list[str], told: list[float]) -> list[Change]:
    """Operators, comparisons, signs, numbers and the ends of slices."""
    match node:
        case ast.BinOp():
            swaps = [_with(node, op=op()) for op in _OPERATORS.get(type(node.op), ())]
            turned = isinstance(node.op, (ast.Sub, ast.Div, ast.FloorDiv, ast.Pow, ast.MatMult))
            return swaps + ([_with(node, left=node.right, right=node.left)] if turned else [])
        case ast.Compare() if len(node.ops) == 1:
            return [_with(node, ops=[op()]) for op in _COMPARISONS.get(type(node.ops[0]), ())]
        case ast.UnaryOp():
            return [lambda: node.operand]
        case ast.Constant() if isinstance(node.value, bool):
            return [_with(node, value=not node.value)]
        case ast.Constant() if isinstance(node.value, int):
            return [_with(node, value=node.value + step) for step in (1, -1)]
        case ast.Constant() if isinstance(node.value, float):
            numbers = dict.fromkeys([1 - node.value, -node.value, 2 * node.value, node.value / 2, *told])
            return [_with(node, value=number) for number in numbers if number != node.value]
        case ast.Slice():
            return _slices(node)
        case ast.Attribute() if node.attr in _TWINS:
            return [_with(node, attr=_TWINS[node.attr])]
        case ast.Name() if node.id in _TWINS:
            return [_with(node, id=_TWINS[node.id])]
        case ast.Call() if len(node.args) == 2:
            return [_with(node, args=node.args[::-1])]
        case ast.IfExp():
            return [lambda: node.body, lambda: node.orelse, _with(node, body=node.orelse, orelse=node.body)]
    return []


def _slices(node: ast.Slice) -> list[Change]:
    one = ast.Constant(1)
    found = [_with(node, lower=node.upper, upper=node.lower)] if (node.lower is None) != (node.upper is None) else []
    for name in ("lower", "upper"):
        end = getattr(node, name)
        if end is not None:
            found += [_with(node, **{name: _plus(end, step)}) for step in (1, -1)]
    if node.lower is not None and node.upper is not None:
        found += [_with(node, lower=_plus(node.lower, step), upper=_plus(node.upper, step)) for step in (1, -1)]
    elif node.lower is None and node.upper is None:
        found += [_with(node, lower=one), _with(node, upper=ast.UnaryOp(ast.USub(), one))]
    return found


def _plus(end: ast.expr, step: int) -> ast.expr:
    """One more or one less, written as one would write it."""
    match end:
        case ast.BinOp(right=ast.Constant(value=1)) if isinstance(end.op, ast.Sub if step > 0 else ast.Add):
            return end.left
    return ast.BinOp(end, ast.Add() if step > 0 else ast.Sub(), ast.Constant(1))


def _parts_left_out(node: Any, names: list[str], told: list[float]) -> list[Change]:
    """One side of an operation alone; what a method is called on alone; the last axis."""
    match node:
        case ast.BinOp():
            return [lambda: node.left, lambda: node.right]
        case ast.Name() if isinstance(node.ctx, ast.Load) and node.id in names:
            return [lambda: ast.UnaryOp(ast.Invert(), node)]
        case ast.Constant() if (
            isinstance(node.value, int) and not isinstance(node.value, bool) and node.value in (0, 1)
        ):
            return [_with(node, value=-1)]
        case ast.Call() if isinstance(node.func, ast.Attribute):
            method = node.func
            return [lambda: method.value]
    return []


def _other_names(node: Any, names: list[str], told: list[float]) -> list[Change]:
    """Another variable in the place of one."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
        return [_with(node, id=name) for name in names if name != node.id]
    return []


def _grown(node: Any, names: list[str], told: list[float]) -> list[Change]:
    """What may have been left out: a part of a sum, product or mask, a condition, the end of a slice, a negation."""
    if not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
        return []
    found: list[Change] = []
    loaded = [ast.Name(name, ast.Load()) for name in names]
    if isinstance(node, ast.Name) and node.id in names:
        for other in loaded:
            end = ast.Slice(upper=other)
            found.append(lambda end=end: ast.Subscript(node, end, ast.Load()))  # type: ignore[misc]
    if isinstance(node, ast.Compare):
        for one in loaded:
            for other in loaded:
                if one is not other:
                    also = ast.Compare(one, [ast.NotEq()], [other])
                    found.append(lambda also=also: ast.BoolOp(ast.And(), [node, also]))  # type: ignore[misc]
    if isinstance(node, (ast.Call, ast.BinOp, ast.Name)):
        for op in (ast.Sub(), ast.Mult(), ast.Div(), ast.BitAnd()):
            for other in loaded:
                found.append(lambda op=op, other=other: ast.BinOp(node, op, other))  # type: ignore[misc]
    return found


def _local_names(tree: ast.Module) -> list[str]:
    found = {node.arg: None for node in ast.walk(tree) if isinstance(node, ast.arg)}
    found |= {n.id: None for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return list(found)


def _told(tree: ast.Module) -> list[float]:
    """The numbers that the docstring of a function says, those of per cent as shares, too."""
    said = ast.get_docstring(tree.body[0]) or "" if isinstance(tree.body[0], ast.FunctionDef) else ""
    numbers = [float(number) for number in re.findall(r"(?<![\w.])\d+(?:\.\d+)?", said)]
    return [share for number in numbers for share in (number, number / 100)]


class _Replaced(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, ast.copy_location(new, old) if hasattr(old, "lineno") else new

    def visit(self, node: ast.AST) -> Any:
        return self.new if node is self.old else super().visit(node)


def _statement(tree: ast.Module, changed: ast.AST) -> ast.stmt:
    """The innermost statement that holds a node."""
    holders = [s for s in ast.walk(tree) if isinstance(s, ast.stmt) and any(n is changed for n in ast.walk(s))]
    return max(holders, key=lambda s: (s.lineno, s.col_offset), default=tree.body[0])
