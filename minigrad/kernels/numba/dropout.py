"""Dropout, with a residual added or without: random words are drawn where they are used, forward and backward."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from minigrad.kernels.calls import Calls
from minigrad.kernels.numba.jit import inline, kernel
from minigrad.kernels.numba.philox import AT_ONCE, draw

Array = np.ndarray
_ZERO, _ONE = np.float32(0), np.float32(1)
_UNUSED = np.uint32(8)  # bits of a word: a number has 24
WINDOW = 1024  # words at a time
_ELEMENT = 0.8  # nanoseconds, about


def threshold(p: float) -> tuple[int, np.float32]:
    """(what a word's upper 24 bits have to reach for the element to be kept, what it is multiplied by then)."""
    return math.ceil(float(np.float32(p)) * 2**24), np.float32(1.0 / (1.0 - p))


@inline
def factor(word, drops, keeps):
    """What dropout multiplies an element by."""
    return keeps if (word >> _UNUSED) >= np.uint32(drops) else _ZERO


@kernel
def _dropout(start, stop, x, residual, added, key, drops, keeps, y):
    """residual: of x's size if `added`, else anything of a size."""
    words = np.empty(WINDOW + 8 * AT_ONCE, np.uint32)
    for at in range(start, stop, WINDOW):
        count, block = min(WINDOW, stop - at), at // 4
        draw(words, key[0], key[1] + block, (at + count + 3) // 4 - block)
        drawn, given, made = words[at - 4 * block :][:count], x[at : at + count], y[at : at + count]
        if added:
            base = residual[at : at + count]
            for j in range(count):
                made[j] = base[j] + given[j] * factor(drawn[j], drops, keeps)
        else:
            for j in range(count):
                made[j] = given[j] * factor(drawn[j], drops, keeps)


def dropout(calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array], *, p: float) -> bool:
    """y, in the order of x's elements."""
    x, key, *residual = inputs
    if not x.size:
        return False
    flat = calls.contiguous(x).reshape(-1)
    base = calls.contiguous(residual[0]).reshape(-1) if residual else flat
    drops, keeps = threshold(p)
    made = outputs[0].reshape(-1)
    calls.over_rows(_dropout, x.size, x.size * _ELEMENT, flat, base, bool(residual), key, drops, keeps, made)
    return True
