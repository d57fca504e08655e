"""Whether two parts of one sequence have something in common, as far as a script's text tells their bounds. What a name
or a length stands for is not known: several large numbers are tried for it."""

from __future__ import annotations

import ast
import operator
import re
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from conformance.watch.lines import Source

_OPERATORS: Mapping[type, Any] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
_TRIED = range(12)
_BUILDERS = re.compile(r"(^|\.)(\w*Dataset|Subset|DataLoader|list|tuple|sorted)$")


class Part(NamedTuple):
    """A part of a sequence. of: the sequence, as it is written. start, end: its bounds; None where it has none."""

    of: str
    start: ast.expr | None
    end: ast.expr | None


def part_of(value: ast.expr) -> Part | None:
    """Which part of a sequence a value is, or is made of: `x[a:b]`, `Data(x[a:b], ...)`, `Subset(x, range(a, b))`."""
    if isinstance(value, ast.Subscript) and isinstance(value.value, (ast.Name, ast.Attribute)):
        inner = value.slice.elts[0] if isinstance(value.slice, ast.Tuple) and value.slice.elts else value.slice
        if isinstance(inner, ast.Slice) and inner.step is None:
            return Part(ast.unparse(value.value), inner.lower, inner.upper)
    if isinstance(value, ast.Call) and value.args and _BUILDERS.search(ast.unparse(value.func)):
        inside = value.args[-1]
        while isinstance(inside, ast.Call) and ast.unparse(inside.func) in ("list", "tuple") and inside.args:
            inside = inside.args[0]
        if not ast.unparse(value.func).endswith("Subset"):
            return part_of(value.args[0])
        if isinstance(inside, ast.Call) and ast.unparse(inside.func) == "range" and 1 <= len(inside.args) <= 2:
            start = inside.args[0] if len(inside.args) == 2 else None
            return Part(ast.unparse(value.args[0]), start, inside.args[-1])
        return part_of(inside)
    return None


def have_common(source: Source, first: Part, second: Part, at: ast.AST) -> bool:
    """Whether two parts of a sequence overlap, whatever is tried for what is not known. at: where they are cut."""
    if first.of != second.of:
        return False
    one, two = (first, second) if first.start is None or _is_zero(first.start) else (second, first)
    if one.end is None or two.start is None or not (one.start is None or _is_zero(one.start)):
        return False
    if _is_context(one, two):
        return False
    for tried in _TRIED:
        size = _unknown(f"len({one.of})", tried)
        end, start = (_number(source, node, at, tried) for node in (one.end, two.start))
        if end is None or start is None:
            return False
        end, start = (number + size if number < 0 else number for number in (end, start))
        if not start < end:
            return False
    return True


_SHUFFLED = re.compile(r"perm|shuf|sample|argsort|ind(ex|ices)|idx|order", re.IGNORECASE)


def _is_context(first: Part, second: Part) -> bool:
    """Whether the second part of a series begins a little before the first one ends, as what the first forecast reads
    does: `series[n - context:]`."""
    start, end = second.start, first.end
    is_less = isinstance(start, ast.BinOp) and isinstance(start.op, ast.Sub)
    return is_less and ast.unparse(start.left) == ast.unparse(end) and not _SHUFFLED.search(first.of)  # type: ignore


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0


def _unknown(text: str, tried: int) -> float:
    """A number for what is not known, the same for the same text."""
    return float(1000 + zlib.crc32(f"{text} {tried}".encode()) % 100000)


def _number(source: Source, node: ast.expr, at: ast.AST, tried: int, deep: int = 6) -> float | None:
    """The value of an expression; None where it cannot be worked out."""
    if isinstance(node, ast.Constant):
        return float(node.value) if isinstance(node.value, (int, float)) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(source, node.operand, at, tried, deep)
        return None if inner is None else -inner
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        sides = [_number(source, one, at, tried, deep) for one in (node.left, node.right)]
        if sides[0] is None or sides[1] is None or (isinstance(node.op, (ast.Div, ast.FloorDiv)) and not sides[1]):
            return None
        return float(_OPERATORS[type(node.op)](*sides))
    if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        called = ast.unparse(node.func)
        if called in ("int", "round", "math.floor", "math.ceil"):
            inner = _number(source, node.args[0], at, tried, deep)
            return None if inner is None else float(int(inner))
        return _unknown(ast.unparse(node), tried) if called == "len" else None
    if isinstance(node, ast.Name) and deep:
        values = _bound(source, node.id, at)
        known = _number(source, values[0], at, tried, deep - 1) if len(values) == 1 else None
        return _unknown(node.id, tried) if known is None else known
    return _unknown(ast.unparse(node), tried) if isinstance(node, (ast.Name, ast.Attribute)) else None


def _bound(source: Source, name: str, at: ast.AST) -> list[ast.expr]:
    """What a name is bound to in the function of a statement, else in the module; nothing where it is a parameter."""
    for function in dict.fromkeys((source.function(at), source.tree)):
        found, inside = [], source.inside(function)
        for one in inside:
            if isinstance(one, ast.Name) and one.id == name and not isinstance(one.ctx, ast.Load):
                found.append(_value(source, one))
            if isinstance(one, ast.arg) and one.arg == name:
                return []
        if found:
            return [one for one in found if one is not None] if None not in found else []
    return []


def _value(source: Source, target: ast.Name) -> ast.expr | None:
    """What an assignment binds a name to, alone or as one of several."""
    around = source.around[target]
    if isinstance(around, ast.Assign) and target in around.targets:
        return around.value
    outer = source.around.get(around)
    if not (isinstance(around, ast.Tuple) and isinstance(outer, ast.Assign) and isinstance(outer.value, ast.Tuple)):
        return None
    is_alike = len(outer.value.elts) == len(around.elts)
    return outer.value.elts[around.elts.index(target)] if is_alike else None
