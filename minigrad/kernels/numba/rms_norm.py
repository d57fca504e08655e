"""RMS norm and its derivative over contiguous last rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minigrad.kernels.calls import Calls
from minigrad.kernels.numba.jit import kernel
from minigrad.kernels.numba.layer_norm import add_up
from minigrad.kernels.numba.math import inverse_root
from minigrad.kernels.threads import BLOCK, PARTS, parts

Array = np.ndarray
_ZERO = np.float32(0)


@kernel
def _forward(start, stop, x, weight, eps, y, rstd):
    d = x.shape[1]
    for row in range(start, stop):
        squares = np.float64(0)
        for begin in range(0, d, BLOCK):
            block = x[row, begin : begin + BLOCK]
            some = _ZERO
            for j in range(block.shape[0]):
                some += block[j] * block[j]
            squares += some
        scale = inverse_root(np.float32(squares / d) + eps)
        rstd[row] = scale
        for j in range(d):
            y[row, j] = x[row, j] * scale * weight[j]


@kernel
def _backward(start, stop, bounds, g, x, weight, rstd, dx, dweight):
    d = x.shape[1]
    for part in range(start, stop):
        for j in range(d):
            dweight[part, j] = _ZERO
        for row in range(bounds[part], bounds[part + 1]):
            scale = rstd[row]
            inner = _ZERO
            for j in range(d):
                inner += g[row, j] * weight[j] * x[row, j]
            inner *= scale / np.float32(d)
            for j in range(d):
                normal = x[row, j] * scale
                dx[row, j] = scale * (g[row, j] * weight[j] - normal * inner)
                dweight[part, j] += g[row, j] * normal


def rms_norm(calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array], *, eps: float) -> bool:
    """(y, 1/rms) of ``(..., d)``; 1/rms is ``(..., 1)``."""
    if not inputs[0].size:
        return False
    x, weight = calls.rows(inputs[0]), calls.contiguous(inputs[1])
    y, rstd = outputs[0].reshape(x.shape), outputs[1].reshape(-1)
    calls.over_rows(_forward, len(x), x.size, x, weight, np.float32(eps), y, rstd)
    return True


def rms_norm_grad(calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array], *, eps: float) -> bool:
    """(dx, dweight); the sum over rows in `PARTS` fixed ranges, added in order."""
    if not inputs[1].size:
        return False
    g, x, weight = calls.rows(inputs[0]), calls.rows(inputs[1]), calls.contiguous(inputs[2])
    rstd = calls.contiguous(inputs[3]).reshape(-1)
    d = x.shape[1]
    dx, dweight = outputs[0].reshape(x.shape), np.empty((PARTS, d), np.float32)
    calls.over_rows(_backward, PARTS, x.size, parts(len(x)), g, x, weight, rstd, dx, dweight)
    calls.over_rows(add_up, d, d, dweight, outputs[1])
    return True
