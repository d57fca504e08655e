"""Places of a grid, told by a table of its rows and a table of its columns: has each place a sum of its own?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance.adapters.whole.findings import Finding, once
from conformance.adapters.whole.flow import base_name, moves
from conformance.adapters.whole.record import Op, Record, Value


@dataclass(frozen=True)
class Grid:
    """Vectors of places that are a sum of a table for each axis. rows: the sum, of the places of one sample. op: the
    last addition."""

    tables: list[Value]
    rows: Tensor
    op: Op


def grids(record: Record) -> list[Grid]:
    """The sums of tables that are added to a computed sequence of as many places as the tables have pairs of rows."""
    found = []
    for op in record.ops:
        whole = op.outputs[0] if base_name(op) == "add" else None
        if whole is None or len(whole.shape) != 3:
            continue
        if any(base_name(one) == "add" and _is_place(record, one) for one in record.consumers(whole)):
            continue  # a sum that goes on
        added = _added(record, whole)
        tables = [table for value in added for table in _tables(record, value)]
        if len(tables) > 1 and math.prod(len(table.data) for table in tables) == whole.shape[1]:
            total = torch.zeros(whole.shape, dtype=torch.float64)
            for value in added:
                total += value.data
            found.append(Grid(tables, total[0], op))
    return found


def grid_findings(record: Record) -> list[Finding]:
    """Grids whose sum is the same at several of their places; one finding for each line."""
    return once(finding for grid in grids(record) for finding in _shared(grid))


def _shared(grid: Grid) -> Iterator[Finding]:
    rows = grid.rows
    close = torch.cdist(rows, rows, p=torch.inf) <= 1e-6 * float(rows.abs().max())
    if int(close.sum(-1).min()) < 2 or bool(close.all()):
        return
    names = " and ".join(table.name for table in grid.tables)
    yield Finding(
        "positions-are-told-apart",
        f"Each place of a grid shares the sum of {names} with {int(close[0].sum()) - 1} others of {len(rows)}.",
        grid.op.place,
        f"{len(rows)} different vectors",
        f"{len(torch.unique(close.int(), dim=0))} different vectors",
        "Look the row up by place // width, and the column by place % width.",
    )


def _is_place(record: Record, op: Op) -> bool:
    return any(not record.computed(value) and len(value.shape) > 1 for value in op.inputs)


def _added(record: Record, whole: Value) -> list[Value]:
    """What does not depend on the input, of the sum that makes a value."""
    if not record.computed(whole):
        return [whole]
    op = record.producer(whole)
    if op is None or base_name(op) != "add" or len(op.inputs) != 2 or not _is_place(record, op):
        return []
    return [value for one in op.inputs for value in _added(record, one)]


def _tables(record: Record, value: Value) -> list[Value]:
    """The learned tables that a value is a sum of, each moved or looked up at most; none where it is made otherwise."""
    op = record.producer(value)
    if op is None:
        return [value] if value.kind == "parameter" and len(value.shape) == 2 else []
    if base_name(op) == "add":
        return [table for one in op.inputs for table in _tables(record, one)]
    return _tables(record, op.inputs[0]) if op.inputs and (op.name == "embedding" or moves(op)) else []
