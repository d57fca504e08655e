"""Layer norm and its derivative over contiguous last rows: one pass for each of mean, variance and result."""

from __future__ import annotations

import numpy as np

from minigrad.kernels.numba.jit import kernel
from minigrad.kernels.threads import PARTS, over_rows, parts

_ZERO, _ONE = np.float32(0), np.float32(1)


@kernel
def _forward(start, stop, x, weight, bias, eps, y, average, rstd):
    d = x.shape[1]
    n = np.float32(d)
    for row in range(start, stop):
        total = _ZERO
        for j in range(d):
            total += x[row, j]
        mean = total / n
        squares = _ZERO
        for j in range(d):
            centred = x[row, j] - mean
            squares += centred * centred
        scale = _ONE / np.sqrt(squares / n + eps)
        average[row] = mean
        rstd[row] = scale
        for j in range(d):
            y[row, j] = (x[row, j] - mean) * scale * weight[j] + bias[j]


@kernel
def _backward(start, stop, bounds, g, x, weight, average, rstd, dx, dweight, dbias):
    d = x.shape[1]
    n = np.float32(d)
    for part in range(start, stop):
        for row in range(bounds[part], bounds[part + 1]):
            mean = average[row]
            scale = rstd[row]
            s = _ZERO
            sn = _ZERO
            for j in range(d):
                scaled = g[row, j] * weight[j]
                s += scaled
                sn += scaled * ((x[row, j] - mean) * scale)
            s /= n
            sn /= n
            for j in range(d):
                normal = (x[row, j] - mean) * scale
                dx[row, j] = scale * (g[row, j] * weight[j] - s - normal * sn)
                dweight[part, j] += g[row, j] * normal
                dbias[part, j] += g[row, j]


def layer_norm(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray, *, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """(y, mean, 1/std) of float32 ``(..., d)``; mean and 1/std are ``(..., 1)``."""
    if not x.size:
        return None
    rows = np.ascontiguousarray(x).reshape(-1, x.shape[-1])
    y = np.empty_like(rows)
    average, rstd = np.empty(len(rows), np.float32), np.empty(len(rows), np.float32)
    over_rows(
        _forward, len(rows), rows.size, rows, np.ascontiguousarray(weight), np.ascontiguousarray(bias), np.float32(eps),
        y, average, rstd,
    )  # fmt: skip
    stats = (*x.shape[:-1], 1)
    return y.reshape(x.shape), average.reshape(stats), rstd.reshape(stats)


def layer_norm_grad(
    g: np.ndarray, x: np.ndarray, weight: np.ndarray, average: np.ndarray, rstd: np.ndarray, *, eps: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """(dx, dweight, dbias); sums over rows in `PARTS` fixed ranges."""
    if not x.size:
        return None
    d = x.shape[-1]
    rows = np.ascontiguousarray(x).reshape(-1, d)
    dx = np.empty_like(rows)
    dweight, dbias = np.zeros((PARTS, d), np.float32), np.zeros((PARTS, d), np.float32)
    over_rows(
        _backward, PARTS, rows.size, parts(len(rows)), np.ascontiguousarray(g).reshape(-1, d), rows,
        np.ascontiguousarray(weight), average.reshape(-1), rstd.reshape(-1), dx, dweight, dbias,
    )  # fmt: skip
    return dx.reshape(x.shape), dweight.sum(axis=0), dbias.sum(axis=0)
