"""Flash attention on the GPU: softmax(scale Q K^T over visible keys) V, forward and backward, nothing of size T^2 kept.

A block of 4 warps takes 64 rows (of queries; for dK and dV of keys), 16 a warp, and walks over the other side in tiles
that are copied while the last one is used. Scores live in registers; what makes the next product's left operand is
already there (`minigrad.kernels.cuda.head_tiles`). Hidden tiles of the causal half are skipped.

    forward        S = Q K^T, the softmax kept up to date tile by tile (Milakov and Gimelshein 2018), O = P V
    grad_query     delta = rowsum(g O); dS = P (g V^T - delta) scale; dQ = dS K
    grad_key       the same transposed, a block a tile of keys: dV = P^T g, dK = dS^T Q

Both passes of the backward compute P again from the log-sum-exp (Dao 2023, with the loop over queries apart): 7
products instead of 5, but no atomics, so the same bits every time. Query heads may share key heads (grouped-query
attention): head h reads h / group, and a key head's gradients are summed over its group in order.

Forward, T keys, head size d: 4 T d FLOPs a query row. A block reads keys and values once for 64 rows: 32 FLOPs a byte
of float32, 64 of halves, from the L2 cache (about 5.5 TB/s): tensor cores are the limit. Shared memory, the block's own
rows and two tiles of the other side: forward in float32 d = 64: 16 + 2 * 16 = 48 KB, d = 128: 96 KB; in halves (64 keys
a tile) 40 and 80 KB; backward in float32 d = 128: 96 KB. The launch bound is two blocks an SM (255 registers, 227 KB).
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any, NamedTuple

from minigrad.kernels.cuda.head_tiles import copier_of_rows, mix_of, scores_of
from minigrad.kernels.cuda.intrinsics import COPY_ASYNC_WAIT, copy_async_commit, exp2
from minigrad.kernels.cuda.language import Kernel, cuda, device, float32, kernel
from minigrad.kernels.cuda.matmul import store_pair
from minigrad.kernels.cuda.teams import WARP, sums
from minigrad.kernels.cuda.tiles import CHUNK, ELEMENT, POINTER, WIDEN, ZERO

ONE, LOW = float32(1), float32(-math.inf)
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


def forward_shape(dtype: str, size: int, t_query: int, vector: bool = True) -> Shape:
    """For head sizes filled up to `size`; wider tiles would need more registers than there are."""
    return SHORT if t_query <= SHORT.rows else Shape(4, 64 if vector and dtype != "float32" else 32, 2)


def grad_query_shape(dtype: str, size: int, t_query: int) -> Shape:
    return SHORT if t_query <= SHORT.rows else Shape(4, 32, 1 if dtype == "float32" and size == 128 else 2)


def grad_key_shape(dtype: str, size: int, t_key: int) -> Shape:
    return SHORT if t_key <= SHORT.rows else Shape(4, 16 if dtype == "float32" and size == 128 else 32, 2)


def shared_bytes(dtype: str, size: int, shape: Shape, own: int) -> int:
    """Dynamic shared memory: `own` tiles of the block's rows, two of the other side a stage."""
    return (own * shape.rows + 2 * shape.stages * shape.columns) * size * 16 // CHUNK[dtype]


def _name(kind: str, dtype: str, size: int, vector: bool, shape: Shape) -> str:
    return f"flash_{kind}_{dtype}_{size}_{shape.warps}x{shape.columns}x{shape.stages}" + ("" if vector else "_ragged")


def _hide(tiles: int, transposed: bool) -> Any:
    """The device function that makes scores -inf that may not be seen. Query i sees keys below i + reach.

    The 16 rows begin at `row`, the columns at `column`: queries and keys, or keys and queries if transposed.
    """

    @device
    def hide(s, row, column, t_query, t_key, reach, lane, mask, m_base, m_q, m_k, masked):
        for j in range(tiles):
            for q in range(4):
                y = row + (lane >> 2) + ((q >> 1) << 3)
                x = column + 8 * j + ((lane & 3) << 1) + (q & 1)
                i, k = (x, y) if transposed else (y, x)
                seen = i < t_query and k < t_key and k < i + reach
                if seen and masked != 0:
                    seen = mask[m_base + i * m_q + k * m_k] != 0
                if not seen:
                    s[j, q] = LOW

    return hide


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


