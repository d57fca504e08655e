"""The index of the largest along contiguous last rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minigrad.kernels.calls import Calls
from minigrad.kernels.numba.jit import kernel

Array = np.ndarray


@kernel
def _rows(start, stop, x, y):
    for i in range(start, stop):
        row = x[i]
        best, where = row[0], 0
        for j in range(1, row.shape[0]):
            value = row[j]
            if value > best or (value != value and best == best):  # the first NaN wins, as in numpy
                best, where = value, j
        y[i] = where


def argmax(calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array], *, dim: int, keepdim: bool) -> bool:
    """Indices over the last dimension of ``(..., n)``; declines other dimensions and empty inputs."""
    x = inputs[0]
    if not x.ndim or dim != x.ndim - 1 or not x.size:
        return False
    rows = calls.rows(x)
    calls.over_rows(_rows, len(rows), x.size, rows, outputs[0].reshape(-1))
    return True
