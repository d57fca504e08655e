"""Rows added where keys say, without atomics: sort the keys (keeping the order of equal ones), then add up the runs.

The sort is by 8 bits a pass, the lowest first, over tiles of keys: count the digits of every tile, make running sums of
the counts, put every key at its place. Runs are added in chunks of 32 rows; a run that goes through several chunks gets
their sums in order. So every element is a sum in a fixed order, and a result repeats bit for bit.

Source: Merrill and Grimshaw 2011 (radix sort); the order of additions is ours.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad.kernels.cuda import elementwise
from minigrad.kernels.cuda.faults import FAULT, note
from minigrad.kernels.cuda.language import Kernel, cuda, device, int32, int64, kernel
from minigrad.kernels.cuda.reductions import CUMSUM, ELEMENTS
from minigrad.kernels.cuda.reductions import THREADS as SCAN_THREADS
from minigrad.kernels.cuda.teams import ALL

THREADS = 256
WARPS = THREADS // 32
DIGITS = 256
SLOTS = DIGITS + 1  # one more for threads that hold no key
BITS = 8
TILE = 1024  # keys that a block places, 256 at a time
CHUNK = 32  # rows that are added in one go
COLUMNS = 128  # threads of a block that adds rows
ZERO, ONE = int32(0), int32(1)


@kernel(f"int64*, int32*, int32*, int32, int32, int32, {FAULT}", name="sort_keys", threads=THREADS)
def _prepare(ids, keys, positions, n, rows, left_out, words, fault):
    """Keys of 32 bits; what is outside of the table, or left out, goes to the end: key `rows`."""
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < n:
        key = ids[i]
        inside = 0 <= key < rows
        if not inside:
            note(words, fault, key)
        keys[i] = int32(key) if inside and key != left_out else int32(rows)
        positions[i] = int32(i)


@kernel("int32*, int64*, int32, int32, int32", name="sort_count", threads=THREADS)
def _count(keys, counts, n, shift, tiles):
    """counts ``(digits, tiles)``: how often each digit occurs in this block's tile."""
    found = cuda.shared.array(DIGITS, int32)
    found[cuda.threadIdx.x] = ZERO
    cuda.syncthreads()
    first = cuda.blockIdx.x * TILE
    for i in range(first + cuda.threadIdx.x, min(first + TILE, n), THREADS):
        cuda.atomic.add(found, (keys[i] >> shift) & (DIGITS - 1), ONE)  # of integers: in any order the same
    cuda.syncthreads()
    counts[cuda.threadIdx.x * tiles + cuda.blockIdx.x] = found[cuda.threadIdx.x]


@device
def _peers(digit):
    """The lanes of the warp that hold the same digit (9 bits: 256 is none)."""
    peers = cuda.ballot_sync(ALL, True)
    for bit in range(BITS + 1):
        mine = (digit >> bit) & 1
        others = cuda.ballot_sync(ALL, mine != 0)
        peers &= others if mine else ~others
    return peers & ALL  # 32 bits, whatever the sign of what they were held in


@kernel("int32*, int32*, int32*, int32*, int64*, int64*, int32, int32, int32", name="sort_place", threads=THREADS)
def _place(keys, positions, new_keys, new_positions, counts, ends, n, shift, tiles):
    """Every key to its place: after all smaller digits, and after equal ones that come before it."""
    following = cuda.shared.array(SLOTS, int64)  # where the next key of each digit goes
    of_warp = cuda.shared.array((WARPS, SLOTS), int32)
    t = cuda.threadIdx.x
    lane, warp = t & 31, t >> 5
    at = t * tiles + cuda.blockIdx.x
    following[t] = ends[at] - counts[at]
    first = cuda.blockIdx.x * TILE
    for start in range(first, min(first + TILE, n), THREADS):
        for w in range(WARPS):
            of_warp[w, t] = ZERO
        cuda.syncthreads()
        i = start + t
        digit = (keys[i] >> shift) & (DIGITS - 1) if i < n else DIGITS
        peers = _peers(digit)
        before = cuda.popc(peers & ((1 << lane) - 1))
        if before == 0:
            of_warp[warp, digit] = int32(cuda.popc(peers))
        cuda.syncthreads()
        if i < n:
            place = following[digit] + before
            for w in range(warp):
                place += of_warp[w, digit]
            new_keys[place] = keys[i]
            new_positions[place] = positions[i]
        cuda.syncthreads()
        for w in range(WARPS):
            following[t] += of_warp[w, t]
        cuda.syncthreads()