@cache
def forward_kernel(dtype: str, size: int, vector: bool, shape: Shape) -> Kernel:
    """Output and log-sum-exp. Launch: grid (ceil(Tq / shape.rows), heads, batches), shape.threads.

    size: head size that rows are filled up to; vector: rows are in aligned 16-byte pieces (`copier_of_rows`).
    """
    columns, stages, threads = shape.columns, shape.stages, shape.threads
    rows, tiles, out_tiles = shape.rows, columns // 8, size // 8
    element = ELEMENT[dtype]
    copy_own = copier_of_rows(dtype, rows, size, threads, vector)
    copy = copier_of_rows(dtype, columns, size, threads, vector)
    scores, mix = scores_of(dtype, size, columns), mix_of(dtype, size, columns)
    hide, write = _hide(tiles, False), _write(dtype, out_tiles)
    wait = COPY_ASYNC_WAIT[stages - 1]
    tile = columns * size
    first_key = rows * size
    first_value = first_key + stages * tile
    ahead = stages - 1

    @kernel(
        f"{POINTER[dtype]}, {POINTER[dtype]}, {POINTER[dtype]}, uint8*, {POINTER[dtype]}, float32*, "
        + "int32, " * 25
        + "float32",
        name=_name("forward", dtype, size, vector, shape),
        threads=threads,
        blocks=2,
    )
    def flash_forward(
        query, key, value, mask, out, lse, t_query, t_key, d_key, d_value, heads, group,
        q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, o_b, o_h, o_t, m_b, m_h, m_q, m_k, masked, causal, paired, scale,
    ):  # fmt: skip
        shared = cuda.shared.array(0, element)
        s = cuda.local.array((tiles, 4), float32)
        o = cuda.local.array((out_tiles, 4), float32)
        lane = cuda.threadIdx.x & 31
        row_w = (cuda.threadIdx.x >> 5) * 16
        row = cuda.blockIdx.x * rows
        head, batch = cuda.blockIdx.y, cuda.blockIdx.z
        q_base = batch * q_b + head * q_h
        k_base = batch * k_b + head // group * k_h
        v_base = batch * v_b + head // group * v_h
        m_base = batch * m_b + head * m_h
        reach = t_key - t_query + 1 if causal != 0 else t_key
        end = t_key
        if causal != 0:
            end = max(min(t_key, row + rows - 1 + reach), 0)
        count = (end + columns - 1) // columns
        for n in range(out_tiles):
            for q in range(4):
                o[n, q] = ZERO
        peak0, peak1, sum0, sum1 = LOW, LOW, ZERO, ZERO
        factor = scale * LOG2E
        copy_own(shared, 0, query, q_base, q_t, row, t_query, d_key)
        for i in range(ahead):
            if i < count:
                copy(shared, first_key + i * tile, key, k_base, k_t, i * columns, t_key, d_key)
                copy(shared, first_value + i * tile, value, v_base, v_t, i * columns, t_key, d_value)
            copy_async_commit()
        for i in range(count):
            new = i + ahead
            if new < count:
                free = new % stages * tile
                copy(shared, first_key + free, key, k_base, k_t, new * columns, t_key, d_key)
                copy(shared, first_value + free, value, v_base, v_t, new * columns, t_key, d_value)
            copy_async_commit()
            wait()
            cuda.syncthreads()
            now = i % stages * tile
            scores(shared, 0, row_w, first_key + now, lane, s)
            for j in range(tiles):
                for q in range(4):
                    s[j, q] *= factor
            limit = (i + 1) * columns
            if masked != 0 or limit > t_key or (causal != 0 and limit > row + reach):
                hide(s, row + row_w, i * columns, t_query, t_key, reach, lane, mask, m_base, m_q, m_k, masked)
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
                if y < t_query:
                    lse[(batch * heads + head) * t_query + y] = math.log(total) + peak * LN2 if total != ZERO else LOW
        share0 = ONE / sum0 if sum0 != ZERO else ZERO
        share1 = ONE / sum1 if sum1 != ZERO else ZERO
        o_base = batch * o_b + head * o_h
        write(o, out, o_base, o_t, row + row_w, t_query, d_value, lane, share0, share1, paired)

    return flash_forward


