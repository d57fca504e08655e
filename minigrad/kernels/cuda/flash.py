"""Flash attention on the GPU: softmax(scale Q K^T over visible keys) V, forward and backward, nothing of size T^2 kept.

A block of 4 warps takes 64 rows (of queries; for dK and dV of keys), 16 a warp, and walks over the other side in tiles
that are copied while the last one is used. Scores live in registers; what makes the next product's left operand is
already there (`minigrad.kernels.cuda.head_tiles`). Tiles that causality or a window hides are
skipped.

    forward        S = Q K^T, the softmax kept up to date tile by tile (Milakov and Gimelshein 2018), O = P V
    grad_query     delta = rowsum(g O); dS = P (g V^T - delta) scale; dQ = dS K
    grad_key       the same transposed, a block a tile of keys: dV = P^T g, dK = dS^T Q

Both passes of the backward compute P again from the log-sum-exp (Dao 2023, with the loop over queries apart): 7
products instead of 5, but no atomics, so the same bits every time. Query heads may share key heads (grouped-query
attention): head h reads h / group, and a key head's gradients are summed over its group in order. What hides, slopes
and drops scores is in `minigrad.kernels.cuda.scores`; only dropout takes a kernel of its own (`dropping`).

Forward, T keys, head size d: 4 T d FLOPs a query row. A block reads keys and values once for 64 rows: 32 FLOPs a byte
of float32, 64 of halves, from the L2 cache (about 5.5 TB/s): tensor cores are the limit. Shared memory, the block's own
rows and two tiles of the other side: forward in float32 d = 64: 16 + 2 * 16 = 48 KB, d = 128: 96 KB; in halves (64 keys
a tile) 40 and 80 KB; backward in float32 d = 128: 96 KB. The launch bound is two blocks an SM (255 registers, 227 KB).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from minigrad.kernels.cuda.head_tiles import copier_of_rows, mix_of, scores_of
from minigrad.kernels.cuda.intrinsics import COPY_ASYNC_WAIT, copy_async_commit, exp2
from minigrad.kernels.cuda.language import Kernel, cuda, device, float32, int32, kernel
from minigrad.kernels.cuda.matmul import store_pair
from minigrad.kernels.cuda.scores import LOW, base_of, dropper, shader
from minigrad.kernels.cuda.teams import WARP, sums
from minigrad.kernels.cuda.tiles import CHUNK, ELEMENT, POINTER, WIDEN, ZERO

ONE = float32(1)
warp_sum = sums(WARP)
LOG2E, LN2 = float32(math.log2(math.e)), float32(math.log(2))


class Shape(NamedTuple):
    """How a kernel cuts its work: `warps` of 16 own rows; tiles of `columns` of the other side, `stages` at once."""

    warps: int
    columns: int
    stages: int

    @property
    def rows(self) -> int:
        return 16 * self.warps

    @property
    def threads(self) -> int:
        return 32 * self.warps


SHORT = Shape(1, 16, 2)  # up to 16 own rows: more warps would have nothing to do


def forward_shape(dtype: str, size: int, t_query: int, vector: bool = True, dropping: bool = False) -> Shape:
    """For head sizes filled up to `size`; wider tiles would need more registers than there are."""
    if t_query <= SHORT.rows:
        return SHORT
    ragged = size == 128 and not vector
    if dtype == "float32":
        return Shape(4, 16 if ragged else 32, 2)
    if vector:
        return Shape(4, 64, 2)
    return Shape(4, 16 if ragged and dropping else 32, 2)


def grad_query_shape(dtype: str, size: int, t_query: int, vector: bool = True, dropping: bool = False) -> Shape:
    if t_query <= SHORT.rows:
        return SHORT
    if dtype == "float32":
        return Shape(4, 32, 1 if size == 128 else 2)
    return Shape(4, 16 if size == 128 and not vector else 32, 2)


def grad_key_shape(dtype: str, size: int, t_key: int, vector: bool = True, dropping: bool = False) -> Shape:
    if t_key <= SHORT.rows:
        return SHORT
    if dtype == "float32" and size == 128:
        return Shape(4, 32, 1) if dropping else Shape(4, 16, 2)
    return Shape(4, 16 if size == 128 and not vector else 32, 2)


def grad_key_fits(dtype: str, size: int, vector: bool, dropping: bool) -> bool:
    """No cut of the work has registers for draws beside unaligned rows of 128 floats and both their gradients: such
    rows are copied to aligned ones before."""
    return not dropping or vector or (dtype, size) != ("float32", 128)


def shared_bytes(dtype: str, size: int, shape: Shape, own: int) -> int:
    """Dynamic shared memory: `own` tiles of the block's rows, two of the other side a stage."""
    return (own * shape.rows + 2 * shape.stages * shape.columns) * size * 16 // CHUNK[dtype]


