"""Random numbers on the device: the words of Philox4x32-10 that `minigrad.random` defines, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad.kernels.cuda import elementwise
from minigrad.kernels.cuda.language import cuda, device, float32, kernel, uint64

THREADS = 256
_M0, _M1 = uint64(0xD2511F53), uint64(0xCD9E8D57)
_W0, _W1 = uint64(0x9E3779B9), uint64(0xBB67AE85)
_LOW, _HALF_WORD, _DROPPED = uint64(0xFFFFFFFF), uint64(32), uint64(8)
_UNIT = float32(2**-24)


@device
def philox(seed, counter):
    """The four words of a block, each in the low half of a uint64."""
    k0, k1 = seed & _LOW, seed >> _HALF_WORD
    c0, c1, c2, c3 = counter & _LOW, counter >> _HALF_WORD, counter ^ counter, counter ^ counter
    for _ in range(10):
        p0, p1 = c0 * _M0, c2 * _M1
        c0, c1, c2, c3 = (p1 >> _HALF_WORD) ^ c1 ^ k0, p1 & _LOW, (p0 >> _HALF_WORD) ^ c3 ^ k1, p0 & _LOW
        k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
    return c0, c1, c2, c3


@kernel("int64*, float32*, int32", name="random_uniform", threads=THREADS)
def _uniform(key, y, n):
    """A thread a Philox block: four numbers. key: (seed, offset)."""
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if 4 * i < n:
        c0, c1, c2, c3 = philox(uint64(key[0]), uint64(key[1] + i))
        y[4 * i] = float32(c0 >> _DROPPED) * _UNIT
        if 4 * i + 1 < n:
            y[4 * i + 1] = float32(c1 >> _DROPPED) * _UNIT
        if 4 * i + 2 < n:
            y[4 * i + 2] = float32(c2 >> _DROPPED) * _UNIT
        if 4 * i + 3 < n:
            y[4 * i + 3] = float32(c3 >> _DROPPED) * _UNIT


def random_uniform(
    calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, shape: Sequence[int], dtype: np.dtype
) -> bool:
    """Uniform in [0, 1); another dtype than float32 is converted from it, as on the host."""
    (key,), (y,) = inputs, outputs
    values = y if y.dtype.name == "float32" else calls.scratch(y.shape, np.dtype("float32"))
    calls.launch(_uniform, -(-y.size // (4 * THREADS)), THREADS, calls.contiguous(key), values, y.size)
    if values is not y:
        elementwise.cast(calls, [values], [y], dtype=y.dtype)
    return True
