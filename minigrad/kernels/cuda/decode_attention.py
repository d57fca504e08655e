"""Attention of few queries over many keys, as decoding with a cache computes it: keys split over blocks, then combined.

Each key and value is read once (8 bytes of float32 for 4 FLOPs), so memory's 4.8 TB/s are the limit, and blocks enough
to ask for it: a block takes one query of one head and KEYS keys; 12 heads over 2,048 keys make 96 blocks. Scores stay
in shared memory (4 KB with the partial sums). A single block writes the output; of several each writes its unnormalised
sum, its peak and its total, which `combine_kernel` puts together in the order of the blocks.

A key is shared by `lanes` lanes, which read 16 bytes of it each, side by side: 32 / lanes keys a warp at once. A value
column is summed by 128 / lanes threads over every so many keys, whose sums meet in shared memory.
"""

from __future__ import annotations

import math
from functools import cache

from minigrad.kernels.cuda.intrinsics import exp2
from minigrad.kernels.cuda.language import Kernel, cuda, float32, kernel
from minigrad.kernels.cuda.scores import LOW, base_of
from minigrad.kernels.cuda.teams import WARP, maxima, sums
from minigrad.kernels.cuda.tiles import NARROW, POINTER, ZERO, loads

KEYS = 256  # of a block
THREADS = 128
LANES = (8, 16, 32)  # that share a key
ONE = float32(1)
LOG2E, LN2 = float32(math.log2(math.e)), float32(math.log(2))


def lanes_for(dtype: str, size: int, vector: bool) -> int:
    """How many lanes share a row of `size` elements."""
    width = loads(dtype, vector)[1]
    return next((lanes for lanes in LANES if lanes * width >= size), LANES[-1])


