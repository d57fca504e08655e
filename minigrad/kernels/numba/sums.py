"""Sums over leading dimensions (a bias's gradient) or all (a norm): fixed parts of the rows, added in order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minigrad.kernels.calls import Calls
from minigrad.kernels.numba.jit import kernel
from minigrad.kernels.numba.layer_norm import add_up
from minigrad.kernels.threads import PARTS, parts

Array = np.ndarray
_ZERO = np.float32(0)


@kernel
def _columns(start, stop, bounds, x, partial):
    for part in range(start, stop):
        for j in range(x.shape[1]):
            partial[part, j] = _ZERO
        for row in range(bounds[part], bounds[part + 1]):
            for j in range(x.shape[1]):
                partial[part, j] += x[row, j]


@kernel
def _all(start, stop, bounds, x, partial):
    for part in range(start, stop):
        numbers = x[bounds[part] : bounds[part + 1]]
        total = _ZERO
        for j in range(numbers.shape[0]):
            total += numbers[j]
        partial[part, 0] = total


def sum(calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array], *, dims: Sequence[int], keepdim: bool) -> bool:
    """The sum over the first dimensions, or all; declines any other."""
    x = inputs[0]
    if not x.size or not dims or tuple(dims) != tuple(range(len(dims))):
        return False
    x = calls.contiguous(x)
    if len(dims) == x.ndim:
        partial = np.empty((PARTS, 1), np.float32)
        calls.over_rows(_all, PARTS, 0.1 * x.size, parts(x.size), x.reshape(-1), partial)
        calls.over_rows(add_up, 1, 1, partial, outputs[0].reshape(1))
        return True
    columns = int(np.prod(x.shape[len(dims) :]))
    rows = x.reshape(-1, columns)
    partial = np.empty((PARTS, columns), np.float32)
    calls.over_rows(_columns, PARTS, 0.3 * x.size, parts(len(rows)), rows, partial)
    calls.over_rows(add_up, columns, columns, partial, outputs[0].reshape(-1))
    return True
