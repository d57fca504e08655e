"""Where the rows of a batch first see each other: two runs that share their first row, operation by operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from conformance.adapters.whole.record import Op, Record, record
from conformance.protocol import Arrays

if TYPE_CHECKING:
    from conformance.adapters.whole.model import WholeModel

_CLOSE = 1e-6


def mixing_place(subject: WholeModel, one: Arrays, other: Arrays) -> str:
    """file:line of the first operation that gives the first row something else though it reads the same of it; "" where
    none is found. one, other: inputs with the same first row."""
    rows, others = (len(next(iter(inputs.values()))) for inputs in (one, other))
    with subject.mode(False), torch.no_grad():
        first = record(subject.module, lambda: subject.run(one))
        second = record(subject.module, lambda: subject.run(other))
    for op, again in zip(first.ops, second.ops, strict=False):
        if op.name != again.name:
            return ""
        if _mixes(first, op, again, rows, others):
            return str(op.place or "")
    return ""


def _mixes(run: Record, op: Op, again: Op, rows: int, others: int) -> bool:
    computed = [(a.data, b.data) for a, b in zip(op.inputs, again.inputs, strict=False) if run.computed(a)]
    if not computed or not all(_alike(a, b, rows, others) for a, b in computed):
        return False
    return any(not _alike(a.data, b.data, rows, others) for a, b in zip(op.outputs, again.outputs, strict=False))


def _alike(one: Tensor, other: Tensor, rows: int, others: int) -> bool:
    """Do both have the same first row, or are they the same where they have no rows?"""
    if one.ndim and other.ndim and len(one) % rows == 0 and len(other) % others == 0 and one.numel() and other.numel():
        one, other = one.reshape(rows, -1)[0], other.reshape(others, -1)[0]
    if one.shape != other.shape:
        return False
    if one.is_complex():
        one, other = torch.view_as_real(one), torch.view_as_real(other)
    one, other = one.double(), other.double()
    largest = float(one.abs().nan_to_num(posinf=0.0).max()) if one.numel() else 0.0
    return bool(torch.isclose(one, other, rtol=0.0, atol=_CLOSE * max(largest, 1e-9), equal_nan=True).all())
