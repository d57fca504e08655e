"""What a script's text says of the batches that it cuts by hand."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from conformance.watch.lines import Source
from conformance.watch.stated import sources

_BATCH = re.compile(r"(^|[._])(batch(_?size)?|bs|bsz|b)$|batch_?size", re.IGNORECASE)
_WINDOWS = re.compile(r"window|block|context|seq|stride|sliding", re.IGNORECASE)


class Cut(NamedTuple):
    """A batch that is cut out of something. what: as it is written; size: of a batch; place: file:line."""

    what: str
    size: str
    place: str


def moved_by_one(run: Any) -> Iterator[Cut]:
    """The batches, cut from a number on that a loop counts one by one, that are as long as a batch: each holds all rows
    of the one before but one. Windows of a text or a series are cut so, batches are not."""
    for source in sources(run):
        for node in source.nodes:
            if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Slice):
                continue
            start, end = node.slice.lower, node.slice.upper
            is_sum = isinstance(end, ast.BinOp) and isinstance(end.op, ast.Add)
            if not isinstance(start, ast.Name) or not is_sum or ast.unparse(end.left) != start.id:  # type: ignore[union-attr]
                continue
            size = ast.unparse(end.right)  # type: ignore[union-attr]
            if (
                _BATCH.search(size)
                and not _WINDOWS.search(ast.unparse(node))
                and _counts_batches(source, node, start.id)
            ):
                yield Cut(ast.unparse(node), size, source.place(node))


_NUMBER = re.compile(r"(?i)(n|num|no|number)_?(of_?)?(batch(es)?|steps|iters?)|(batches|steps|iters)|//|ceil")


def _counts_batches(source: Source, node: ast.AST, name: str) -> bool:
    """Whether the loop around a node counts batches by a name: `for i in range(n_batches)`."""
    for loop in source.outward(node):
        if isinstance(loop, ast.For) and ast.unparse(loop.target) == name:
            over = loop.iter
            counts = isinstance(over, ast.Call) and ast.unparse(over.func) in ("range", "trange") and len(over.args) < 3
            changed = any(
                isinstance(one, (ast.Assign, ast.AugAssign)) and name in map(ast.unparse, _bound(one))
                for one in ast.walk(loop)
            )
            return counts and not changed and bool(_NUMBER.search(ast.unparse(over.args[-1])))  # type: ignore[attr-defined]
    return False


def _bound(node: ast.Assign | ast.AugAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]
