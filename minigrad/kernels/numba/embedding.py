"""Embedding look-up, and its gradient without races: each thread owns rows of the table and adds what belongs there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minigrad.kernels.calls import Calls
from minigrad.kernels.numba.jit import kernel
from minigrad.ops.embedding import check_rows

Array = np.ndarray
_ZERO = np.float32(0)


@kernel
def _forward(start, stop, weight, ids, out):
    for i in range(start, stop):
        row = ids[i]
        for j in range(weight.shape[1]):
            out[i, j] = weight[row, j]


@kernel
def _backward(start, stop, g, ids, padding, table):
    for row in range(start, stop):
        for j in range(table.shape[1]):
            table[row, j] = _ZERO
    for i in range(len(ids)):  # in the order of positions: the same sum for any number of threads
        row = ids[i]
        if start <= row < stop and row != padding:
            for j in range(table.shape[1]):
                table[row, j] += g[i, j]


def embedding(calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array], *, padding_idx: int | None) -> bool:
    """Rows of the table; declines empty ids."""
    weight, ids = inputs
    if not ids.size or not weight.size:
        return False
    flat = calls.contiguous(ids).reshape(-1)
    table = calls.contiguous(weight)
    calls.add(check_rows, flat, len(table))
    calls.over_rows(_forward, len(flat), 0.2 * outputs[0].size, table, flat, outputs[0].reshape(len(flat), -1))
    return True


def embedding_grad(
    calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array], *, shape: tuple[int, int], padding_idx: int | None
) -> bool:
    """The table's gradient; declines empty ids."""
    g, ids = inputs
    if not g.size:
        return False
    flat, rows = calls.contiguous(ids).reshape(-1), calls.rows(g)
    padding = np.int64(-1 if padding_idx is None else padding_idx)
    calls.over_rows(_backward, shape[0], 0.3 * (outputs[0].size + g.size), rows, flat, padding, outputs[0])
    return True
