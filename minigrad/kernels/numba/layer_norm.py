"""Layer norm and its derivative over contiguous last rows: one pass for each of mean, variance and result."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minigrad.kernels.calls import Calls
from minigrad.kernels.numba.jit import kernel
from minigrad.kernels.numba.math import inverse_root
from minigrad.kernels.threads import BLOCK, PARTS, parts

Array = np.ndarray
_ZERO = np.float32(0)


@kernel
def _forward(start, stop, x, weight, bias, eps, y, average, rstd):
    d = x.shape[1]
    for row in range(start, stop):
        total = np.float64(0)
        for begin in range(0, d, BLOCK):
            block = x[row, begin : begin + BLOCK]
            some = _ZERO
            for j in range(block.shape[0]):
                some += block[j]
            total += some
        mean = np.float32(total / d)
        squares = np.float64(0)
        for begin in range(0, d, BLOCK):
            block = x[row, begin : begin + BLOCK]
            some = _ZERO
            for j in range(block.shape[0]):
                centred = block[j] - mean
                some += centred * centred
            squares += some
        scale = inverse_root(np.float32(squares / d) + eps)
        average[row] = mean
        rstd[row] = scale
        for j in range(d):
            y[row, j] = (x[row, j] - mean) * scale * weight[j] + bias[j]


@kernel
def _backward(start, stop, bounds, g, x, weight, average, rstd, dx, dweight, dbias):
    """One result a loop: before a loop with three the compiler compares addresses 18 times a row, to see whether arrays
    overlap, and then takes one vector a turn; before these, two to four times, and it takes up to four."""
    d = x.shape[1]
    n = np.float32(d)
    for part in range(start, stop):
        of_weight, of_bias = dweight[part], dbias[part]
        of_weight[:] = _ZERO
        of_bias[:] = _ZERO
        for row in range(bounds[part], bounds[part + 1]):
            mean = average[row]
            scale = rstd[row]
            up, given, down = g[row], x[row], dx[row]
            s = _ZERO
            sn = _ZERO
            for j in range(d):
                scaled = up[j] * weight[j]
                s += scaled
                sn += scaled * ((given[j] - mean) * scale)
            s /= n
            sn /= n
            for j in range(d):
                down[j] = scale * (up[j] * weight[j] - s - (given[j] - mean) * scale * sn)
            for j in range(d):
                of_weight[j] += up[j] * ((given[j] - mean) * scale)
            for j in range(d):
                of_bias[j] += up[j]


@kernel
def add_up(start, stop, partial, total):
    """The sum of `PARTS` partial sums, in order."""
    partial, total = partial[:, start:stop], total[start:stop]
    for j in range(total.shape[0]):
        total[j] = partial[0, j]
    for part in range(1, partial.shape[0]):
        for j in range(total.shape[0]):
            total[j] += partial[part, j]


def layer_norm(calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array], *, eps: float) -> bool:
    """(y, mean, 1/std) of ``(..., d)``; mean and 1/std are ``(..., 1)``."""
    if not inputs[0].size:
        return False
    x, weight, bias = calls.rows(inputs[0]), calls.contiguous(inputs[1]), calls.contiguous(inputs[2])
    y, average, rstd = outputs[0].reshape(x.shape), outputs[1].reshape(-1), outputs[2].reshape(-1)
    calls.over_rows(_forward, len(x), x.size, x, weight, bias, np.float32(eps), y, average, rstd)
    return True


def layer_norm_grad(calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array], *, eps: float) -> bool:
    """(dx, dweight, dbias); sums over rows in `PARTS` fixed ranges, added in order."""
    if not inputs[1].size:
        return False
    g, x, weight = calls.rows(inputs[0]), calls.rows(inputs[1]), calls.contiguous(inputs[2])
    average, rstd = calls.contiguous(inputs[3]).reshape(-1), calls.contiguous(inputs[4]).reshape(-1)
    d = x.shape[1]
    dweight, dbias = np.empty((PARTS, d), np.float32), np.empty((PARTS, d), np.float32)
    calls.over_rows(
        _backward,
        PARTS,
        x.size,
        parts(len(x)),
        g,
        x,
        weight,
        average,
        rstd,
        outputs[0].reshape(x.shape),
        dweight,
        dbias,
    )
    calls.over_rows(add_up, d, d, dweight, outputs[1])
    calls.over_rows(add_up, d, d, dbias, outputs[2])
    return True
