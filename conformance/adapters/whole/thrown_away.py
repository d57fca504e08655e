"""Results that a statement throws away: ``x.masked_fill(padding, 0.0)`` gives a new tensor, and leaves x as it was."""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator

from conformance.adapters.whole.findings import Finding
from conformance.adapters.whole.record import Record


def thrown_away(record: Record) -> Iterator[Finding]:
    """Operations that a statement asks for by their name, and whose result nothing reads. What writes in place has
    another name ("masked_fill_"), whoever asks for it: ``F.relu(x, inplace=True)``."""
    read = {value for op in record.ops for value in op.inputs} | {*record.results, *record.outcomes}
    asked: dict[str, dict[int, str]] = {}
    for op in record.ops:
        if op.place is None or not op.outputs or any(value in read for value in op.outputs):
            continue
        if op.place.file not in asked:
            asked[op.place.file] = _statements(op.place.file)
        if asked[op.place.file].get(op.place.line) != op.name.removeprefix("_"):
            continue
        name = op.name.removeprefix("_")
        yield Finding(
            "results-of-methods-are-kept",
            f"What {name} gives is thrown away: it is a new tensor, and the old one stays as it was.",
            op.place,
            "a use of the result",
            "none",
            f"Assign the result (x = x.{name}(...)), or call {name}_.",
            paths=(path.path,) if (path := next(iter(record.around(record.call_of(op))), None)) else ("",),
        )


def _statements(file: str) -> dict[int, str]:
    """The name of what is called by each statement of a file that is a call and nothing else, by its lines."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return {}
    found: dict[int, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            called = node.value.func
            name = (
                called.attr if isinstance(called, ast.Attribute) else called.id if isinstance(called, ast.Name) else ""
            )
            found |= dict.fromkeys(range(node.lineno, (node.end_lineno or node.lineno) + 1), name)
    return found
