"""Softmax and its derivative over contiguous last rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minigrad.kernels.calls import Calls
from minigrad.kernels.numba.jit import kernel
from minigrad.kernels.numba.math import exp, largest

Array = np.ndarray
_ZERO, _ONE = np.float32(0), np.float32(1)


@kernel
def _forward(start, stop, x, bits, y):
    for row in range(start, stop):
        peak = largest(bits, row)
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


def softmax(calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array], *, dim: int) -> bool:
    """softmax over the last dimension of ``(..., n)``; declines other dimensions."""
    if dim != inputs[0].ndim - 1 or not inputs[0].size:
        return False
    x, y = calls.rows(inputs[0]), outputs[0].reshape(-1, inputs[0].shape[-1])
    calls.over_rows(_forward, len(x), x.size, x, x.view(np.int32), y)
    return True


def softmax_grad(calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array], *, dim: int) -> bool:
    """y (g - sum g y) over the last dimension; declines other dimensions and broadcast gradients."""
    g, y = inputs
    if dim != y.ndim - 1 or not y.size or g.shape != y.shape:
        return False
    calls.over_rows(
        _backward, y.size // y.shape[-1], y.size, calls.rows(g), calls.rows(y), outputs[0].reshape(-1, y.shape[-1])
    )
    return True
