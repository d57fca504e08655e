"""Tiles of attention heads in shared memory (rows x head size), and the two products that attention makes of them.

    scores   S (16 x columns) = X Y^T: 16 rows of one tile against all rows of another, both read by ldmatrix
    mix      O (16 x head size) = O f + P Z: P in registers as `scores` left it, Z a tile, f a factor for each row

The result of an mma lies in registers as (g, 2t), (g, 2t+1), (g+8, 2t), (g+8, 2t+1) with g = lane // 4, t = lane % 4.
Two neighbouring 8-column results of halves are, packed, the left operand of the next mma. In tf32 that operand wants
columns t and t + 4: since a sum may run in any order, column 2t is given out as t and 2t + 1 as t + 4, and the rows of
Z are read in the same order: nothing moves between lanes.

float32 is three tf32 products, summed from zero over at most 32 elements and then added in float32, as in
`minigrad.kernels.cuda.matmul`.

A row of 128 bytes or more begins at the same bank as the next, so its 16-byte chunks are permuted by row mod 8: eight
rows at one chunk (ldmatrix) lie in eight different ones; lanes (2t, g) and (2t + 1, g) of `mix` in tf32 meet 32
different banks, since 2t flips the chunk's upper bits and g / 4 its lowest. A row of 64 bytes (halves, head size 32) is
permuted by (row / 2) mod 4.
"""

from __future__ import annotations

from typing import Any

from minigrad.kernels.cuda.intrinsics import (
    copy_async4_float32,
    copy_async16_float32,
    copy_async16_half,
    float_bits,
    ldmatrix,
    ldmatrix_transposed,
    mma_tf32,
    opaque,
    rolled,
)
from minigrad.kernels.cuda.language import cuda, device, float32, int32
from minigrad.kernels.cuda.tiles import CHUNK, HALVES, MMA, NOTHING, PACK, ZERO, high_part, low_part, unrolled

HEAD_SIZES = (32, 64, 128)  # what tiles are made for; others are filled up with zeros


def place_in(dtype: str, size: int) -> Any:
    """The device function (row, column) -> index into a tile of rows of `size` elements."""
    if dtype == "float32":

        @device
        def place(row, column):
            return row * size + (((column >> 2) ^ (row & 7)) << 2) + (column & 3)
    elif size >= 64:

        @device
        def place(row, column):
            return row * size + (((column >> 3) ^ (row & 7)) << 3) + (column & 7)
    else:

        @device
        def place(row, column):
            return row * size + (((column >> 3) ^ ((row >> 1) & 3)) << 3) + (column & 7)

    return place


def copier_of_rows(dtype: str, rows: int, size: int, threads: int, vector: bool) -> Any:
    """The device function that begins copying a tile: (shared, at, source, base, line, row, rows_end, width).

    Rows from `row` of the matrix at source[base], lines `line` apart, `width` <= size elements each; what lies outside
    is zero. vector: 16 aligned bytes at a time, else one element at a time (halves: without asynchrony).
    """
    place = place_in(dtype, size)
    each = CHUNK[dtype] if vector else 1
    per_row = size // each
    shift = per_row.bit_length() - 1
    rounds = rows * per_row // threads
    if rounds * threads != rows * per_row or per_row != 1 << shift:
        raise ValueError(f"{threads} threads cannot share a tile of {rows} x {size}")
    by_chunk = copy_async16_float32 if dtype == "float32" else copy_async16_half
    copy = by_chunk if vector else copy_async4_float32
    no, all_of = int32(0), int32(each)

    @device
    def one(shared, at, source, base, line, row, rows_end, width, q):
        r = q >> shift
        c = (q & (per_row - 1)) * each
        count = min(max(int32(width - c), no), all_of)
        if row + r >= rows_end:
            count = no
        copy(shared, at + place(r, c), source, base + (row + r) * line + c, count)

    @device
    def one_half(shared, at, source, base, line, row, rows_end, width, q):
        r, c = q >> shift, q & (per_row - 1)
        value = NOTHING
        if row + r < rows_end and c < width:
            value = source[base + (row + r) * line + c]
        shared[at + place(r, c)] = value

    step = one_half if dtype in HALVES and not vector else one

    @device
    def start(shared, at, source, base, line, row, rows_end, width):
        for u in range(opaque(rounds)):
            rolled()  # the indices of so many rounds would not fit into registers
            step(shared, at, source, base, line, row, rows_end, width, cuda.threadIdx.x + u * threads)

    return start


# --- scores ---------------------------------------------------------------------------------------------