@cache
def split_kernel(dtype: str, lanes: int, vector: bool, keys: int = KEYS) -> Kernel:
    """One query's attention over `keys` keys. vector: rows in aligned 16-byte pieces, of which sizes are multiples.

    Launch: grid (ceil(Tk / keys), heads * Tq, batches), THREADS. With one block a query it writes out and lse; else
    parts (blocks, rows, d_value) and statistics (blocks, rows, 2: peak to the base 2, total).
    """
    load, width = loads(dtype, vector)
    narrow = NARROW[dtype]
    at_once, per_round = WARP // lanes, THREADS // lanes  # keys of a warp, and of the block
    step = lanes * width  # elements of a row that its lanes read at once
    held = THREADS * width
    largest, added = maxima(THREADS), sums(THREADS)

    @kernel(
        ", ".join([POINTER[dtype]] * 3 + ["uint8*", "float32*", POINTER[dtype]] + ["float32*"] * 3 + ["Rows"] * 4)
        + ", MaskRows, Sizes, Seen, float32",
        name=f"decode_attention_{dtype}_{lanes}x{keys}" + ("" if vector else "_ragged"),
        threads=THREADS,
        registers=96,
    )
    def decode_attention(
        query, key, value, mask, slopes, out, lse, parts, statistics, q_at, k_at, v_at, o_at, mask_at, sizes, seen,
        scale,
    ):  # fmt: skip
        t_query, t_key, d_key, d_value = sizes.t_query, sizes.t_key, sizes.d_key, sizes.d_value
        weights = cuda.shared.array(keys, float32)
        sides = cuda.shared.array(held, float32)
        meeting = cuda.shared.array(WARP, float32)
        thread = cuda.threadIdx.x
        lane = thread & (lanes - 1)
        head, i = cuda.blockIdx.y // t_query, cuda.blockIdx.y % t_query
        batch = cuda.blockIdx.z
        first = cuda.blockIdx.x * keys
        count = min(t_key - first, keys)
        q_base = base_of(q_at, batch, head) + i * q_at.row
        k_base = base_of(k_at, batch, head // sizes.group)
        v_base = base_of(v_at, batch, head // sizes.group)
        o_base = base_of(o_at, batch, head) + i * o_at.row
        m_base = base_of(mask_at, batch, head) + i * mask_at.query
        slope = slopes[head] if seen.sloped != 0 else ZERO
        for j in range(thread // lanes, (count + at_once - 1) // at_once * at_once, per_round):
            score = ZERO
            if j < count:
                at = k_base + (first + j) * k_at.row
                for x in range(lane * width, d_key, step):
                    a, b = load(query, q_base + x), load(key, at + x)
                    for q in range(width):
                        score += a[q] * b[q]
            near = lanes // 2
            while near > 0:
                score += cuda.shfl_xor_sync(0xFFFFFFFF, score, near)
                near //= 2
            if lane == 0:
                k = first + j
                shown = j < count and i + seen.low <= k and k < i + seen.reach
                if shown and seen.masked != 0:
                    shown = mask[m_base + k * mask_at.key] != 0
                far = float32(abs(i + t_key - t_query - k))
                weights[j] = (score * scale - slope * far) * LOG2E if shown else LOW  # `keys`: a multiple of `at_once`
        cuda.syncthreads()
        peak, total = LOW, ZERO
        for j in range(thread, count, THREADS):
            peak = max(peak, weights[j])
        peak = largest(peak, meeting)
        base = peak if peak > LOW else ZERO  # no key seen: every weight is exp2(-inf)
        for j in range(thread, count, THREADS):
            weights[j] = exp2(weights[j] - base)
            total += weights[j]
        total = added(total, meeting)
        alone = cuda.gridDim.x == 1
        share = ONE
        if alone:
            share = ONE / total if total != ZERO else ZERO
        row = (batch * sizes.heads + head) * t_query + i
        rows = cuda.gridDim.z * cuda.gridDim.y
        if thread == 0:
            if alone:
                lse[row] = math.log(total) + peak * LN2 if total != ZERO else LOW
            else:
                statistics[(cuda.blockIdx.x * rows + row) * 2] = peak
                statistics[(cuda.blockIdx.x * rows + row) * 2 + 1] = total
        mixed = cuda.local.array(width, float32)
        for start in range(0, d_value, step):
            x = start + lane * width
            for q in range(width):
                mixed[q] = ZERO
            if x < d_value:
                for j in range(thread // lanes, count, per_round):
                    v = load(value, v_base + (first + j) * v_at.row + x)
                    for q in range(width):
                        mixed[q] += weights[j] * v[q]
            for q in range(width):
                sides[thread // lanes * step + lane * width + q] = mixed[q]
            cuda.syncthreads()
            for y in range(thread, min(step, d_value - start), THREADS):
                value_sum = ZERO
                for side in range(per_round):
                    value_sum += sides[side * step + y]
                if alone:
                    out[o_base + start + y] = narrow(value_sum * share)
                else:
                    parts[(cuda.blockIdx.x * rows + row) * d_value + start + y] = value_sum
            cuda.syncthreads()

    return decode_attention


@cache
def combine_kernel(dtype: str) -> Kernel:
    """out and lse from the parts of `blocks` blocks. Launch: grid (heads * Tq, batches), THREADS."""
    narrow = NARROW[dtype]

    @kernel(
        f"float32*, float32*, {POINTER[dtype]}, float32*, int32, Sizes, Rows",
        name=f"decode_combine_{dtype}",
        threads=THREADS,
        registers=64,
    )
    def decode_combine(parts, statistics, out, lse, blocks, sizes, o_at):
        d_value = sizes.d_value
        head, i = cuda.blockIdx.x // sizes.t_query, cuda.blockIdx.x % sizes.t_query
        batch = cuda.blockIdx.y
        o_base = base_of(o_at, batch, head) + i * o_at.row
        row = batch * cuda.gridDim.x + cuda.blockIdx.x
        rows = cuda.gridDim.y * cuda.gridDim.x
        peak, total = LOW, ZERO
        for p in range(blocks):
            peak = max(peak, statistics[(p * rows + row) * 2])
        base = peak if peak > LOW else ZERO
        for p in range(blocks):
            at = (p * rows + row) * 2
            total += statistics[at + 1] * exp2(statistics[at] - base)
        share = ONE / total if total != ZERO else ZERO
        for x in range(cuda.threadIdx.x, d_value, THREADS):
            mixed = ZERO
            for p in range(blocks):
                at = p * rows + row
                mixed += parts[at * d_value + x] * exp2(statistics[at * 2] - base)
            out[o_base + x] = narrow(mixed * share)
        if cuda.threadIdx.x == 0:
            lse[row] = math.log(total) + peak * LN2 if total != ZERO else LOW

    return decode_combine
