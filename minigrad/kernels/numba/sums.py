"""Sums over leading dimensions (a bias's gradient) or all (a norm): fixed parts of the rows, added in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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
        partial[part] = total


def sum(calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array], *, dims: Sequence[int], keepdim: bool) -> bool:
    """The sum over the first dimensions, or all; declines any other."""
    x = inputs[0]
    if not x.size or not dims or tuple(dims) != tuple(range(len(dims))):
        return False
    x = calls.contiguous(x)
    if len(dims) == x.ndim:
        of_parts(calls, _all, x.size, 0.1 * x.size, [x.reshape(-1)], outputs[0])
        return True
    columns = int(np.prod(x.shape[len(dims) :]))
    rows = x.reshape(-1, columns)
    partial = rows
    if len(rows) > PARTS:
        partial = np.empty((PARTS, columns), np.float32)
        calls.over_rows(_columns, PARTS, 0.3 * x.size, parts(len(rows)), rows, partial)
    calls.over_rows(add_up, columns, 0.06 * partial.size, partial, outputs[0].reshape(-1))
    return True


def of_parts(
    calls: Calls, kernel: Callable[..., Any], size: int, work: float, arrays: Sequence[Array], output: Array
) -> None:
    """One number from `size` elements: `kernel(start, stop, bounds, *arrays, partial)` sums its ranges, then they are
    added in order."""
    partial = np.empty(PARTS, np.float32)
    calls.over_rows(kernel, PARTS, work, parts(size), *arrays, partial)
    calls.over_rows(add_up, 1, 1, partial.reshape(PARTS, 1), output.reshape(1))