def _name(kind: str, dtype: str, size: int, vector: bool, shape: Shape, dropping: bool) -> str:
    cut = f"{shape.warps}x{shape.columns}x{shape.stages}"
    return f"flash_{kind}_{dtype}_{size}_{cut}" + ("" if vector else "_ragged") + ("_dropping" if dropping else "")


def _copier_of_both(dtype: str, size: int, vector: bool, shape: Shape, first: int) -> Any:
    """The device function that begins copying a tile of x and one of y, rows from `row`: the other side's, at `slot`.

    Stages of x lie in shared memory from `first` on, those of y behind them.
    """
    copy = copier_of_rows(dtype, shape.columns, size, shape.threads, vector)
    tile = shape.columns * size
    second = first + shape.stages * tile

    @device
    def copy_both(shared, slot, x, x_base, x_at, y, y_base, y_at, row, rows_end, sizes):
        copy(shared, first + slot * tile, x, x_base, x_at.row, row, rows_end, sizes.d_key)
        copy(shared, second + slot * tile, y, y_base, y_at.row, row, rows_end, sizes.d_value)

    return copy_both


def _scorer(dtype: str, size: int, shape: Shape, transposed: bool) -> Any:
    """The device function that makes the scores s of a warp's rows, to the base 2, -inf where they may not be seen.

    Rows from `row` (the warp's from row + row_w) lie in shared memory at `own`, columns from `column` at `other`:
    queries and keys, or keys and queries if transposed. Only tiles that need it are looked at one by one.
    """
    rows, columns, tiles = shape.rows, shape.columns, shape.columns // 8
    scores, shade = scores_of(dtype, size, columns), shader(tiles, transposed)

    @device
    def scored(shared, own, row, row_w, other, column, lane, s, factor, sizes, seen, slope, mask, m_base, mask_at):
        scores(shared, own, row_w, other, lane, s)
        for j in range(tiles):
            for q in range(4):
                s[j, q] *= factor
        i, k, i_end, k_end = row, column, row + rows, column + columns
        if transposed:
            i, k, i_end, k_end = column, row, column + columns, row + rows
        inside = i_end <= sizes.t_query and k_end <= min(sizes.t_key, i + seen.reach) and k >= i_end - 1 + seen.low
        if not inside or seen.masked + seen.sloped != 0:
            shade(s, row + row_w, column, lane, sizes, seen, slope, mask, m_base, mask_at)

    return scored


def _write(dtype: str, tiles: int) -> Any:
    """The device function that writes a warp's 16 rows o of `width` elements, times f0 (rows g) and f1 (rows g + 8)."""
    store = store_pair(dtype)

    @device
    def write(o, target, base, line, row, rows_end, width, lane, f0, f1, paired):
        for half in range(2):
            y = row + (lane >> 2) + 8 * half
            f = f0 if half == 0 else f1
            if y < rows_end:
                for n in range(tiles):
                    x = 8 * n + ((lane & 3) << 1)
                    if x < width:
                        at = base + y * line + x
                        store(target, at, o[n, 2 * half] * f, o[n, 2 * half + 1] * f, x + 1 < width, paired != 0)

    return write


def _signature(dtype: str, arrays: Sequence[str], strides: Sequence[str]) -> str:
    """Of a kernel: queries, keys, values, mask, slopes, draw; its own arrays; strides of all; what scores are told."""
    given = [POINTER[dtype]] * 3 + ["uint8*", "float32*", "int64*"]
    return ", ".join([*given, *arrays, *strides, "MaskRows, Sizes, Seen, int32, int32, float32, float32"])


