"""Sums over leading dimensions (a bias's gradient) or all (a norm): fixed parts of the rows, added in order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minigrad.kernels.calls import Calls
from minigrad.kernels.numba.jit import kernel
from minigrad.kernels.threads import BLOCK, PARTS, parts

Array = np.ndarray
_ZERO = np.float32(0)
ROWS = 64  # added in float32 before their sums go to float64


@kernel
def _columns(start, stop, bounds, x, some, partial):
    for part in range(start, stop):
        block, total = some[part], partial[part]
        total[:] = np.float64(0)
        for begin in range(bounds[part], bounds[part + 1], ROWS):
            block[:] = _ZERO
            for row in range(begin, min(begin + ROWS, bounds[part + 1])):
                given = x[row]
                for j in range(block.shape[0]):
                    block[j] += given[j]
            for j in range(block.shape[0]):
                total[j] += block[j]


@kernel
def _add_up(start, stop, partial, total):
    """The sums of a few rows, in order, in float64."""
    partial, total = partial[:, start:stop], total[start:stop]
    for j in range(total.shape[0]):
        value = np.float64(0)
        for part in range(partial.shape[0]):
            value += partial[part, j]
        total[j] = np.float32(value)


@kernel
def _all(start, stop, bounds, x, partial):
    for part in range(start, stop):
        numbers = x[bounds[part] : bounds[part + 1]]
        total = np.float64(0)
        for begin in range(0, numbers.shape[0], BLOCK):
            block = numbers[begin : begin + BLOCK]
            some = _ZERO
            for j in range(block.shape[0]):
                some += block[j]
            total += some
        partial[part] = total


@kernel
def _total(start, stop, partial, total):
    """The sum of `PARTS` partial sums, in order."""
    value = np.float64(0)
    for part in range(partial.shape[0]):
        value += partial[part]
    total[0] = np.float32(value)


def sum(calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array], *, dims: Sequence[int], keepdim: bool) -> bool:
    """The sum over the first dimensions, or all; declines any other."""
    x = inputs[0]
    if not x.size or not dims or tuple(dims) != tuple(range(len(dims))):
        return False
    x = calls.contiguous(x)
    if len(dims) == x.ndim:
        total = np.empty(PARTS, np.float64)
        calls.over_rows(_all, PARTS, 0.1 * x.size, parts(x.size), x.reshape(-1), total)
        calls.over_rows(_total, 1, 1, total, outputs[0].reshape(1))
        return True
    columns = int(np.prod(x.shape[len(dims) :]))
    rows = x.reshape(-1, columns)
    partial = rows
    if len(rows) > PARTS:
        some, partial = np.empty((PARTS, columns), np.float32), np.empty((PARTS, columns), np.float64)
        calls.over_rows(_columns, PARTS, 0.3 * x.size, parts(len(rows)), rows, some, partial)
    calls.over_rows(_add_up, columns, 0.06 * partial.size, partial, outputs[0].reshape(-1))
    return True
