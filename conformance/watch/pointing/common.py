"""What the functions that point at lines share: the first few places, and the user's statements around an event."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from typing import Any

from conformance.watch.events import Forward
from conformance.watch.lines import FUNCTIONS, Source, source_of
from conformance.watch.origins import Line, arguments, receiver

MOST = 3


def first(*places: str | Iterable[str]) -> list[str]:
    """The first few places, each once."""
    flat = [one for place in places for one in ([place] if isinstance(place, str) else place)]
    return list(dict.fromkeys(one for one in flat if one))[:MOST]


def that(lines: Iterable[Line], wanted: re.Pattern[str]) -> list[str]:
    return [line.place for line in lines if wanted.search(line.text)]


def own_line(loss: Any) -> list[Line]:
    """The statement that calls a loss."""
    if not loss.stack:
        return []
    source, call = source_of(loss.stack[0].code.co_filename), loss.stack[0].call()
    return [Line(source, source.statement(call))] if source and call is not None else []


def inputs_of(run: Any, loss: Any) -> list[Line]:
    """The statement that called the model before a loss, and the lines behind what it was given."""
    calls = [e for e in run.events[: loss.order] if isinstance(e, Forward) and e.stack and run.parts.get(e.module)]
    if not calls:
        return []
    stack = calls[-1].stack
    source, call = source_of(stack[0].code.co_filename), stack[0].call()
    own = [Line(source, source.statement(call))] if source and call is not None else []
    is_inside = any(at.code is stack[0].code for at in loss.stack[1:])  # the model computes its loss, and gets labels
    return [*own, *arguments(stack, but=_LABELS if is_inside else None)]


_LABELS = re.compile(r"(\w+_)?(labels?|targets?|y|ys|yb|gold)")


def learned(back: Any) -> list[Line]:
    """The lines behind what a backward pass began with."""
    if not back.stack:
        return []
    call = back.stack[0].call()
    is_method = call is not None and isinstance(call.func, ast.Attribute) and call.func.attr == "backward"
    plain = receiver(back.stack) if is_method else []
    return [line for line in [*plain, *arguments(back.stack)] if isinstance(line.node, _PLAIN)]


_PLAIN = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Return, ast.Expr)


def node_of(event: Any) -> tuple[Source | None, Any]:
    """The source and the call of an event."""
    if not event.stack:
        return None, None
    return source_of(event.stack[0].code.co_filename), event.stack[0].call()


def functions_of(event: Any) -> Iterator[tuple[Source, Any]]:
    """The user's functions around an event, innermost first."""
    for at in event.stack:
        source = source_of(at.code.co_filename)
        node = source.defined(at.code) if source else None
        if source and isinstance(node, FUNCTIONS[:2]):
            yield source, node


def statements(source: Source, node: ast.AST, wanted: re.Pattern[str]) -> Iterator[str]:
    """The places of the plain statements and headers in a node that have such a text."""
    for one in ast.walk(node):
        is_plain = isinstance(one, ast.stmt) and not isinstance(one, (*FUNCTIONS, ast.ClassDef))
        if is_plain and wanted.search(Line(source, one).text):  # type: ignore[arg-type]
            yield source.place(_keyword(one, wanted))


def _keyword(node: Any, wanted: re.Pattern[str]) -> Any:
    """The argument of a call over several lines that has such a text, one without a value before others; else the
    statement."""
    if isinstance(node, ast.If) or getattr(node, "end_lineno", 0) == node.lineno:
        return node
    inside = [one for one in ast.walk(node) if isinstance(one, ast.keyword) and wanted.search(f"{one.arg}=")]
    inside.sort(key=lambda one: (isinstance(one.value, ast.Constant), one.lineno))
    return inside[-1] if inside else node


CUTS = re.compile(r"\.detach\(|(?<!utils)\.data\b(?!\.)|no_grad|inference_mode")
