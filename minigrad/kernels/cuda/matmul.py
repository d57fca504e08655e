"""Matrix products on the GPU: C = A B, batched, any of NN, NT, TN, TT, ragged; float32 and halves.

Every kernel computes C (m x n) from A (m x k) and B (k x n) of each batch; the sum over k may be cut into chunks
(`blockIdx.z`), whose parts `sum_parts` adds in a fixed order: the same bits every time, no atomics.

float32, tensor cores (`tiled_kernel`, `_tf32_multiply`)
    Each float32 is the sum of two tf32 (11 bits each); a b = hi hi + hi lo + lo hi leaves out less than 2^-21 |a b|: as
    exact as a float32 product chain. Tensor cores round sums towards zero, which over a long k would drift: so each
    tile of depth 16 is summed from zero and added to the accumulators by an ordinary rounded addition (4 additions for
    6 mma, hidden under them). An infinity, or a number that rounds to one, has no low part (inf - inf): a result that
    is not finite is computed again by float32 multiply-adds, so infinities and NaN are what float32 makes them.
    128 x 128 tiles, 8 warps of 64 x 32, depth 16. A tile of depth 16 is 2 * 128 * 128 * 16 = 524,288 useful FLOPs for
    16 KB read: 32 FLOPs a byte; L2 delivers about 5.5 TB/s, so tensor cores (495 TFLOP/s dense tf32 by wgmma, about 60%
    of that by mma.sync, a third of it useful: about 100 TFLOP/s; cores without them: 67) are the limit, not memory.
    Shared memory: a warp reads (64 + 32) * 8 * 4 = 3 KB for 48 mma, 24 of the 48 * 4 cycles that the mma need at best.
    The split costs 3 instructions an element, 72 for 48 mma. 3 stages of 16 KB = 48 KB; one block of 8 warps an SM
    (registers: 64 accumulators, 48 fragments). 64 x 64 tiles of 4 warps (24 KB, 3 blocks an SM) where 128 x 128 would
    leave SMs idle (132 of them).
halves, tensor cores (`tiled_kernel`, `_half_multiply`)
    mma m16n8k16 with float32 accumulators, 128 x 128 tiles, depth 32, 3 stages of 16 KB; 126 registers: 2 blocks an SM
    (64 x 64 tiles where an operand's lines are not aligned).
any strides, small shapes (`simple_kernel`)
    One multiply-add at a time on 4 x 4 registers; 64 x 64 or 32 x 32 tiles. Reads operands of any strides.

What a product of m x n x k takes is chosen by `minigrad.kernels.cuda.products`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from minigrad.kernels.cuda.intrinsics import (
    COPY_ASYNC_WAIT,
    copy_async_commit,
    load4,
    mma_tf32,
    opaque,
    rolled,
    store2,
    store_bits,
)
from minigrad.kernels.cuda.language import Kernel, cuda, device, float32, int32, kernel
from minigrad.kernels.cuda.tiles import (
    DEPTH,
    ELEMENT,
    MMA,
    NARROW,
    PACK,
    POINTER,
    WIDEN,
    ZERO,
    copier,
    high_part,
    low_part,
    operand_a,
    operand_b,
    unrolled,
)

STAGES = 3  # tiles in shared memory: one that is read, two on their way
BAND = 8  # tile rows that neighbouring blocks share, so that their operands stay in the L2 cache

# What the tiled kernels are called with: pointers, sizes, strides of lines, and of the two batch dimensions; how much
# of k a chunk takes, how far apart the chunks' results lie; and may neighbours be stored in pairs (aligned)?
_SIZES = "int32, " * 15 + "int32"


@device
def tile_of(number, tiles_m, tiles_n):
    """Which tile a block computes: down a band of BAND tile rows, then one tile column on."""
    per_band = BAND * tiles_n
    first = number // per_band * BAND
    height = min(tiles_m - first, BAND)
    rest = number % per_band
    return first + rest % height, rest // height


@device
def batch_of(number, inner, outer_stride, inner_stride):
    """Where a batch's matrix begins."""
    return (number // inner) * outer_stride + (number % inner) * inner_stride


# --- what a warp does with tiles in shared memory --------------------------------------------------------
# multiply(shared, at_a, at_b, row, column, lane, total): adds its part of the product of two tiles to `total`.


def _tf32_multiply(bm: int, bn: int, tiles_i: int, tiles_j: int, a_deep: bool, b_deep: bool) -> Any:
    steps = DEPTH["float32"] // 8
    pairs = tiles_j // 2
    read_a, read_b = operand_a("float32", bm, a_deep), operand_b("float32", bn, b_deep)

    @device
    def multiply(shared, at_a, at_b, row, column, lane, total):
        a_high = cuda.local.array((steps, 4), int32)
        a_low = cuda.local.array((steps, 4), int32)
        b_high = cuda.local.array((steps, tiles_j, 2), int32)
        b_low = cuda.local.array((steps, tiles_j, 2), int32)
        for s in range(steps):
            for j in range(pairs):
                bits = read_b(shared, at_b, column + 16 * j, 8 * s, lane)
                for q in range(4):
                    high = high_part(bits[q])
                    b_high[s, 2 * j + (q >> 1), q & 1] = high
                    b_low[s, 2 * j + (q >> 1), q & 1] = low_part(bits[q], high)
        for i in range(tiles_i):
            for s in range(steps):
                bits = read_a(shared, at_a, row + 16 * i, 8 * s, lane)
                for q in range(4):
                    high = high_part(bits[q])
                    a_high[s, q] = high
                    a_low[s, q] = low_part(bits[q], high)
            for j in range(tiles_j):
                d = (ZERO, ZERO, ZERO, ZERO)
                for s in range(steps):
                    h0, h1, h2, h3 = a_high[s, 0], a_high[s, 1], a_high[s, 2], a_high[s, 3]
                    l0, l1, l2, l3 = a_low[s, 0], a_low[s, 1], a_low[s, 2], a_low[s, 3]
                    g0, g1 = b_high[s, j, 0], b_high[s, j, 1]
                    d = mma_tf32(l0, l1, l2, l3, g0, g1, d[0], d[1], d[2], d[3])
                    d = mma_tf32(h0, h1, h2, h3, b_low[s, j, 0], b_low[s, j, 1], d[0], d[1], d[2], d[3])
                    d = mma_tf32(h0, h1, h2, h3, g0, g1, d[0], d[1], d[2], d[3])
                for q in range(4):
                    total[i, j, q] += d[q]

    return multiply


def _half_multiply(dtype: str, bm: int, bn: int, tiles_i: int, tiles_j: int, a_deep: bool, b_deep: bool) -> Any:
    steps = DEPTH[dtype] // 16
    pairs = tiles_j // 2
    read_a, read_b, mma = operand_a(dtype, bm, a_deep), operand_b(dtype, bn, b_deep), MMA[dtype]

    @device
    def multiply(shared, at_a, at_b, row, column, lane, total):
        b = cuda.local.array((tiles_j, 2), int32)
        for s in range(steps):
            for j in range(pairs):
                bits = read_b(shared, at_b, column + 16 * j, 16 * s, lane)
                for q in range(4):
                    b[2 * j + (q >> 1), q & 1] = bits[q]
            for i in range(tiles_i):
                a = read_a(shared, at_a, row + 16 * i, 16 * s, lane)
                for j in range(tiles_j):
                    c0, c1, c2, c3 = total[i, j, 0], total[i, j, 1], total[i, j, 2], total[i, j, 3]
                    d = mma(a[0], a[1], a[2], a[3], b[j, 0], b[j, 1], c0, c1, c2, c3)
                    for q in range(4):
                        total[i, j, q] = d[q]

    return multiply


def store_pair(dtype: str) -> Any:
    """The device function that writes two neighbouring results, of which `both` or only the first lie inside."""
    narrow = NARROW[dtype]
    if dtype == "float32":

        @device
        def store_two(c, at, first, second):
            store2(c, at, first, second)
    else:
        pack = PACK[dtype]

        @device
        def store_two(c, at, first, second):
            store_bits(c, at, pack(first, second))

    @device
    def store(c, at, first, second, both, paired):
        if both and paired:
            store_two(c, at, first, second)
        else:
            c[at] = narrow(first)
            if both:
                c[at + 1] = narrow(second)

    return store


# --- tiles on tensor cores ------------------------------------------------------------------------------


class Tiling(NamedTuple):
    """How blocks and warps share a product: tiles of C of m x n elements, by warps_m x warps_n warps."""

    m: int
    n: int
    warps_m: int
    warps_n: int

    @property
    def threads(self) -> int:
        return 32 * self.warps_m * self.warps_n

    @property
    def fragments(self) -> tuple[int, int]:
        """How many results of an mma (16 x 8) a warp's part is high and wide."""
        return self.m // self.warps_m // 16, self.n // self.warps_n // 8

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a launch: STAGES tiles of each operand, of 64 bytes of depth."""
        return STAGES * 64 * (self.m + self.n)


LARGE = Tiling(128, 128, 2, 4)
SMALL = Tiling(64, 64, 2, 2)

# registers allowed and blocks an SM meant (65,536 registers an SM)
_BOUNDS = {
    ("float32", LARGE): (255, 1),
    ("float32", SMALL): (168, 3),
    ("half", LARGE): (128, 2),
    ("half", SMALL): (168, 3),
}


def accumulator(dtype: str, tiling: Tiling, a_deep: bool, b_deep: bool, a_vector: bool, b_vector: bool) -> Any:
    """The device function that a block calls to add up its tile of C, depth `first` to `end`, in registers:
    (a, a_base, a_line, b, b_base, b_line, m, n, row, column, first, end, total); `total` is what `results_of` reads.
    """
    bm, bn, warps_m, warps_n = tiling
    threads = tiling.threads
    warp_m, warp_n = bm // warps_m, bn // warps_n
    tiles_i, tiles_j = tiling.fragments
    depth = DEPTH[dtype]
    stage_a, stage_b = bm * depth, bn * depth
    first_b = STAGES * stage_a
    element = ELEMENT[dtype]
    copy_a, copy_b = copier(dtype, bm, threads, a_deep, a_vector), copier(dtype, bn, threads, b_deep, b_vector)
    if dtype == "float32":
        multiply = _tf32_multiply(bm, bn, tiles_i, tiles_j, a_deep, b_deep)
    else:
        multiply = _half_multiply(dtype, bm, bn, tiles_i, tiles_j, a_deep, b_deep)
    wait = COPY_ASYNC_WAIT[STAGES - 2]

    @device
    def accumulate(a, a_base, a_line, b, b_base, b_line, m, n, row, column, first, end, total):
        shared = cuda.shared.array(0, element)
        lane = cuda.threadIdx.x & 31
        warp = cuda.threadIdx.x >> 5
        row_w = warp // warps_n * warp_m
        column_w = warp % warps_n * warp_n
        count = (end - first + depth - 1) // depth
        for i in range(tiles_i):
            for j in range(tiles_j):
                for q in range(4):
                    total[i, j, q] = ZERO
        for s in range(STAGES - 1):
            if s < count:
                copy_a(shared, s * stage_a, a, a_base, a_line, row, m, first + s * depth, end)
                copy_b(shared, first_b + s * stage_b, b, b_base, b_line, column, n, first + s * depth, end)
            copy_async_commit()
        now = 0
        for s in range(count):
            wait()
            cuda.syncthreads()
            ahead = s + STAGES - 1
            if ahead < count:
                free = now + STAGES - 1
                if free >= STAGES:
                    free -= STAGES
                copy_a(shared, free * stage_a, a, a_base, a_line, row, m, first + ahead * depth, end)
                copy_b(shared, first_b + free * stage_b, b, b_base, b_line, column, n, first + ahead * depth, end)
            copy_async_commit()
            multiply(shared, now * stage_a, first_b + now * stage_b, row_w, column_w, lane, total)
            now += 1
            if now == STAGES:
                now = 0

    return accumulate


def results_of(dtype: str, tiling: Tiling, a_deep: bool, b_deep: bool, put: Any) -> Any:
    """The device function that hands a thread's results on, two neighbours at a time:
    (a, a_base, a_line, b, b_base, b_line, m, n, row, column, first, end, total, *where) calls
    put(y, x, C[y, x], C[y, x + 1], whether x + 1 < n, *where).
    """
    warps_n = tiling.warps_n
    warp_m, warp_n = tiling.m // tiling.warps_m, tiling.n // warps_n
    tiles_i, tiles_j = tiling.fragments
    pairs = tiles_i * tiles_j * 2
    if pairs > 32:
        raise ValueError(f"a thread's {pairs} pairs of results do not fit into the bits of a register")
    split = dtype == "float32"

    @device
    def again(a, a_base, a_line, b, b_base, b_line, y, x, first, end):
        """One result, a multiply-add at a time."""
        total = ZERO
        for s in range(first, end):
            left = a[a_base + y * a_line + s if a_deep else a_base + s * a_line + y]
            right = b[b_base + x * b_line + s if b_deep else b_base + s * b_line + x]
            total += left * right
        return total

    @device
    def place(pair, y0, x0):
        """Where in C a pair of results lies: fragment (i, j), upper or lower half."""
        return y0 + 16 * (pair // (2 * tiles_j)) + 8 * (pair & 1), x0 + 8 * ((pair >> 1) % tiles_j)

    @device
    def put_pair(pair, m, n, y0, x0, total, *where):
        y, x = place(pair, y0, x0)
        if y < m and x < n:
            i, j, q = pair // (2 * tiles_j), (pair >> 1) % tiles_j, (pair & 1) << 1
            put(y, x, total[i, j, q], total[i, j, q + 1], x + 1 < n, *where)

    put_all = unrolled(put_pair, pairs)

    @device
    def results(a, a_base, a_line, b, b_base, b_line, m, n, row, column, first, end, total, *where):
        lane = cuda.threadIdx.x & 31
        warp = cuda.threadIdx.x >> 5
        y0 = row + warp // warps_n * warp_m + (lane >> 2)
        x0 = column + warp % warps_n * warp_n + ((lane & 3) << 1)
        put_all(0, m, n, y0, x0, total, *where)
        if split:
            strange = int32(0)  # a bit for each pair that is not finite
            for i in range(tiles_i):
                for j in range(tiles_j):
                    for half in range(2):
                        one, two = total[i, j, 2 * half], total[i, j, 2 * half + 1]
                        if (one - one) + (two - two) != ZERO:
                            strange |= int32(1) << int32((i * tiles_j + j) * 2 + half)
            if strange != 0:
                for pair in range(opaque(pairs)):
                    rolled()
                    y, x = place(pair, y0, x0)
                    if (strange >> pair) & 1 and y < m and x < n:
                        one = again(a, a_base, a_line, b, b_base, b_line, y, x, first, end)
                        two = again(a, a_base, a_line, b, b_base, b_line, y, min(x + 1, n - 1), first, end)
                        put(y, x, one, two, x + 1 < n, *where)

    return results


def bounds_of(dtype: str, tiling: Tiling, vector: bool) -> tuple[int, int]:
    """Registers that a thread may have, and blocks that are meant to share a multiprocessor."""
    if dtype != "float32" and not vector:  # small tiles only: halves that come one by one take more indices
        return 255, 2
    return _BOUNDS.get(("float32" if dtype == "float32" else "half", tiling), (255, 0))


def layout_name(a_deep: bool, b_deep: bool, a_vector: bool, b_vector: bool) -> str:
    """Of each operand: deep or wide, copied 4 or 1 elements (of 4 bytes) at a time."""
    return "".join("wd"[deep] + "14"[vector] for deep, vector in ((a_deep, a_vector), (b_deep, b_vector)))


@cache
def tiled_kernel(
    dtype: str, tiling: Tiling, a_deep: bool, b_deep: bool, a_vector: bool, b_vector: bool, out: str
) -> Kernel:
    """The kernel for one layout of the operands (see `minigrad.kernels.cuda.tiles`) and dtype `out` of the result.

    Launch: grid (tiles of C, batches, chunks of k), `tiling.threads`, `tiling.shared_bytes`. A chunk is a multiple of
    the depth of a tile; chunk z of k goes to c + z * c_part.
    """
    bm, bn = tiling.m, tiling.n
    fragments = (*tiling.fragments, 4)
    accumulate = accumulator(dtype, tiling, a_deep, b_deep, a_vector, b_vector)
    store = store_pair(out)
    registers, blocks = bounds_of(dtype, tiling, a_vector and b_vector)

    @device
    def put(y, x, one, two, both, c, base, c_line, paired):
        store(c, base + y * c_line + x, one, two, both, paired != 0)

    results = results_of(dtype, tiling, a_deep, b_deep, put)
    layout = layout_name(a_deep, b_deep, a_vector, b_vector)

    @kernel(
        f"{POINTER[dtype]}, {POINTER[dtype]}, {POINTER[out]}, {_SIZES}",
        name=f"matmul_{dtype}_{bm}x{bn}_{layout}" + ("" if out == dtype else f"_to_{out}"),
        threads=tiling.threads,
        blocks=blocks,
        registers=registers,
    )
    def matmul_tiled(
        a, b, c, m, n, k, a_line, b_line, c_line, inner, a_outer, a_inner, b_outer, b_inner, c_outer, c_inner, chunk,
        c_part, paired,
    ):  # fmt: skip
        total = cuda.local.array(fragments, float32)
        tile_m, tile_n = tile_of(cuda.blockIdx.x, (m + bm - 1) // bm, (n + bn - 1) // bn)
        row, column = tile_m * bm, tile_n * bn
        a_base = batch_of(cuda.blockIdx.y, inner, a_outer, a_inner)
        b_base = batch_of(cuda.blockIdx.y, inner, b_outer, b_inner)
        c_base = batch_of(cuda.blockIdx.y, inner, c_outer, c_inner) + cuda.blockIdx.z * c_part
        first = cuda.blockIdx.z * chunk
        end = min(k, first + chunk)
        accumulate(a, a_base, a_line, b, b_base, b_line, m, n, row, column, first, end, total)
        results(
            a, a_base, a_line, b, b_base, b_line, m, n, row, column, first, end, total, c, c_base, c_line, paired,
        )  # fmt: skip

    return matmul_tiled


# --- any strides ----------------------------------------------------------------------------------------


@cache
def simple_kernel(dtype: str, tile: int) -> Kernel:
    """Tiles of C of tile x tile elements, (tile / 4)^2 threads, each 4 x 4 of them; every operand of any strides.

    Launch as `tiled_kernel`; for each matrix the stride of its rows and of its columns are given. Tile / 4
    elements of k are read at a time, the next ones on their way in registers; two loads of 128 bits from shared memory
    feed 16 multiply-adds. Lines in shared memory are 4 elements longer than the tile: rows of one k lie in different
    banks where a warp stores along k.
    """
    threads = (tile // 4) ** 2
    across = tile // 4
    depth = tile // 4
    line = tile + 4
    size, rounds = depth * line, tile * depth // threads
    widen, narrow = WIDEN[dtype], NARROW[dtype]

    @device
    def place(q, along_k):
        """(row, k) of the q-th element: neighbouring threads take what lies side by side in memory."""
        if along_k:
            return q // depth, q % depth
        return q % tile, q // tile

    @device
    def fetch(registers, source, base, row_stride, k_stride, row, rows_end, k, k_end):
        for u in range(rounds):
            r, c = place(cuda.threadIdx.x + u * threads, k_stride == 1)
            value = ZERO
            if row + r < rows_end and k + c < k_end:
                value = widen(source[base + (row + r) * row_stride + (k + c) * k_stride])
            registers[u] = value

    @device
    def spread(registers, shared, k_stride):
        for u in range(rounds):
            r, c = place(cuda.threadIdx.x + u * threads, k_stride == 1)
            shared[c * line + r] = registers[u]

    @kernel(
        f"{POINTER[dtype]}, {POINTER[dtype]}, {POINTER[dtype]}, {'int32, ' * 15}int32",
        name=f"matmul_simple_{dtype}_{tile}",
        threads=threads,
        registers=168,
    )
    def matmul_simple(
        a, b, c, m, n, k, a_row, a_k, b_column, b_k, c_row, c_column, inner, a_outer, a_inner, b_outer, b_inner,
        c_outer, c_inner,
    ):  # fmt: skip
        a_tile = cuda.shared.array(size, float32)
        b_tile = cuda.shared.array(size, float32)
        a_next = cuda.local.array(rounds, float32)
        b_next = cuda.local.array(rounds, float32)
        total = cuda.local.array((4, 4), float32)
        columns = (n + tile - 1) // tile
        row, column = cuda.blockIdx.x // columns * tile, cuda.blockIdx.x % columns * tile
        y, x = cuda.threadIdx.x // across * 4, cuda.threadIdx.x % across * 4
        a_base = batch_of(cuda.blockIdx.y, inner, a_outer, a_inner)
        b_base = batch_of(cuda.blockIdx.y, inner, b_outer, b_inner)
        for i in range(4):
            for j in range(4):
                total[i, j] = ZERO
        fetch(a_next, a, a_base, a_row, a_k, row, m, 0, k)
        fetch(b_next, b, b_base, b_column, b_k, column, n, 0, k)
        for first in range(0, k, depth):
            spread(a_next, a_tile, a_k)
            spread(b_next, b_tile, b_k)
            cuda.syncthreads()
            if first + depth < k:
                fetch(a_next, a, a_base, a_row, a_k, row, m, first + depth, k)
                fetch(b_next, b, b_base, b_column, b_k, column, n, first + depth, k)
            for s in range(depth):
                f = load4(a_tile, s * line + y)
                g = load4(b_tile, s * line + x)
                for i in range(4):
                    for j in range(4):
                        total[i, j] += f[i] * g[j]
            cuda.syncthreads()
        base = batch_of(cuda.blockIdx.y, inner, c_outer, c_inner)
        for i in range(4):
            for j in range(4):
                if row + y + i < m and column + x + j < n:
                    c[base + (row + y + i) * c_row + (column + x + j) * c_column] = narrow(total[i, j])

    return matmul_simple


# --- parts of a sum -------------------------------------------------------------------------------------


@cache
def sum_parts(dtype: str) -> Kernel:
    """y[i] = sum over p of x[p * size + i], in the order of p, for i < size. Launch: one thread an element."""
    narrow = NARROW[dtype]

    @kernel(f"float32*, {POINTER[dtype]}, int32, int32", name=f"matmul_sum_parts_{dtype}", threads=256, registers=40)
    def matmul_sum_parts(x, y, parts, size):
        i = cuda.grid(1)
        if i < size:
            total = ZERO
            for p in range(parts):
                total += x[p * size + i]
            y[i] = narrow(total)

    return matmul_sum_parts
