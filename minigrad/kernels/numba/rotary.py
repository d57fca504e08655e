"""Rotary positions, forward and backward: rows are read and written where they lie, in one pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minigrad.kernels.calls import Calls
from minigrad.kernels.numba.flash import in_order, rows_of_heads
from minigrad.kernels.numba.jit import kernel

Array = np.ndarray


@kernel
def _turn(start, stop, heads, length, half, x, x_at, cos, sin, sign, interleaved, y, y_at):
    """Rows are (batch, position, head): `*_at` are strides of batch, head and position in a flat array."""
    for row in range(start, stop):
        b, t, h = row // (length * heads), row // heads % length, row % heads
        of = x[b * x_at[0] + h * x_at[1] + t * x_at[2] :][: 2 * half]
        to = y[b * y_at[0] + h * y_at[1] + t * y_at[2] :][: 2 * half]
        c, s = cos[t * half :][:half], sin[t * half :][:half]
        if interleaved:
            for i in range(half):
                p, q = of[2 * i], of[2 * i + 1]
                to[2 * i] = p * c[i] - q * (sign * s[i])
                to[2 * i + 1] = p * (sign * s[i]) + q * c[i]
        else:
            of_q, to_q = of[half:], to[half:]
            for i in range(half):
                p, q = of[i], of_q[i]
                to[i] = p * c[i] - q * (sign * s[i])
                to_q[i] = p * (sign * s[i]) + q * c[i]


def rope(calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array], *, interleaved: bool, back: bool) -> bool:
    """Declines empty inputs and more than two leading dimensions."""
    x, cos, sin = inputs
    if not x.size or not 1 < x.ndim <= 4:
        return False
    length, d = x.shape[-2:]
    heads = x.shape[-3] if x.ndim > 2 else 1
    result, finish = in_order(outputs[0])
    tables = [calls.contiguous(table).reshape(-1) for table in (cos, sin)]
    calls.over_rows(
        _turn, x.size // d, x.size * 0.5, heads, length, d // 2, *rows_of_heads(calls, x), *tables,
        np.float32(-1 if back else 1), interleaved, *rows_of_heads(calls, result),
    )  # fmt: skip
    finish(calls)
    return True
