"""Threads that work on one row together, and how they put their values together: a warp, or a block of warps.

Every thread of the team gets the result, which does not depend on the order in which they run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minigrad.kernels.cuda.expressions import maximum
from minigrad.kernels.cuda.language import cuda, device, float32

WARP = 32
ALL = 0xFFFFFFFF


@device
def plus(a, b):
    return a + b


@device
def times(a, b):
    return a * b


def reducer(combine: Any, identity: Any, threads: int) -> Callable[..., Any]:
    """A device function (value, shared) -> the values of `threads` neighbouring threads, combined.

    shared: an array of 32 elements, ready to be used again afterwards; None for a warp.
    """

    @device
    def over_warp(value, shared):
        for step in (16, 8, 4, 2, 1):
            value = combine(value, cuda.shfl_xor_sync(ALL, value, step))
        return value

    if threads == WARP:
        return over_warp
    warps = threads // WARP

    @device
    def over_block(value, shared):
        value = over_warp(value, shared)
        lane = cuda.threadIdx.x & 31
        if lane == 0:
            shared[cuda.threadIdx.x >> 5] = value
        cuda.syncthreads()
        value = shared[lane] if lane < warps else identity
        cuda.syncthreads()
        return over_warp(value, shared)

    return over_block


def sums(threads: int) -> Callable[..., Any]:
    """A `reducer` of float32 sums."""
    return reducer(plus, float32(0), threads)


def maxima(threads: int) -> Callable[..., Any]:
    """A `reducer` of the largest float32; NaN wins."""
    return reducer(maximum, float32("-inf"), threads)
