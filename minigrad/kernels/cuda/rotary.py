"""Rotary positions, forward and backward: rows of heads are read and written where they lie, in one launch.

A thread turns one pair of a row's elements, or, where all rows are made of aligned pieces of 16 bytes, four of them
side by side: their place is found by three divisions, which would else take about as long as the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minigrad.kernels.cuda.heads import as_four, four_shape, has_rows, in_vectors, row_strides, rows_of_heads
from minigrad.kernels.cuda.intrinsics import load4, store4
from minigrad.kernels.cuda.language import Kernel, cuda, device, kernel
from minigrad.kernels.cuda.layout import LARGEST, divisor, quotient
from minigrad.kernels.cuda.scores import Rows, base_of
from minigrad.kernels.cuda.tiles import DTYPES, NARROW, POINTER, WIDEN

THREADS = 256
PAIRS = 4  # of a thread, where they can be read at once
_SIZE = "int32, int32, int32"  # a size and what divides by it (`layout.divisor`)


@device
def _place(i, pieces, p_magic, p_shift, length, t_magic, t_shift, heads, h_magic, h_shift, x_at, y_at):
    """Of thread i: its piece of a row, the row's position, and where the row begins in x and in y."""
    row = quotient(i, p_magic, p_shift)
    above = quotient(row, t_magic, t_shift)
    batch = quotient(above, h_magic, h_shift)
    t, head = row - above * length, above - batch * heads
    return i - row * pieces, t, base_of(x_at, batch, head) + t * x_at.row, base_of(y_at, batch, head) + t * y_at.row


@kernel(
    f"float32*, float32*, float32*, float32*, int32, {_SIZE}, {_SIZE}, {_SIZE}, Rows, Rows, int32, float32",
    name="rope_vectors",
    threads=THREADS,
    registers=64,
)
def _rope_vectors(
    x, cos, sin, y, total, pieces, p_magic, p_shift, length, t_magic, t_shift, heads, h_magic, h_shift, x_at, y_at,
    interleaved, sign,
):  # fmt: skip
    """Four pairs a thread: the numbers of `pieces` a row."""
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < total:
        piece, t, at, to = _place(
            i, pieces, p_magic, p_shift, length, t_magic, t_shift, heads, h_magic, h_shift, x_at, y_at
        )
        p, half = PAIRS * piece, PAIRS * pieces
        c0, c1, c2, c3 = load4(cos, t * half + p)
        s0, s1, s2, s3 = load4(sin, t * half + p)
        s0, s1, s2, s3 = sign * s0, sign * s1, sign * s2, sign * s3
        if interleaved != 0:
            a0, b0, a1, b1 = load4(x, at + 2 * p)
            a2, b2, a3, b3 = load4(x, at + 2 * p + 4)
        else:
            a0, a1, a2, a3 = load4(x, at + p)
            b0, b1, b2, b3 = load4(x, at + half + p)
        e0, e1, e2, e3 = a0 * c0 - b0 * s0, a1 * c1 - b1 * s1, a2 * c2 - b2 * s2, a3 * c3 - b3 * s3
        f0, f1, f2, f3 = a0 * s0 + b0 * c0, a1 * s1 + b1 * c1, a2 * s2 + b2 * c2, a3 * s3 + b3 * c3
        if interleaved != 0:
            store4(y, to + 2 * p, e0, f0, e1, f1)
            store4(y, to + 2 * p + 4, e2, f2, e3, f3)
        else:
            store4(y, to + p, e0, e1, e2, e3)
            store4(y, to + half + p, f0, f1, f2, f3)


def _make(dtype: str) -> Kernel:
    pointer, widen, narrow = POINTER[dtype], WIDEN[dtype], NARROW[dtype]

    @kernel(
        f"{pointer}, {pointer}, {pointer}, {pointer}, int32, {_SIZE}, {_SIZE}, {_SIZE}, Rows, Rows, int32, float32",
        name=f"rope_{dtype}",
        threads=THREADS,
        registers=64,
    )
    def rope(
        x, cos, sin, y, total, half, p_magic, p_shift, length, t_magic, t_shift, heads, h_magic, h_shift, x_at, y_at,
        interleaved, sign,
    ):  # fmt: skip
        """A pair a thread."""
        i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if i < total:
            p, t, at, to = _place(
                i, half, p_magic, p_shift, length, t_magic, t_shift, heads, h_magic, h_shift, x_at, y_at
            )
            first, second = (2 * p, 2 * p + 1) if interleaved != 0 else (p, half + p)
            a, b = widen(x[at + first]), widen(x[at + second])
            c, s = widen(cos[t * half + p]), sign * widen(sin[t * half + p])
            y[to + first] = narrow(a * c - b * s)
            y[to + second] = narrow(a * s + b * c)

    return rope


_KERNELS = {dtype: _make(dtype) for dtype in DTYPES}


def rope(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, interleaved: bool, back: bool) -> bool:
    """y, as x; copies only what has no contiguous rows. Declines more than 32 bits count."""
    x, *tables = inputs
    (y,) = outputs
    if not y.size:
        return True
    rows = rows_of_heads(calls, x)
    target = as_four(calls, y) if has_rows(y) else calls.scratch(four_shape(y.shape), y.dtype)
    if max(rows.extent, target.extent) // x.itemsize > LARGEST - THREADS:
        return False
    arrays = [rows, *map(calls.contiguous, tables), target]
    _, heads, length, d = rows.shape
    aligned = all(array.pointer % 16 == 0 for array in arrays)
    vectors = aligned and x.dtype.name == "float32" and d % (2 * PAIRS) == 0 and in_vectors(rows, target)
    pieces = d // 2 // PAIRS if vectors else d // 2
    total = rows.size // d * pieces
    calls.launch(
        _rope_vectors if vectors else _KERNELS[x.dtype.name], -(-total // THREADS), THREADS, *arrays, total,
        *divisor(pieces), *divisor(length), *divisor(heads), Rows(*row_strides(rows)), Rows(*row_strides(target)),
        interleaved, -1.0 if back else 1.0,
    )  # fmt: skip
    if not has_rows(y):
        calls.copy(y, target.reshape(y.shape))
    return True
