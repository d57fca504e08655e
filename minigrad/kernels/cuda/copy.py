"""Copies between arrays of any strides, by one kernel for each size of element."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad.kernels.cuda.language import Kernel, cuda, kernel
from minigrad.kernels.cuda.memory import DeviceArray

THREADS = 256
DIMS = 5  # after neighbouring dimensions have been joined


def _make(word: str) -> Kernel:
    @kernel(", ".join([f"{word}*", f"{word}*", *["int32"] * (3 * DIMS)]), name=f"copy_{word}", threads=THREADS)
    def copy(target, source, n0, n1, n2, n3, n4, t0, t1, t2, t3, t4, s0, s1, s2, s3, s4):  # type: ignore[no-untyped-def]
        i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if i < n0 * n1 * n2 * n3 * n4:
            a = i % n4
            i //= n4
            b = i % n3
            i //= n3
            c = i % n2
            i //= n2
            d = i % n1
            e = i // n1
            at = e * t0 + d * t1 + c * t2 + b * t3 + a * t4
            target[at] = source[e * s0 + d * s1 + c * s2 + b * s3 + a * s4]

    return copy


KERNELS_BY_SIZE = {1: _make("uint8"), 2: _make("uint16"), 4: _make("uint32"), 8: _make("uint64")}
_WORDS = {size: np.dtype(f"uint{8 * size}") for size in KERNELS_BY_SIZE}


def copy(calls: Any, target: DeviceArray, source: DeviceArray) -> None:
    """Append launches that copy `source` to `target` (one shape, one size of element, any strides)."""
    size = target.itemsize
    for to, of in _pieces(target.view(_WORDS[size]), source.view(_WORDS[size])):
        dims = _joined(to.shape, to.strides, of.strides)
        dims = [(1, 0, 0)] * (DIMS - len(dims)) + dims
        numbers = (*[n for n, _, _ in dims], *[t // size for _, t, _ in dims], *[s // size for _, _, s in dims])
        calls.launch(KERNELS_BY_SIZE[size], -(-to.size // THREADS), THREADS, to, of, *numbers)


def _joined(shape: tuple[int, ...], first: tuple[int, ...], second: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """(size, stride, stride) of as few dimensions as describe both layouts."""
    dims: list[tuple[int, int, int]] = []
    for n, a, b in zip(shape, first, second, strict=True):
        if n == 1:
            continue
        if dims and dims[-1][1] == n * a and dims[-1][2] == n * b:
            dims[-1] = (dims[-1][0] * n, a, b)
        else:
            dims.append((n, a, b))
    return dims


def _pieces(target: DeviceArray, source: DeviceArray) -> list[tuple[DeviceArray, DeviceArray]]:
    """The pair in parts whose indices and offsets fit 32 bits and whose dimensions the kernel serves."""
    dims = _joined(target.shape, target.strides, source.strides)
    fits = max(target.extent, source.extent) // target.itemsize < 2**31 and target.size < 2**31 - THREADS
    if len(dims) <= DIMS and fits:
        return [(target, source)]
    cut = next(i for i, n in enumerate(target.shape) if n > 1)
    parts = []
    for i in range(target.shape[cut]):
        index = (slice(None),) * cut + (slice(i, i + 1),)
        parts += _pieces(target[index], source[index])
    return parts