def scores_of(dtype: str, size: int, columns: int) -> Any:
    """The device function (shared, at_x, row, at_y, lane, s): s (columns / 8, 4) = X Y^T of rows row .. row + 15."""
    place = place_in(dtype, size)
    tiles = columns // 8
    pairs = columns // 16

    @device
    def scores_float32(shared, at_x, row, at_y, lane, s):
        part = cuda.local.array((tiles, 4), float32)
        for j in range(tiles):
            for q in range(4):
                s[j, q] = ZERO
        for first in range(0, size, 32):
            for j in range(tiles):
                for q in range(4):
                    part[j, q] = ZERO
            for step in range(4):
                k = first + 8 * step
                a = ldmatrix(shared, at_x + place(row + (lane & 15), k + ((lane >> 4) << 2)))
                h0, h1, h2, h3 = high_part(a[0]), high_part(a[1]), high_part(a[2]), high_part(a[3])
                l0, l1, l2, l3 = low_part(a[0], h0), low_part(a[1], h1), low_part(a[2], h2), low_part(a[3], h3)
                for j in range(pairs):
                    y = 16 * j + (lane & 7) + ((lane >> 4) << 3)
                    b = ldmatrix(shared, at_y + place(y, k + (((lane >> 3) & 1) << 2)))
                    for half in range(2):
                        x0, x1 = (b[0], b[1]) if half == 0 else (b[2], b[3])
                        g0, g1 = high_part(x0), high_part(x1)
                        i = 2 * j + half
                        d = (part[i, 0], part[i, 1], part[i, 2], part[i, 3])
                        d = mma_tf32(l0, l1, l2, l3, g0, g1, d[0], d[1], d[2], d[3])
                        d = mma_tf32(h0, h1, h2, h3, low_part(x0, g0), low_part(x1, g1), d[0], d[1], d[2], d[3])
                        d = mma_tf32(h0, h1, h2, h3, g0, g1, d[0], d[1], d[2], d[3])
                        for q in range(4):
                            part[i, q] = d[q]
            for j in range(tiles):
                for q in range(4):
                    s[j, q] += part[j, q]

    if dtype == "float32":
        return scores_float32
    mma = MMA[dtype]

    @device
    def scores_half(shared, at_x, row, at_y, lane, s):
        for j in range(tiles):
            for q in range(4):
                s[j, q] = ZERO
        for k in range(0, size, 16):
            a = ldmatrix(shared, at_x + place(row + (lane & 15), k + ((lane >> 4) << 3)))
            for j in range(pairs):
                y = 16 * j + (lane & 7) + ((lane >> 4) << 3)
                b = ldmatrix(shared, at_y + place(y, k + (((lane >> 3) & 1) << 3)))
                for half in range(2):
                    x0, x1 = (b[0], b[1]) if half == 0 else (b[2], b[3])
                    i = 2 * j + half
                    d = mma(a[0], a[1], a[2], a[3], x0, x1, s[i, 0], s[i, 1], s[i, 2], s[i, 3])
                    for q in range(4):
                        s[i, q] = d[q]

    return scores_half


# --- mix ------------------------------------------------------------------------------------------------


def mix_of(dtype: str, size: int, columns: int) -> Any:
    """The device function (p, shared, at_z, lane, o, f0, f1): o (size / 8, 4) = o f + P Z, P (16 x columns).

    f0 is the factor of row g, f1 that of row g + 8.
    """
    place = place_in(dtype, size)
    steps = columns // 8
    tiles = size // 8

    @device
    def mix_column(n, shared, at_z, g, t2, high, low, o, f0, f1):
        d = (ZERO, ZERO, ZERO, ZERO)
        for k in range(steps):
            x0 = float_bits(shared[at_z + place(8 * k + t2, 8 * n + g)])
            x1 = float_bits(shared[at_z + place(8 * k + t2 + 1, 8 * n + g)])
            g0, g1 = high_part(x0), high_part(x1)
            h0, h1, h2, h3 = high[k, 0], high[k, 1], high[k, 2], high[k, 3]
            d = mma_tf32(low[k, 0], low[k, 1], low[k, 2], low[k, 3], g0, g1, d[0], d[1], d[2], d[3])
            d = mma_tf32(h0, h1, h2, h3, low_part(x0, g0), low_part(x1, g1), d[0], d[1], d[2], d[3])
            d = mma_tf32(h0, h1, h2, h3, g0, g1, d[0], d[1], d[2], d[3])
        o[n, 0] = o[n, 0] * f0 + d[0]
        o[n, 1] = o[n, 1] * f0 + d[1]
        o[n, 2] = o[n, 2] * f1 + d[2]
        o[n, 3] = o[n, 3] * f1 + d[3]

    every_n = unrolled(mix_column, tiles)

    @device
    def mix_float32(p, shared, at_z, lane, o, f0, f1):
        high = cuda.local.array((steps, 4), int32)
        low = cuda.local.array((steps, 4), int32)
        here = opaque(lane)  # or the compiler would keep every address of the tile in registers, through all tiles
        g, t2 = here >> 2, (here & 3) << 1
        for k in range(steps):
            for q in range(4):
                bits = float_bits(p[k, ((q & 1) << 1) | (q >> 1)])  # a0 .. a3 are c0, c2, c1, c3
                h = high_part(bits)
                high[k, q] = h
                low[k, q] = low_part(bits, h)
        every_n(0, shared, at_z, g, t2, high, low, o, f0, f1)

    if dtype == "float32":
        return mix_float32
    mma, pack = MMA[dtype], PACK[dtype]
    half_steps, pairs = columns // 16, size // 16

    @device
    def mix_half(p, shared, at_z, lane, o, f0, f1):
        for n in range(tiles):
            o[n, 0] *= f0
            o[n, 1] *= f0
            o[n, 2] *= f1
            o[n, 3] *= f1
        for k in range(half_steps):
            a0, a1 = pack(p[2 * k, 0], p[2 * k, 1]), pack(p[2 * k, 2], p[2 * k, 3])
            a2, a3 = pack(p[2 * k + 1, 0], p[2 * k + 1, 1]), pack(p[2 * k + 1, 2], p[2 * k + 1, 3])
            for n in range(pairs):
                b = ldmatrix_transposed(shared, at_z + place(16 * k + (lane & 15), 16 * n + ((lane >> 4) << 3)))
                for half in range(2):
                    x0, x1 = (b[0], b[1]) if half == 0 else (b[2], b[3])
                    i = 2 * n + half
                    d = mma(a0, a1, a2, a3, x0, x1, o[i, 0], o[i, 1], o[i, 2], o[i, 3])
                    for q in range(4):
                        o[i, q] = d[q]

    return mix_half
