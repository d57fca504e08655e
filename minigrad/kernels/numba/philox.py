"""Philox4x32-10 in compiled code: the words that `minigrad.random.philox` gives, for any window of a draw."""

from __future__ import annotations

import numpy as np

from minigrad.kernels.numba.jit import inline

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW, _SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)
AT_ONCE = 16  # blocks whose rounds run side by side


@inline
def draw(words, seed, counter, blocks):
    """The 4 * `blocks` words of the stream `seed` from the block `counter` on, a multiple of AT_ONCE blocks."""
    c0, c1 = np.empty(AT_ONCE, np.uint64), np.empty(AT_ONCE, np.uint64)
    c2, c3 = np.empty(AT_ONCE, np.uint64), np.empty(AT_ONCE, np.uint64)
    for start in range(0, blocks, AT_ONCE):
        for i in range(AT_ONCE):
            block = np.uint64(counter + start + i)
            c0[i], c1[i] = block & _LOW, block >> _SHIFT
            c2[i] = c3[i] = np.uint64(0)
        k0, k1 = np.uint64(seed) & _LOW, np.uint64(seed) >> _SHIFT
        for _ in range(10):
            for i in range(AT_ONCE):
                p0, p1 = c0[i] * _M0, c2[i] * _M1
                c0[i], c1[i] = (p1 >> _SHIFT) ^ c1[i] ^ k0, p1 & _LOW
                c2[i], c3[i] = (p0 >> _SHIFT) ^ c3[i] ^ k1, p0 & _LOW
            k0, k1 = (k0 + _W0) & _LOW, (k1 + _W1) & _LOW
        for i in range(AT_ONCE):
            at = 4 * (start + i)
            words[at], words[at + 1] = np.uint32(c0[i]), np.uint32(c1[i])
            words[at + 2], words[at + 3] = np.uint32(c2[i]), np.uint32(c3[i])
