"""Dropout, with a residual added or without: a thread draws one block of Philox and uses its four words at once.

Forward and backward are the same kernel: nothing is stored but the key of the draw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad.kernels.cuda.intrinsics import load4, store4
from minigrad.kernels.cuda.language import Kernel, cuda, float32, int32, kernel, uint64
from minigrad.kernels.cuda.layout import LARGEST
from minigrad.kernels.cuda.random import philox
from minigrad.kernels.cuda.tiles import DTYPES, NARROW, POINTER, WIDEN, ZERO

THREADS = 256
WORDS = 4  # of a block of Philox, for as many elements
MOST = LARGEST - WORDS * THREADS  # elements that are counted in 32 bits
_UNUSED = uint64(8)  # bits of a word: a number has 24


def threshold(p: float) -> tuple[int, float]:
    """(what a word's upper 24 bits have to reach for the element to be kept, what it is multiplied by then)."""
    return math.ceil(float(np.float32(p)) * 2**24), 1.0 / (1.0 - p)


def _make(dtype: str, added: bool) -> Kernel:
    """added: the second pointer is a residual; else nothing reads it."""
    pointer, widen, narrow, vectors = POINTER[dtype], WIDEN[dtype], NARROW[dtype], dtype == "float32"

    @kernel(
        f"{pointer}, {pointer}, int64*, {pointer}, int32, int32, int32, float32",
        name=f"dropout_{dtype}" + ("_added" if added else ""),
        threads=THREADS,
        registers=64,
    )
    def dropout(x, residual, key, y, n, aligned, drops, keeps):
        block = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        first = WORDS * block
        if first < n:
            words = philox(uint64(key[0]), uint64(key[1] + block))
            factor = cuda.local.array(WORDS, float32)
            for q in range(WORDS):
                factor[q] = keeps if int32(words[q] >> _UNUSED) >= drops else ZERO
            if vectors and aligned != 0 and first + WORDS <= n:
                a, b, c, d = load4(x, first)
                a, b, c, d = a * factor[0], b * factor[1], c * factor[2], d * factor[3]
                if added:
                    e, f, g, h = load4(residual, first)
                    a, b, c, d = a + e, b + f, c + g, d + h
                store4(y, first, a, b, c, d)
            else:
                for q in range(WORDS):
                    i = first + q
                    if i < n:
                        value = widen(x[i]) * factor[q]
                        y[i] = narrow(value + widen(residual[i]) if added else value)

    return dropout


_KERNELS = {(dtype, added): _make(dtype, added) for dtype in DTYPES for added in (False, True)}


def dropout(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, p: float) -> bool:
    """y, in the order of x's elements; declines more than 32 bits count."""
    x, key, *rest = inputs
    (y,) = outputs
    if y.size > MOST:
        return False
    x, *residual = (calls.contiguous(array) for array in (x, *rest))
    aligned = all(array.pointer % 16 == 0 for array in (x, *residual, y))
    calls.launch(
        _KERNELS[x.dtype.name, bool(residual)], -(-y.size // (WORDS * THREADS)), THREADS,
        x, *(residual or [x]), calls.contiguous(key), y, y.size, aligned, *threshold(p),
    )  # fmt: skip
    return True
