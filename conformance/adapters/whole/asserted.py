"""Sizes that assertions of a constructor ask of each other: ``assert longest > window``, ``assert width % 2 == 0``."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Mapping
from types import FrameType
from typing import Any

_USUAL = 32
"""A size that is asked to be a multiple becomes the first one from here on."""


def asked_for(error: AssertionError, given: Mapping[str, Any]) -> dict[str, str | bool | float]:
    """The option that must change so that an assertion holds, with its value; {} where it says nothing of sizes, or
    speaks of none of the options. given: the options by their names."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return {}
    frame, line = trace.tb_frame, linecache.getline(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
    try:
        (statement,) = ast.parse(line.strip()).body
    except (SyntaxError, ValueError):  # it goes on behind this line
        return {}
    test = statement.test if isinstance(statement, ast.Assert) else None
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return {}
    left, right = test.left, test.comparators[0]
    if isinstance(test.ops[0], ast.Lt | ast.LtE):
        left, right = right, left
    if isinstance(test.ops[0], ast.Gt | ast.GtE | ast.Lt | ast.LtE):
        least = _size(right, frame)
        return _option(left, frame, given, 2 * least) if least else {}
    if isinstance(test.ops[0], ast.Eq) and isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod):
        step = _size(left.right, frame)
        return _option(left.left, frame, given, -(-_USUAL // step) * step) if step and _size(right, frame) == 0 else {}
    return {}


def _size(node: ast.expr, frame: FrameType) -> int | None:
    """The whole number that an expression is: a constant, a local name, or an attribute of one."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    held = frame.f_locals.get(node.id) if isinstance(node, ast.Name) else None
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        held = getattr(frame.f_locals.get(node.value.id), node.attr, None)
    return held if type(held) is int else None


def _option(node: ast.expr, frame: FrameType, given: Mapping[str, Any], value: int) -> dict[str, str | bool | float]:
    """The option that an expression is the value of: by its name, else the only one that has this value."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    now = _size(node, frame)
    alike = [option for option, one in given.items() if type(one) is int and one == now]
    if name in alike:
        return {name: value}
    return {alike[0]: value} if len(alike) == 1 else {}
