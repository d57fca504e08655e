"""Products with matrices that are stored as bfloat16, or as int8 rows with scales, computed in float32.

A few rows at a time (decoding) are bound by reading the matrix: every thread reads its share of the stored bytes once,
in order. For more rows (a prompt) a part of the matrix is brought to float32 and multiplied as any other: that takes as
long as some rows of products, and needs memory for one part only, whatever the size of the model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minigrad.kernels.calls import Calls
from minigrad.kernels.numba import gemm
from minigrad.kernels.numba.jit import kernel
from minigrad.kernels.numba.math import as_float

Array = np.ndarray
_ZERO = np.float32(0)
_UPPER = np.int32(16)  # where the 16 bits of a bfloat16 stand in the float32
_FEW = 4  # rows that are multiplied by the stored bytes
_PART = 1 << 20  # numbers of the matrix that are brought to float32 at a time
_PER_NS = {"int8": 16, "bfloat16": 10}  # products in a nanosecond


@kernel
def int8_rows(start, stop, matrix, scales, x, y):
    """y[r, i] = scales[i] matrix[i] . x[r]."""
    for i in range(start, stop):
        row = matrix[i]
        for r in range(x.shape[0]):
            given = x[r]
            total = _ZERO
            for j in range(given.shape[0]):
                total += np.float32(row[j]) * given[j]
            y[r, i] = total * scales[i]


@kernel
def bfloat16_rows(start, stop, matrix, x, y):
    """y[r, i] = matrix[i] . x[r], of which `matrix` has the bits."""
    for i in range(start, stop):
        row = matrix[i]
        for r in range(x.shape[0]):
            given = x[r]
            total = _ZERO
            for j in range(given.shape[0]):
                total += as_float(np.int32(row[j]) << _UPPER) * given[j]
            y[r, i] = total


@kernel
def _from_int8(start, stop, matrix, scales, out):
    for i in range(start, stop):
        row, scale, to = matrix[i], scales[i], out[i]
        for j in range(to.shape[0]):
            to[j] = np.float32(row[j]) * scale


@kernel
def _from_bfloat16(start, stop, matrix, out):
    for i in range(start, stop):
        row, to = matrix[i], out[i]
        for j in range(to.shape[0]):
            to[j] = as_float(np.int32(row[j]) << _UPPER)


def stored_linear(calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array]) -> bool:
    """x W^T; declines other numbers than float32, and matrices whose rows are not in order."""
    (stored, x, *scales), (y,) = inputs, outputs
    if any(array.dtype != np.float32 for array in (x, *scales)) or not stored.flags.c_contiguous or not x.size:
        return False
    if not stored.size or any(not each.flags.c_contiguous for each in scales):
        return False
    by_rows, widen = (int8_rows, _from_int8) if scales else (bfloat16_rows, _from_bfloat16)
    matrix, per_ns = (stored if scales else stored.view(np.uint16)), _PER_NS[stored.dtype.name]
    if len(x) <= _FEW:
        calls.over_rows(by_rows, len(matrix), x.size * len(matrix) // per_ns, matrix, *scales, calls.contiguous(x), y)
        return True
    step = max(1, _PART // matrix.shape[1])
    for i in range(0, len(matrix), step):
        part = matrix[i : i + step]
        wide = calls.scratch(part.size, "stored").reshape(part.shape)
        calls.over_rows(widen, len(part), part.size // 4, part, *[each[i : i + step] for each in scales], wide)
        if not gemm.product(calls, x, wide.T, y[:, i : i + step]):
            calls.add(np.matmul, x, wide.T, y[:, i : i + step])
    return True
