"""Comparisons of integers with each other or with one, for plans: masks of padding, and of what is not decoded yet.

numpy computes them as fast, but a plan would leave its machine code for them: 10 us in a decoding step of 40.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad.kernels.calls import Calls
from minigrad.kernels.numba.jit import inline, kernel

Array = np.ndarray
_BELOW, _SAME, _ABOVE = 1, 2, 4  # how one number lies to another; a comparison holds for some of these
COMPARISONS = {
    "lt": _BELOW, "le": _BELOW | _SAME, "eq": _SAME, "ne": _BELOW | _ABOVE, "gt": _ABOVE, "ge": _SAME | _ABOVE
}  # fmt: skip
_NS = 0.5  # nanoseconds of one thread for an element, about


@inline
def _holds(how, x, y):
    return how & (_BELOW if x < y else _SAME if x == y else _ABOVE) != 0


@kernel
def _with_one(start, stop, how, a, b, out):
    """Elements `start` to `stop` of `a` with the only one of `b`."""
    a, out, number = a[start:stop], out[start:stop], b[0]
    for i in range(out.shape[0]):
        out[i] = _holds(how, a[i], number)


@kernel
def _with_each(start, stop, how, a, b, out):
    """Elements `start` to `stop` of `a` with those of `b`."""
    a, b, out = a[start:stop], b[start:stop], out[start:stop]
    for i in range(out.shape[0]):
        out[i] = _holds(how, a[i], b[i])


def comparison(calls: Calls, name: str, a: Array, b: Array, out: Array) -> bool:
    """Add out = a `name` b for int64, b of the same shape or one number; False for all else, which numpy does."""
    if a.dtype != np.int64 or b.dtype != np.int64 or not a.size or a.shape != out.shape:
        return False
    if not (a.flags.c_contiguous and b.flags.c_contiguous and out.flags.c_contiguous):
        return False
    if b.size != 1 and b.shape != a.shape:
        return False
    compare = _with_one if b.size == 1 else _with_each
    calls.over_rows(compare, a.size, _NS * a.size, COMPARISONS[name], a.reshape(-1), b.reshape(-1), out.reshape(-1))
    return True


def _binder(name: str) -> Callable[..., bool]:
    def bind(calls: Calls, inputs: Any, outputs: Any) -> bool:
        return comparison(calls, name, *inputs, *outputs)

    return bind


lt, le, eq, ne, gt, ge = map(_binder, COMPARISONS)
