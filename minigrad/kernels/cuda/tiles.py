"""Tiles of matrices in shared memory: how they lie there, how they come there, how tensor cores read them.

A tile of an operand is `rows x DEPTH`, where the products sum over the depth. It lies as its matrix lies in memory:

    deep   the depth is contiguous: `rows` lines of 64 bytes (16 float32 or 32 halves)
    wide   the rows are contiguous: `depth` lines of `rows` elements

No copy or read meets a bank twice (shared memory has 32 banks of 4 bytes; 16-byte accesses go eight lanes at a time):

    deep    lines of 64 bytes, so rows r and r + 2 begin at the same bank. Its four 16-byte chunks are permuted by
            (r / 2) mod 4: the eight rows that ldmatrix reads at one chunk lie in eight different chunks of 128 bytes.
    wide, float32   a lane reads element (k = t, row = g): lines begin at the same bank, so rows are permuted by
            8 (k mod 4): the four t lie 8 banks apart, the eight g side by side.
    wide, halves    ldmatrix reads 16-byte chunks of eight lines k, which begin at the same bank: permuted by k mod 8.
"""

from __future__ import annotations

from typing import Any

from minigrad.kernels.cuda import intrinsics
from minigrad.kernels.cuda.intrinsics import (
    bits_float,
    copy_async4_float32,
    copy_async16_float32,
    copy_async16_half,
    float_bits,
    ldmatrix,
    ldmatrix_transposed,
    opaque,
    rolled,
    to_tf32,
)
from minigrad.kernels.cuda.language import cuda, device, float32, int32, uint16

HALVES = ("bfloat16", "float16")
DTYPES = ("float32", *HALVES)
ELEMENT = {"float32": float32, "bfloat16": uint16, "float16": uint16}  # how elements lie in memory
POINTER = {"float32": "float32*", "bfloat16": "uint16*", "float16": "uint16*"}
DEPTH = {"float32": 16, "bfloat16": 32, "float16": 32}  # 64 bytes
CHUNK = {"float32": 4, "bfloat16": 8, "float16": 8}  # 16 bytes
MMA = {"bfloat16": intrinsics.mma_bfloat16, "float16": intrinsics.mma_float16}
PACK = {"bfloat16": intrinsics.pack_bfloat16, "float16": intrinsics.pack_float16}
LOW = {"bfloat16": intrinsics.low_bfloat16, "float16": intrinsics.low_float16}
HIGH = {"bfloat16": intrinsics.high_bfloat16, "float16": intrinsics.high_float16}

ZERO = float32(0)
NOTHING = uint16(0)


# --- one element ----------------------------------------------------------------------------------------


@device
def _same(x):
    return x


WIDEN = {"float32": _same, "bfloat16": intrinsics.widen_bfloat16, "float16": intrinsics.widen_float16}
NARROW = {"float32": _same, "bfloat16": intrinsics.narrow_bfloat16, "float16": intrinsics.narrow_float16}


def loads(dtype: str, vector: bool) -> tuple[Any, int]:
    """A device function (memory, i) -> elements as float32, and how many: 16 aligned bytes of them, or one."""
    if not vector:
        widen = WIDEN[dtype]

        @device
        def load_one(memory, i):
            return (widen(memory[i]),)

        return load_one, 1
    if dtype == "float32":
        return intrinsics.load4, 4
    load, low, high = intrinsics.load_bits4, LOW[dtype], HIGH[dtype]

    @device
    def load_eight(memory, i):
        w = load(memory, i)
        return (
            low(w[0]), high(w[0]), low(w[1]), high(w[1]), low(w[2]), high(w[2]), low(w[3]), high(w[3]),
        )  # fmt: skip

    return load_eight, 8


# --- where an element lies ------------------------------------------------------------------------------


@device
def deep_float32(row, k):
    return row * 16 + (((k >> 2) ^ ((row >> 1) & 3)) << 2) + (k & 3)


@device
def deep_half(row, k):
    return row * 32 + (((k >> 3) ^ ((row >> 1) & 3)) << 3) + (k & 7)


def deep(dtype: str) -> Any:
    """The device function (row, k) -> index into a deep tile."""
    return deep_float32 if dtype == "float32" else deep_half


def wide(dtype: str, rows: int) -> Any:
    """The device function (row, k) -> index into a wide tile of `rows` (float32: 32, halves: 64, or a multiple)."""
    if rows % (32 if dtype == "float32" else 64):
        raise ValueError(f"a wide tile of {dtype} has a multiple of 128 bytes of rows, not {rows} rows")
    if dtype == "float32":

        @device
        def place(row, k):
            return k * rows + (row ^ ((k & 3) << 3))
    else:

        @device
        def place(row, k):
            return k * rows + (((row >> 3) ^ (k & 7)) << 3) + (row & 7)

    return place


# --- from global memory ---------------------------------------------------------------------------------


