"""Products with few rows: C (m x n) = A (m x k) B (k x n) for m up to 8, as every step of decoding computes them.

Each element of B is used m times, so reading B is all that counts: 4 bytes (float32) for 2 m FLOPs, at 4.8 TB/s on an
H200. A comes from the caches. Sums stay in registers; neither kernel needs more than 8 KB of shared memory, and both
run 8 blocks of 8 warps an SM. A column vector (n up to 8) is the same with the operands exchanged.

    deep    lines of B run along k (the weights of a linear layer, (out, in)): a warp sums one column, its lanes 16
            bytes of k each: 512 bytes of a line at once
    wide    lines run along n: a lane sums 16 bytes of columns, a block's 8 warps take every eighth k; k is cut into
            chunks too (`blockIdx.z`) where n gives too few blocks; `minigrad.kernels.cuda.matmul.sum_parts` adds them
"""

from __future__ import annotations

from functools import cache

from minigrad.kernels.cuda.language import Kernel, cuda, float32, kernel
from minigrad.kernels.cuda.matmul import batch_of
from minigrad.kernels.cuda.teams import WARP, sums
from minigrad.kernels.cuda.tiles import NARROW, POINTER, WIDEN, ZERO, loads

ROWS = (1, 2, 4, 8)  # rows of A that a variant serves at most
WARPS = 8
warp_sum = sums(WARP)


@cache
def deep_matvec(dtype: str, rows: int, vector: bool) -> Kernel:
    """B in lines along k, and A too; vector: both in aligned 16-byte pieces, of which k is a multiple.

    Launch: grid (ceil(n / WARPS), batches), 32 WARPS threads.
    """
    load, width = loads(dtype, vector)
    narrow = NARROW[dtype]
    step = 32 * width

    @kernel(
        f"{POINTER[dtype]}, {POINTER[dtype]}, {POINTER[dtype]}, {'int32, ' * 13}int32",
        name=f"matvec_deep_{dtype}_{rows}" + ("" if vector else "_ragged"),
        threads=32 * WARPS,
        registers=128,
    )
    def matvec_deep(
        a, b, c, m, n, k, a_row, b_line, c_row, c_column, inner, a_outer, a_inner, b_outer, b_inner, c_outer, c_inner
    ):  # fmt: skip
        total = cuda.local.array(rows, float32)
        lane = cuda.threadIdx.x & 31
        column = cuda.blockIdx.x * WARPS + (cuda.threadIdx.x >> 5)
        if column < n:
            a_base = batch_of(cuda.blockIdx.y, inner, a_outer, a_inner)
            b_base = batch_of(cuda.blockIdx.y, inner, b_outer, b_inner) + column * b_line
            for r in range(rows):
                total[r] = ZERO
            for p in range(lane * width, k, step):
                w = load(b, b_base + p)
                for r in range(rows):
                    x = load(a, a_base + min(r, m - 1) * a_row + p)
                    for q in range(width):
                        total[r] += w[q] * x[q]
            c_base = batch_of(cuda.blockIdx.y, inner, c_outer, c_inner) + column * c_column
            for r in range(rows):
                value = warp_sum(total[r], None)
                if lane == 0 and r < m:
                    c[c_base + r * c_row] = narrow(value)

    return matvec_deep


@cache
def wide_matvec(dtype: str, rows: int, vector: bool, out: str) -> Kernel:
    """B in lines along n; vector: in aligned 16-byte pieces, of which n is a multiple. A of any strides.

    Launch: grid (ceil(n / (32 w)), batches, chunks of k), 32 WARPS threads; w = 16 bytes of elements, or one. Chunk z
    goes to c + z * c_part.
    """
    load, width = loads(dtype, vector)
    widen, narrow = WIDEN[dtype], NARROW[out]
    columns = 32 * width
    held = WARPS * columns
    threads = 32 * WARPS

    @kernel(
        f"{POINTER[dtype]}, {POINTER[dtype]}, {POINTER[out]}, {'int32, ' * 16}int32",
        name=f"matvec_wide_{dtype}_{rows}" + ("" if vector else "_ragged") + ("" if out == dtype else f"_to_{out}"),
        threads=threads,
        registers=128,
    )
    def matvec_wide(
        a, b, c, m, n, k, a_row, a_k, b_line, c_row, c_column, inner, a_outer, a_inner, b_outer, b_inner, c_outer,
        c_inner, chunk, c_part,
    ):  # fmt: skip
        parts = cuda.shared.array(held, float32)
        total = cuda.local.array((rows, width), float32)
        lane = cuda.threadIdx.x & 31
        warp = cuda.threadIdx.x >> 5
        column = cuda.blockIdx.x * columns + lane * width
        a_base = batch_of(cuda.blockIdx.y, inner, a_outer, a_inner)
        b_base = batch_of(cuda.blockIdx.y, inner, b_outer, b_inner) + column
        first = cuda.blockIdx.z * chunk
        for r in range(rows):
            for q in range(width):
                total[r, q] = ZERO
        if column < n:
            for p in range(first + warp, min(k, first + chunk), WARPS):
                w = load(b, b_base + p * b_line)
                for r in range(rows):
                    x = widen(a[a_base + min(r, m - 1) * a_row + p * a_k])
                    for q in range(width):
                        total[r, q] += w[q] * x
        c_base = batch_of(cuda.blockIdx.y, inner, c_outer, c_inner) + cuda.blockIdx.z * c_part
        for r in range(rows):
            for q in range(width):
                parts[warp * columns + lane * width + q] = total[r, q]
            cuda.syncthreads()
            for j in range(cuda.threadIdx.x, columns, threads):
                x = cuda.blockIdx.x * columns + j
                if x < n and r < m:
                    value = ZERO
                    for v in range(WARPS):
                        value += parts[v * columns + j]
                    c[c_base + r * c_row + x * c_column] = narrow(value)
            cuda.syncthreads()

    return matvec_wide