@cache
def grad_query_kernel(dtype: str, size: int, vector: bool, shape: Shape) -> Kernel:
    """dQ, and delta: rowsum(g O) of every query. Launch as `forward_kernel`, over queries."""
    columns, stages, threads = shape.columns, shape.stages, shape.threads
    rows, tiles, out_tiles = shape.rows, columns // 8, size // 8
    element, widen = ELEMENT[dtype], WIDEN[dtype]
    copy_own = copier_of_rows(dtype, rows, size, threads, vector)
    copy = copier_of_rows(dtype, columns, size, threads, vector)
    scores, mix = scores_of(dtype, size, columns), mix_of(dtype, size, columns)
    hide, write = _hide(tiles, False), _write(dtype, out_tiles)
    wait = COPY_ASYNC_WAIT[stages - 1]
    tile = columns * size
    first_g = rows * size
    first_key = 2 * rows * size
    first_value = first_key + stages * tile
    ahead = stages - 1

    @kernel(
        ", ".join([POINTER[dtype]] * 5 + ["float32*", "uint8*", "float32*", POINTER[dtype]])
        + ", int32" * 31
        + ", float32",
        name=_name("grad_query", dtype, size, vector, shape),
        threads=threads,
        blocks=2,
    )
    def flash_grad_query(
        g, query, key, value, result, lse, mask, delta, d_query, t_query, t_key, d_key, d_value, heads, group,
        g_b, g_h, g_t, q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, r_b, r_h, r_t, o_b, o_h, o_t, m_b, m_h, m_q, m_k,
        masked, causal, paired, scale,
    ):  # fmt: skip
        shared = cuda.shared.array(0, element)
        s = cuda.local.array((tiles, 4), float32)
        d = cuda.local.array((tiles, 4), float32)
        o = cuda.local.array((out_tiles, 4), float32)
        lane = cuda.threadIdx.x & 31
        row_w = (cuda.threadIdx.x >> 5) * 16
        row = cuda.blockIdx.x * rows
        head, batch = cuda.blockIdx.y, cuda.blockIdx.z
        g_base = batch * g_b + head * g_h
        k_base = batch * k_b + head // group * k_h
        v_base = batch * v_b + head // group * v_h
        m_base = batch * m_b + head * m_h
        l_base = (batch * heads + head) * t_query
        reach = t_key - t_query + 1 if causal != 0 else t_key
        end = t_key
        if causal != 0:
            end = max(min(t_key, row + rows - 1 + reach), 0)
        count = (end + columns - 1) // columns
        copy_own(shared, 0, query, batch * q_b + head * q_h, q_t, row, t_query, d_key)
        copy_own(shared, first_g, g, g_base, g_t, row, t_query, d_value)
        for i in range(ahead):
            if i < count:
                copy(shared, first_key + i * tile, key, k_base, k_t, i * columns, t_key, d_key)
                copy(shared, first_value + i * tile, value, v_base, v_t, i * columns, t_key, d_value)
            copy_async_commit()
        delta0, delta1, base0, base1 = ZERO, ZERO, ZERO, ZERO
        for r in range(16):
            y = row + row_w + r
            if y < t_query:
                inner = ZERO
                for x in range(lane, d_value, 32):
                    inner += widen(g[g_base + y * g_t + x]) * widen(result[batch * r_b + head * r_h + y * r_t + x])
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
                free = new % stages * tile
                copy(shared, first_key + free, key, k_base, k_t, new * columns, t_key, d_key)
                copy(shared, first_value + free, value, v_base, v_t, new * columns, t_key, d_value)
            copy_async_commit()
            wait()
            cuda.syncthreads()
            now = i % stages * tile
            scores(shared, 0, row_w, first_key + now, lane, s)
            limit = (i + 1) * columns
            if masked != 0 or limit > t_key or (causal != 0 and limit > row + reach):
                hide(s, row + row_w, i * columns, t_query, t_key, reach, lane, mask, m_base, m_q, m_k, masked)
            scores(shared, first_g, row_w, first_value + now, lane, d)
            for j in range(tiles):
                for q in range(4):
                    p = exp2(s[j, q] * factor - (base0 if q < 2 else base1))
                    s[j, q] = p * (d[j, q] - (delta0 if q < 2 else delta1)) * scale
            mix(s, shared, first_key + now, lane, o, ONE, ONE)
            cuda.syncthreads()
        write(o, d_query, batch * o_b + head * o_h, o_t, row + row_w, t_query, d_key, lane, ONE, ONE, paired)

    return flash_grad_query


