"""What attention's kernels are told, and what they do to scores between the two products: hide, slope, drop.

Query i stands at position i + Tk - Tq: the last query at the last key. It sees the keys from i + low up to, but not
including, i + reach (causality, a window, or neither), of those the ones that its mask shows; ALiBi subtracts the
head's slope times the distance. Dropout keeps weight (batch, head, i, k) if its word of the draw is not below `drops`:
the words that `minigrad.random` gives the weights as one array, so every device drops the same.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from minigrad.kernels.cuda.intrinsics import opaque, rolled
from minigrad.kernels.cuda.language import device, float32, int32, record, uint64
from minigrad.kernels.cuda.random import philox

LOW = float32(-math.inf)


@record
class Sizes(NamedTuple):
    """Tokens, head sizes, heads of queries, and how many of those share a head of keys."""

    t_query: int
    t_key: int
    d_key: int
    d_value: int
    heads: int
    group: int


@record
class Rows(NamedTuple):
    """Strides of batches, heads and rows, in elements."""

    batch: int
    head: int
    row: int


@device
def base_of(strides, batch, head):
    """Where a head's first row begins, or its part of the mask."""
    return batch * strides.batch + head * strides.head


@record
class MaskRows(NamedTuple):
    """Strides of the mask's batches, heads, queries and keys."""

    batch: int
    head: int
    query: int
    key: int


@record
class Seen(NamedTuple):
    """Keys i + low <= k < i + reach are seen by query i; is there a mask, and are there slopes?"""

    low: int
    reach: int
    masked: int
    sloped: int


def shader(tiles: int, transposed: bool) -> Any:
    """The device function that hides a warp's scores that may not be seen (-inf), and subtracts `slope` * distance.

    The 16 rows begin at `row`, the columns at `column`: queries and keys, or keys and queries if transposed.
    """

    @device
    def shade(s, row, column, lane, sizes, seen, slope, mask, m_base, mask_at):
        for j in range(tiles):
            for q in range(4):
                y = row + (lane >> 2) + ((q >> 1) << 3)
                x = column + 8 * j + ((lane & 3) << 1) + (q & 1)
                i, k = (x, y) if transposed else (y, x)
                shown = i < sizes.t_query and k < sizes.t_key and i + seen.low <= k and k < i + seen.reach
                if shown and seen.masked != 0:
                    shown = mask[m_base + i * mask_at.query + k * mask_at.key] != 0
                far = float32(abs(i + sizes.t_key - sizes.t_query - k))
                s[j, q] = s[j, q] - slope * far if shown else LOW

    return shade


def dropper(tiles: int, transposed: bool) -> Any:
    """The device function that says which of a warp's weights are kept: bit 4 j + q for s[j, q].

    first: the number of the head's first query among all of them; rows and columns as of `shader`.
    """

    @device
    def kept(draw, drops, first, row, column, lane, sizes):
        bits = int32(0)
        for n in range(opaque(4 * tiles)):
            rolled()
            y = row + (lane >> 2) + (((n >> 1) & 1) << 3)
            x = column + ((n >> 2) << 3) + ((lane & 3) << 1) + (n & 1)
            i, k = (x, y) if transposed else (y, x)
            index = (first + i) * sizes.t_key + k
            words = philox(uint64(draw[0]), uint64(draw[1] + (index >> 2)))
            low, high = (words[0], words[1]) if index & 2 == 0 else (words[2], words[3])
            word = low if index & 1 == 0 else high
            if int32(word >> uint64(8)) >= drops:
                bits |= int32(1) << int32(n)
        return bits

    return kept
