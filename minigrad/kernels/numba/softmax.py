"""Softmax and its derivative over contiguous last rows."""

from __future__ import annotations

import numpy as np

from minigrad.kernels.numba.jit import kernel
from minigrad.kernels.numba.math import as_float, exp
from minigrad.kernels.threads import over_rows

_LEAST, _SIGN, _MAGNITUDE = np.int32(-(2**31)), np.int32(31), np.int32(0x7FFFFFFF)
_ZERO, _ONE = np.float32(0), np.float32(1)


@kernel
def _forward(start, stop, x, bits, y):
    for row in range(start, stop):
        highest = _LEAST
        for j in range(x.shape[1]):  # floats in the order of integers: a maximum that vectorises and keeps NaN
            word = bits[row, j]
            highest = max(highest, word ^ ((word >> _SIGN) & _MAGNITUDE))
        peak = as_float(highest ^ ((highest >> _SIGN) & _MAGNITUDE))
        total = _ZERO
        for j in range(x.shape[1]):
            e = exp(x[row, j] - peak)
            y[row, j] = e
            total += e
        scale = _ONE / total
        for j in range(x.shape[1]):
            y[row, j] *= scale


@kernel
def _backward(start, stop, g, y, dx):
    for row in range(start, stop):
        inner = _ZERO
        for j in range(g.shape[1]):
            inner += g[row, j] * y[row, j]
        for j in range(g.shape[1]):
            dx[row, j] = y[row, j] * (g[row, j] - inner)


def softmax(x: np.ndarray, *, dim: int) -> np.ndarray | None:
    """softmax over the last dimension of float32 ``(..., n)``; declines other dimensions."""
    if dim != x.ndim - 1 or not x.size:
        return None
    rows = np.ascontiguousarray(x).reshape(-1, x.shape[-1])
    y = np.empty_like(rows)
    over_rows(_forward, len(rows), rows.size, rows, rows.view(np.int32), y)
    return y.reshape(x.shape)


def softmax_grad(g: np.ndarray, y: np.ndarray, *, dim: int) -> np.ndarray | None:
    """y (g - sum g y) over the last dimension; declines other dimensions and broadcast gradients."""
    if dim != y.ndim - 1 or not y.size or g.shape != y.shape:
        return None
    n = y.shape[-1]
    gradients, values = np.ascontiguousarray(g).reshape(-1, n), np.ascontiguousarray(y).reshape(-1, n)
    dx = np.empty_like(values)
    over_rows(_backward, len(values), values.size, gradients, values, dx)
    return dx.reshape(y.shape)