def copier(dtype: str, rows: int, threads: int, is_deep: bool, vector: bool) -> Any:
    """The device function that a block calls to begin copying one tile; what lies outside of the matrix is zero.

    (shared, at, source, base, stride, row, rows_end, k, k_end): the tile whose first element is (row, k) of the matrix
    that begins at source[base] and whose lines are `stride` apart goes to shared[at]. vector: 16 bytes at a time, which
    needs base, stride and source to be aligned to them; else one element at a time (halves: without asynchrony).
    """
    depth, chunk = DEPTH[dtype], CHUNK[dtype]
    place = deep(dtype) if is_deep else wide(dtype, rows)
    width = chunk if vector else 1
    line = (depth if is_deep else rows) // width  # copies a line
    shift = line.bit_length() - 1
    if line != 1 << shift or (rows * depth // width) % threads:
        raise ValueError(f"{threads} threads cannot share a tile of {rows} x {depth}")
    rounds = rows * depth // width // threads
    by_chunk = copy_async16_float32 if dtype == "float32" else copy_async16_half
    copy = by_chunk if vector else copy_async4_float32

    no, all_of = int32(0), int32(width)

    @device
    def deep_chunk(shared, at, source, base, stride, row, rows_end, k, k_end, q):
        r = q >> shift
        c = (q & (line - 1)) * width
        count = min(max(int32(k_end - k - c), no), all_of)
        if row + r >= rows_end:
            count = no
        copy(shared, at + place(r, c), source, base + (row + r) * stride + k + c, count)

    @device
    def wide_chunk(shared, at, source, base, stride, row, rows_end, k, k_end, q):
        r = (q & (line - 1)) * width
        c = q >> shift
        count = min(max(int32(rows_end - row - r), no), all_of)
        if k + c >= k_end:
            count = no
        copy(shared, at + place(r, c), source, base + (k + c) * stride + row + r, count)

    @device
    def half(shared, at, source, base, stride, row, rows_end, k, k_end, q):
        along, across = q & (line - 1), q >> shift
        r, c = (across, along) if is_deep else (along, across)
        value = NOTHING
        if row + r < rows_end and k + c < k_end:
            value = source[base + (row + r) * stride + k + c if is_deep else base + (k + c) * stride + row + r]
        shared[at + place(r, c)] = value

    one = half if dtype in HALVES and not vector else deep_chunk if is_deep else wide_chunk
    if vector:

        @device
        def start(shared, at, source, base, stride, row, rows_end, k, k_end):
            for u in range(rounds):
                one(shared, at, source, base, stride, row, rows_end, k, k_end, cuda.threadIdx.x + u * threads)
    else:

        @device
        def start(shared, at, source, base, stride, row, rows_end, k, k_end):
            for u in range(opaque(rounds)):
                rolled()  # the indices of so many rounds would not fit into registers
                one(shared, at, source, base, stride, row, rows_end, k, k_end, cuda.threadIdx.x + u * threads)

    return start


def unrolled(step: Any, count: int) -> Any:
    """The device function (i, *arguments) that calls step(i, *arguments) to step(i + count - 1, *arguments).

    Unlike a loop it is unrolled whatever its length: arrays that are indexed by i can lie in registers.
    """
    if count == 1:
        return step
    half = count // 2
    first, second = unrolled(step, half), unrolled(step, count - half)

    @device
    def both(i, *arguments):
        first(i, *arguments)
        second(i + half, *arguments)

    return both


# --- into registers -------------------------------------------------------------------------------------


def operand_a(dtype: str, rows: int, is_deep: bool) -> Any:
    """The device function (shared, at, row, k, lane) -> a0 .. a3 of the 16 rows from `row`, depth from `k`, as bits."""
    place = deep(dtype) if is_deep else wide(dtype, rows)
    chunk_shift = 2 if dtype == "float32" else 3

    @device
    def read_deep(shared, at, row, k, lane):
        return ldmatrix(shared, at + place(row + (lane & 15), k + ((lane >> 4) << chunk_shift)))

    @device
    def read_wide_float32(shared, at, row, k, lane):
        g, t = lane >> 2, lane & 3
        return (
            float_bits(shared[at + place(row + g, k + t)]),
            float_bits(shared[at + place(row + g + 8, k + t)]),
            float_bits(shared[at + place(row + g, k + t + 4)]),
            float_bits(shared[at + place(row + g + 8, k + t + 4)]),
        )

    @device
    def read_wide_half(shared, at, row, k, lane):
        line = k + (lane & 7) + ((lane >> 4) << 3)
        return ldmatrix_transposed(shared, at + place(row + (((lane >> 3) & 1) << 3), line))

    if is_deep:
        return read_deep
    return read_wide_float32 if dtype == "float32" else read_wide_half


def operand_b(dtype: str, rows: int, is_deep: bool) -> Any:
    """The device function (shared, at, row, k, lane) -> b0, b1 of the 8 rows from `row`, and of the 8 after them."""
    place = deep(dtype) if is_deep else wide(dtype, rows)
    chunk_shift = 2 if dtype == "float32" else 3

    @device
    def read_deep(shared, at, row, k, lane):
        r = row + (lane & 7) + ((lane >> 4) << 3)
        return ldmatrix(shared, at + place(r, k + (((lane >> 3) & 1) << chunk_shift)))

    @device
    def read_wide_float32(shared, at, row, k, lane):
        g, t = lane >> 2, lane & 3
        return (
            float_bits(shared[at + place(row + g, k + t)]),
            float_bits(shared[at + place(row + g, k + t + 4)]),
            float_bits(shared[at + place(row + g + 8, k + t)]),
            float_bits(shared[at + place(row + g + 8, k + t + 4)]),
        )

    @device
    def read_wide_half(shared, at, row, k, lane):
        return ldmatrix_transposed(shared, at + place(row + ((lane >> 4) << 3), k + (lane & 15)))

    if is_deep:
        return read_deep
    return read_wide_float32 if dtype == "float32" else read_wide_half


@device
def high_part(bits):
    """The tf32 nearest to a float32 (both as bits)."""
    return to_tf32(bits_float(bits))


@device
def low_part(bits, high):
    """The tf32 nearest to what `high` leaves of a float32: together they keep 22 of its 24 bits."""
    return to_tf32(bits_float(bits) - bits_float(high))