def _make_add(dtype: str) -> tuple[Kernel, Kernel]:
    zero = ELEMENTS[dtype](0)
    options: Any = {"threads": COLUMNS, "float64": dtype == "float64"}

    @kernel(
        f"int32*, int32*, {dtype}*, {dtype}*, {dtype}*, int32, int32, int32, int32",
        name=f"segment_add_{dtype}",
        **options,
    )
    def add(keys, positions, values, table, heads, n, width, rows, tiles):
        """A block a chunk and 128 columns. heads: the sum of a run that began in an earlier chunk."""
        chunk, tile = cuda.blockIdx.x // tiles, cuda.blockIdx.x % tiles
        j = tile * COLUMNS + cuda.threadIdx.x
        if j < width:
            first = chunk * CHUNK
            last = min(first + CHUNK, n)
            key = keys[first]
            continued = first > 0 and keys[first - 1] == key
            total = zero
            for i in range(first, last):
                if keys[i] != key:
                    if continued:
                        heads[int64(chunk) * width + j] = total
                    elif key < rows:
                        table[int64(key) * width + j] = total
                    key, total, continued = keys[i], zero, False
                total += values[int64(positions[i]) * width + j]
            if continued:
                heads[int64(chunk) * width + j] = total
            elif key < rows:
                table[int64(key) * width + j] = total

    @kernel(f"int32*, {dtype}*, {dtype}*, int32, int32, int32, int32", name=f"segment_join_{dtype}", **options)
    def join(keys, table, heads, n, width, rows, tiles):
        """The block of the chunk in which a run begins that goes on: add what the next chunks have of it."""
        chunk, tile = cuda.blockIdx.x // tiles, cuda.blockIdx.x % tiles
        j = tile * COLUMNS + cuda.threadIdx.x
        first, following = chunk * CHUNK, (chunk + 1) * CHUNK
        if j < width and following < n:
            key = keys[following]
            begins = keys[first] != key or first == 0 or keys[first - 1] != key
            if key < rows and keys[following - 1] == key and begins:
                total = table[int64(key) * width + j]
                while following < n and keys[following] == key:
                    total += heads[int64(following // CHUNK) * width + j]
                    following += CHUNK
                table[int64(key) * width + j] = total

    return add, join


ADD = {dtype: _make_add(dtype) for dtype in ELEMENTS}


def add_rows(
    calls: Any, values: Any, ids: Any, table: Any, n: int, width: int, fault: tuple[Any, int], left_out: int = -1
) -> None:
    """Append launches that set contiguous `table` (rows, width) to the sums of the rows of `values` (n, width) by id.

    ids: n int64, contiguous; one equal to `left_out` is skipped, and one outside of the table, too, which is noted as
    `fault` (see `Faults.place`).
    """
    elementwise.fill(calls, table, 0)
    if not n or not width:
        return
    rows = table.size // width
    keys, positions, other_keys, other_positions = (calls.scratch((n,), np.dtype("int32")) for _ in range(4))
    calls.launch(_prepare, -(-n // THREADS), THREADS, ids, keys, positions, n, rows, left_out, *fault)
    if not rows:
        return
    tiles = -(-n // TILE)
    counts, ends = (calls.scratch((DIGITS * tiles,), np.dtype("int64")) for _ in range(2))
    for shift in range(0, rows.bit_length(), BITS):
        calls.launch(_count, tiles, THREADS, keys, counts, n, shift, tiles)
        calls.launch(CUMSUM["int64"], 1, SCAN_THREADS, counts, ends, DIGITS * tiles)
        calls.launch(
            _place, tiles, THREADS, keys, positions, other_keys, other_positions, counts, ends, n, shift, tiles
        )
        keys, positions, other_keys, other_positions = other_keys, other_positions, keys, positions
    add, join = ADD[table.dtype.name]
    columns, chunks = -(-width // COLUMNS), -(-n // CHUNK)
    heads = calls.scratch((chunks, width), table.dtype)
    grid = chunks * columns
    calls.launch(add, grid, COLUMNS, keys, positions, values, table, heads, n, width, rows, columns)
    if chunks > 1:
        calls.launch(join, grid, COLUMNS, keys, table, heads, n, width, rows, columns)