@cache
def grad_key_kernel(dtype: str, size: int, vector: bool, shape: Shape) -> Kernel:
    """dK and dV from delta. Launch: grid (ceil(Tk / shape.rows), key heads, batches), shape.threads."""
    columns, stages, threads = shape.columns, shape.stages, shape.threads
    rows, tiles, out_tiles = shape.rows, columns // 8, size // 8
    element = ELEMENT[dtype]
    copy_own = copier_of_rows(dtype, rows, size, threads, vector)
    copy = copier_of_rows(dtype, columns, size, threads, vector)
    scores, mix = scores_of(dtype, size, columns), mix_of(dtype, size, columns)
    hide, write = _hide(tiles, True), _write(dtype, out_tiles)
    wait = COPY_ASYNC_WAIT[stages - 1]
    tile = columns * size
    own_value = rows * size
    first_query = 2 * rows * size
    first_g = first_query + stages * tile
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
        ", ".join([POINTER[dtype]] * 4 + ["float32*", "uint8*", "float32*"] + [POINTER[dtype]] * 2)
        + ", int32" * 31
        + ", float32",
        name=_name("grad_key", dtype, size, vector, shape),
        threads=threads,
        blocks=2,
    )
    def flash_grad_key(
        g, query, key, value, lse, mask, delta, d_key_out, d_value_out, t_query, t_key, d_key, d_value, heads, group,
        g_b, g_h, g_t, q_b, q_h, q_t, k_b, k_h, k_t, v_b, v_h, v_t, dk_b, dk_h, dk_t, dv_b, dv_h, dv_t,
        m_b, m_h, m_q, m_k, masked, causal, paired, scale,
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
        reach = t_key - t_query + 1 if causal != 0 else t_key
        start = 0
        if causal != 0:
            start = max(row - reach + 1, 0) // columns  # queries before it see none of these keys
        steps = max((t_query + columns - 1) // columns - start, 0)
        count = group * steps
        copy_own(shared, 0, key, batch * k_b + key_head * k_h, k_t, row, t_key, d_key)
        copy_own(shared, own_value, value, batch * v_b + key_head * v_h, v_t, row, t_key, d_value)
        for n in range(out_tiles):
            for q in range(4):
                o_key[n, q] = ZERO
                o_value[n, q] = ZERO
        factor = scale * LOG2E
        for i in range(-ahead, count):
            new = i + ahead
            if new < count:
                head = key_head * group + new // steps
                first = (start + new % steps) * columns
                slot = new % stages
                free = slot * tile
                copy(shared, first_query + free, query, batch * q_b + head * q_h, q_t, first, t_query, d_key)
                copy(shared, first_g + free, g, batch * g_b + head * g_h, g_t, first, t_query, d_value)
                note(statistics, slot, lse, delta, (batch * heads + head) * t_query, first, t_query)
            copy_async_commit()
            if i >= 0:
                wait()
                cuda.syncthreads()
                head = key_head * group + i // steps
                column = (start + i % steps) * columns
                slot = i % stages
                now = slot * tile
                scores(shared, 0, row_w, first_query + now, lane, s)
                reaches_all = causal == 0 or row + rows <= column + reach
                if masked != 0 or row + rows > t_key or column + columns > t_query or not reaches_all:
                    hide(
                        s, row + row_w, column, t_query, t_key, reach, lane, mask, batch * m_b + head * m_h, m_q, m_k,
                        masked,
                    )  # fmt: skip
                for j in range(tiles):
                    for q in range(4):
                        c = 8 * j + ((lane & 3) << 1) + (q & 1)
                        s[j, q] = exp2(s[j, q] * factor - statistics[2 * slot * columns + c])
                mix(s, shared, first_g + now, lane, o_value, ONE, ONE)
                scores(shared, own_value, row_w, first_g + now, lane, d)
                for j in range(tiles):
                    for q in range(4):
                        c = 8 * j + ((lane & 3) << 1) + (q & 1)
                        s[j, q] *= (d[j, q] - statistics[(2 * slot + 1) * columns + c]) * scale
                mix(s, shared, first_query + now, lane, o_key, ONE, ONE)
                cuda.syncthreads()
        base = batch * dk_b + key_head * dk_h
        write(o_key, d_key_out, base, dk_t, row + row_w, t_key, d_key, lane, ONE, ONE, paired)
        base = batch * dv_b + key_head * dv_h
        write(o_value, d_value_out, base, dv_t, row + row_w, t_key, d_value, lane, ONE, ONE, paired)

    return flash_grad_key
