"""Writing rows into an array in place (a key/value cache takes a new entry without being copied)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad.kernels.calls import Calls
from minigrad.kernels.numba.jit import kernel
from minigrad.ops.index import ALL, SLOT

Array = np.ndarray


@kernel
def _write(start, stop, target, value, place):
    position = place[0]
    if position < -target.shape[1] or position >= target.shape[1]:
        raise IndexError("a position to be written is out of range")
    if position < 0:
        position += target.shape[1]
    for i in range(start, stop):
        row, source = target[i, position], value[i]
        for j in range(source.shape[0]):
            row[j] = source[j]


def put(calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array], *, index: tuple[Any, ...]) -> bool:
    """``target[:, ..., position] = value`` with one position, in place; declines everything else."""
    target, value, *places = inputs
    if outputs[0] is not target or not target.flags.c_contiguous or index.count(SLOT) != 1:
        return False
    at = index.index(SLOT)
    if any(item != ALL for item in index if item != SLOT) or places[0].dtype != np.int64 or places[0].size != 1:
        return False
    shape = target.shape[:at] + target.shape[at + 1 :]
    if places[0].ndim or (1,) * (len(shape) - value.ndim) + value.shape != shape or not value.size:
        return False
    outer = int(np.prod(target.shape[:at]))
    rows = target.reshape(outer, target.shape[at], -1)
    flat = calls.contiguous(value).reshape(outer, -1)
    calls.over_rows(_write, outer, value.size, rows, flat, places[0].reshape(1))
    return True