@cache
def forward_kernel(dtype: str, size: int, vector: bool, shape: Shape, dropping: bool = False) -> Kernel:
    """Output and log-sum-exp. Launch: grid (ceil(Tq / shape.rows), heads, batches), shape.threads.

    size: head size that rows are filled up to; vector: rows are in aligned 16-byte pieces (`copier_of_rows`).
    """
    columns, stages, threads = shape.columns, shape.stages, shape.threads
    rows, tiles, out_tiles = shape.rows, columns // 8, size // 8
    element = ELEMENT[dtype]
    copy_own = copier_of_rows(dtype, rows, size, threads, vector)
    scored, mix = _scorer(dtype, size, shape, False), mix_of(dtype, size, columns)
    kept, write = dropper(tiles, False), _write(dtype, out_tiles)
    wait = COPY_ASYNC_WAIT[stages - 1]
    tile = columns * size
    first_key = rows * size
    first_value = first_key + stages * tile
    copy = _copier_of_both(dtype, size, vector, shape, first_key)
    ahead = stages - 1

    @kernel(
        _signature(dtype, [POINTER[dtype], "float32*"], ["Rows"] * 4),
        name=_name("forward", dtype, size, vector, shape, dropping),
        threads=threads,
        blocks=2,
    )
    def flash_forward(
        query, key, value, mask, slopes, draw, out, lse, q_at, k_at, v_at, o_at,
        mask_at, sizes, seen, drops, paired, keeps, scale,
    ):  # fmt: skip
        shared = cuda.shared.array(0, element)
        s = cuda.local.array((tiles, 4), float32)
        o = cuda.local.array((out_tiles, 4), float32)
        lane = cuda.threadIdx.x & 31
        row_w = (cuda.threadIdx.x >> 5) * 16
        row = cuda.blockIdx.x * rows
        head, batch = cuda.blockIdx.y, cuda.blockIdx.z
        q_base = base_of(q_at, batch, head)
        k_base = base_of(k_at, batch, head // sizes.group)
        v_base = base_of(v_at, batch, head // sizes.group)
        m_base = base_of(mask_at, batch, head)
        l_base = (batch * sizes.heads + head) * sizes.t_query
        begin = max(row + seen.low, 0) // columns * columns  # the keys that the block's queries see
        end = min(sizes.t_key, row + rows - 1 + seen.reach)
        count = max((end - begin + columns - 1) // columns, 0)
        slope = slopes[head] * LOG2E if seen.sloped != 0 else ZERO
        for n in range(out_tiles):
            for q in range(4):
                o[n, q] = ZERO
        peak0, peak1, sum0, sum1 = LOW, LOW, ZERO, ZERO
        factor = scale * LOG2E
        copy_own(shared, 0, query, q_base, q_at.row, row, sizes.t_query, sizes.d_key)
        for i in range(ahead):
            if i < count:
                copy(shared, i, key, k_base, k_at, value, v_base, v_at, begin + i * columns, sizes.t_key, sizes)
            copy_async_commit()
        for i in range(count):
            new = i + ahead
            if new < count:
                row_k = begin + new * columns
                copy(shared, new % stages, key, k_base, k_at, value, v_base, v_at, row_k, sizes.t_key, sizes)
            copy_async_commit()
            wait()
            cuda.syncthreads()
            now = i % stages * tile
            column = begin + i * columns
            scored(
                shared,
                0,
                row,
                row_w,
                first_key + now,
                column,
                lane,
                s,
                factor,
                sizes,
                seen,
                slope,
                mask,
                m_base,
                mask_at,
            )
            high0, high1 = peak0, peak1
            for j in range(tiles):
                high0 = max(high0, max(s[j, 0], s[j, 1]))
                high1 = max(high1, max(s[j, 2], s[j, 3]))
            high0 = max(high0, cuda.shfl_xor_sync(0xFFFFFFFF, high0, 1))
            high0 = max(high0, cuda.shfl_xor_sync(0xFFFFFFFF, high0, 2))
            high1 = max(high1, cuda.shfl_xor_sync(0xFFFFFFFF, high1, 1))
            high1 = max(high1, cuda.shfl_xor_sync(0xFFFFFFFF, high1, 2))
            base0 = high0 if high0 > LOW else ZERO  # no key seen yet: every weight is exp2(-inf)
            base1 = high1 if high1 > LOW else ZERO
            f0, f1 = exp2(peak0 - base0), exp2(peak1 - base1)
            peak0, peak1 = high0, high1
            sum0 *= f0
            sum1 *= f1
            for j in range(tiles):
                s[j, 0] = exp2(s[j, 0] - base0)
                s[j, 1] = exp2(s[j, 1] - base0)
                s[j, 2] = exp2(s[j, 2] - base1)
                s[j, 3] = exp2(s[j, 3] - base1)
                sum0 += s[j, 0] + s[j, 1]
                sum1 += s[j, 2] + s[j, 3]
            if dropping:
                bits = kept(draw, drops, l_base, row + row_w, column, lane, sizes)
                for j in range(tiles):
                    for q in range(4):
                        s[j, q] = s[j, q] * keeps if (bits >> (4 * j + q)) & 1 else ZERO
            mix(s, shared, first_value + now, lane, o, f0, f1)
            cuda.syncthreads()
        sum0 += cuda.shfl_xor_sync(0xFFFFFFFF, sum0, 1)
        sum0 += cuda.shfl_xor_sync(0xFFFFFFFF, sum0, 2)
        sum1 += cuda.shfl_xor_sync(0xFFFFFFFF, sum1, 1)
        sum1 += cuda.shfl_xor_sync(0xFFFFFFFF, sum1, 2)
        if (lane & 3) == 0:
            for half in range(2):
                total, peak = (sum0, peak0) if half == 0 else (sum1, peak1)
                y = row + row_w + (lane >> 2) + 8 * half
                if y < sizes.t_query:
                    lse[l_base + y] = math.log(total) + peak * LN2 if total != ZERO else LOW
        share0 = ONE / sum0 if sum0 != ZERO else ZERO
        share1 = ONE / sum1 if sum1 != ZERO else ZERO
        o_base = base_of(o_at, batch, head)
        write(o, out, o_base, o_at.row, row + row_w, sizes.t_query, sizes.d_value, lane, share0, share1, paired)

    return flash_forward


@cache
def grad_query_kernel(dtype: str, size: int, vector: bool, shape: Shape, dropping: bool = False) -> Kernel:
    """dQ, and delta: rowsum(g O) of every query. Launch as `forward_kernel`, over queries."""
    columns, stages, threads = shape.columns, shape.stages, shape.threads
    rows, tiles, out_tiles = shape.rows, columns // 8, size // 8
    element, widen = ELEMENT[dtype], WIDEN[dtype]
    copy_own = copier_of_rows(dtype, rows, size, threads, vector)
    scores, mix = scores_of(dtype, size, columns), mix_of(dtype, size, columns)
    scored, kept, write = _scorer(dtype, size, shape, False), dropper(tiles, False), _write(dtype, out_tiles)
    wait = COPY_ASYNC_WAIT[stages - 1]
    tile = columns * size
    first_g = rows * size
    first_key = 2 * rows * size
    first_value = first_key + stages * tile
    copy = _copier_of_both(dtype, size, vector, shape, first_key)
    ahead = stages - 1

    @kernel(
        _signature(dtype, [POINTER[dtype]] * 2 + ["float32*", "float32*", POINTER[dtype]], ["Rows"] * 6),
        name=_name("grad_query", dtype, size, vector, shape, dropping),
        threads=threads,
        blocks=2,
    )
    def flash_grad_query(
        query, key, value, mask, slopes, draw, g, result, lse, delta, d_query, q_at, k_at, v_at, g_at, r_at, o_at,
        mask_at, sizes, seen, drops, paired, keeps, scale,
    ):  # fmt: skip
        shared = cuda.shared.array(0, element)
        s = cuda.local.array((tiles, 4), float32)
        d = cuda.local.array((tiles, 4), float32)
        o = cuda.local.array((out_tiles, 4), float32)
        lane = cuda.threadIdx.x & 31
        row_w = (cuda.threadIdx.x >> 5) * 16
        row = cuda.blockIdx.x * rows
        head, batch = cuda.blockIdx.y, cuda.blockIdx.z
        g_base, r_base = base_of(g_at, batch, head), base_of(r_at, batch, head)
        k_base = base_of(k_at, batch, head // sizes.group)
        v_base = base_of(v_at, batch, head // sizes.group)
        m_base = base_of(mask_at, batch, head)
        l_base = (batch * sizes.heads + head) * sizes.t_query
        begin = max(row + seen.low, 0) // columns * columns  # the keys that the block's queries see
        end = min(sizes.t_key, row + rows - 1 + seen.reach)
        count = max((end - begin + columns - 1) // columns, 0)
        slope = slopes[head] * LOG2E if seen.sloped != 0 else ZERO
        copy_own(shared, 0, query, base_of(q_at, batch, head), q_at.row, row, sizes.t_query, sizes.d_key)
        copy_own(shared, first_g, g, g_base, g_at.row, row, sizes.t_query, sizes.d_value)
        for i in range(ahead):
            if i < count:
                copy(shared, i, key, k_base, k_at, value, v_base, v_at, begin + i * columns, sizes.t_key, sizes)
            copy_async_commit()
        delta0, delta1, base0, base1 = ZERO, ZERO, ZERO, ZERO
        for r in range(16):
            y = row + row_w + r
            if y < sizes.t_query:
                inner = ZERO
                for x in range(lane, sizes.d_value, 32):
                    inner += widen(g[g_base + y * g_at.row + x]) * widen(result[r_base + y * r_at.row + x])
                inner = warp_sum(inner, None)
                height = lse[l_base + y]
                base = height * LOG2E if height > LOW or height != height else ZERO  # -inf: no key seen
                if lane == 0:
                    delta[l_base + y] = inner
                if lane >> 2 == r:
                    delta0, base0 = inner, base
                if (lane >> 2) + 8 == r:
                    delta1, base1 = inner, base
        for n in range(out_tiles):
            for q in range(4):
                o[n, q] = ZERO
        factor = scale * LOG2E
        for i in range(count):
            new = i + ahead
            if new < count:
                row_k = begin + new * columns
                copy(shared, new % stages, key, k_base, k_at, value, v_base, v_at, row_k, sizes.t_key, sizes)
            copy_async_commit()
            wait()
            cuda.syncthreads()
            now = i % stages * tile
            column = begin + i * columns
            scored(
                shared,
                0,
                row,
                row_w,
                first_key + now,
                column,
                lane,
                s,
                factor,
                sizes,
                seen,
                slope,
                mask,
                m_base,
                mask_at,
            )
            bits = kept(draw, drops, l_base, row + row_w, column, lane, sizes) if dropping else int32(0)
            scores(shared, first_g, row_w, first_value + now, lane, d)
            for j in range(tiles):
                for q in range(4):
                    p, dp = exp2(s[j, q] - (base0 if q < 2 else base1)), d[j, q]
                    if dropping:
                        dp = dp * keeps if (bits >> (4 * j + q)) & 1 else ZERO
                    s[j, q] = p * (dp - (delta0 if q < 2 else delta1)) * scale
            mix(s, shared, first_key + now, lane, o, ONE, ONE)
            cuda.syncthreads()
        o_base = base_of(o_at, batch, head)
        write(o, d_query, o_base, o_at.row, row + row_w, sizes.t_query, sizes.d_key, lane, ONE, ONE, paired)

    return flash_grad_query


@cache
def grad_key_kernel(dtype: str, size: int, vector: bool, shape: Shape, dropping: bool = False) -> Kernel:
    """dK and dV from delta. Launch: grid (ceil(Tk / shape.rows), key heads, batches), shape.threads."""
    columns, stages, threads = shape.columns, shape.stages, shape.threads
    rows, tiles, out_tiles = shape.rows, columns // 8, size // 8
    element = ELEMENT[dtype]
    copy_own = copier_of_rows(dtype, rows, size, threads, vector)
    scores, mix = scores_of(dtype, size, columns), mix_of(dtype, size, columns)
    scored, kept, write = _scorer(dtype, size, shape, True), dropper(tiles, True), _write(dtype, out_tiles)
    wait = COPY_ASYNC_WAIT[stages - 1]
    tile = columns * size
    own_value = rows * size
    first_query = 2 * rows * size
    first_g = first_query + stages * tile
    copy = _copier_of_both(dtype, size, vector, shape, first_query)
    ahead = stages - 1
    held = 2 * stages * columns

    @device
    def note(statistics, slot, lse, delta, base, first, t_query):
        """The tile's log-sum-exps (to the base 2) and deltas into shared memory."""
        for c in range(cuda.threadIdx.x, columns, threads):
            height, inner = ZERO, ZERO
            if first + c < t_query:
                height, inner = lse[base + first + c] * LOG2E, delta[base + first + c]
                if height == LOW:  # no key seen
                    height = ZERO
            statistics[2 * slot * columns + c] = height
            statistics[(2 * slot + 1) * columns + c] = inner

    @kernel(
        _signature(dtype, [POINTER[dtype], "float32*", "float32*"] + [POINTER[dtype]] * 2, ["Rows"] * 6),
        name=_name("grad_key", dtype, size, vector, shape, dropping),
        threads=threads,
        blocks=2,
    )
    def flash_grad_key(
        query, key, value, mask, slopes, draw, g, lse, delta, d_key, d_value, q_at, k_at, v_at, g_at, dk_at, dv_at,
        mask_at, sizes, seen, drops, paired, keeps, scale,
    ):  # fmt: skip
        shared = cuda.shared.array(0, element)
        statistics = cuda.shared.array(held, float32)
        s = cuda.local.array((tiles, 4), float32)
        d = cuda.local.array((tiles, 4), float32)
        o_key = cuda.local.array((out_tiles, 4), float32)
        o_value = cuda.local.array((out_tiles, 4), float32)
        lane = cuda.threadIdx.x & 31
        row_w = (cuda.threadIdx.x >> 5) * 16
        row = cuda.blockIdx.x * rows
        key_head, batch = cuda.blockIdx.y, cuda.blockIdx.z
        begin = max(row - seen.reach + 1, 0) // columns * columns  # the queries that see the block's keys
        end = min(sizes.t_query, row + rows - seen.low)
        steps = max((end - begin + columns - 1) // columns, 0)
        count = sizes.group * steps
        k_base, v_base = base_of(k_at, batch, key_head), base_of(v_at, batch, key_head)
        copy_own(shared, 0, key, k_base, k_at.row, row, sizes.t_key, sizes.d_key)
        copy_own(shared, own_value, value, v_base, v_at.row, row, sizes.t_key, sizes.d_value)
        for n in range(out_tiles):
            for q in range(4):
                o_key[n, q] = ZERO
                o_value[n, q] = ZERO
        factor = scale * LOG2E
        for i in range(-ahead, count):
            new = i + ahead
            if new < count:
                head = key_head * sizes.group + new // steps
                first = begin + new % steps * columns
                q_base, g_base = base_of(q_at, batch, head), base_of(g_at, batch, head)
                copy(shared, new % stages, query, q_base, q_at, g, g_base, g_at, first, sizes.t_query, sizes)
                l_base = (batch * sizes.heads + head) * sizes.t_query
                note(statistics, new % stages, lse, delta, l_base, first, sizes.t_query)
            copy_async_commit()
            if i >= 0:
                wait()
                cuda.syncthreads()
                head = key_head * sizes.group + i // steps
                column = begin + i % steps * columns
                slot = i % stages
                now = slot * tile
                slope = slopes[head] * LOG2E if seen.sloped != 0 else ZERO
                m_base = base_of(mask_at, batch, head)
                scored(
                    shared, 0, row, row_w, first_query + now, column, lane, s, factor, sizes, seen, slope, mask, m_base,
                    mask_at,
                )  # fmt: skip
                for j in range(tiles):
                    for q in range(4):
                        c = 8 * j + ((lane & 3) << 1) + (q & 1)
                        s[j, q] = exp2(s[j, q] - statistics[2 * slot * columns + c])
                bits = int32(0)
                if dropping:
                    l_base = (batch * sizes.heads + head) * sizes.t_query
                    bits = kept(draw, drops, l_base, row + row_w, column, lane, sizes)
                    for j in range(tiles):
                        for q in range(4):
                            d[j, q] = s[j, q] * keeps if (bits >> (4 * j + q)) & 1 else ZERO
                    mix(d, shared, first_g + now, lane, o_value, ONE, ONE)
                else:
                    mix(s, shared, first_g + now, lane, o_value, ONE, ONE)
                scores(shared, own_value, row_w, first_g + now, lane, d)
                for j in range(tiles):
                    for q in range(4):
                        c = 8 * j + ((lane & 3) << 1) + (q & 1)
                        dp = d[j, q]
                        if dropping:
                            dp = dp * keeps if (bits >> (4 * j + q)) & 1 else ZERO
                        s[j, q] *= (dp - statistics[(2 * slot + 1) * columns + c]) * scale
                mix(s, shared, first_query + now, lane, o_key, ONE, ONE)
                cuda.syncthreads()
        base = base_of(dk_at, batch, key_head)
        write(o_key, d_key, base, dk_at.row, row + row_w, sizes.t_key, sizes.d_key, lane, ONE, ONE, paired)
        base = base_of(dv_at, batch, key_head)
        write(o_value, d_value, base, dv_at.row, row + row_w, sizes.t_key, sizes.d_value, lane, ONE, ONE, paired)

    return flash_grad_key
