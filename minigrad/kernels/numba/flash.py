"""Flash attention: scores live only for a block of queries and a chunk of keys, hidden parts of the square are skipped.

A block of queries stands side by side in vectors and the keys follow each other, so that softmax goes down columns
(`minigrad.kernels.numba.columns`, in powers of two, online over the chunks) and products run in register tiles
(`minigrad.kernels.numba.tile`). One thread takes whole heads in the backward pass (query heads that share a key head
stay together), blocks of queries in the forward pass: nobody waits for anybody, and results do not depend on the
number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigrad.kernels.calls import Calls
from minigrad.kernels.numba.columns import hide, scaled, turn, weigh, weigh_back
from minigrad.kernels.numba.dropout import factor, threshold
from minigrad.kernels.numba.jit import inline, kernel
from minigrad.kernels.numba.math import exp, log
from minigrad.kernels.numba.philox import AT_ONCE, draw
from minigrad.kernels.numba.tile import LANES, ROWS, multiply

Array = np.ndarray
BLOCK = 128  # queries at a time
CHUNK, CHUNK_BACK = 128, 64  # keys whose scores are held at a time, forward and backward
PAIR = 0.02  # nanoseconds of one multiplication and addition, about

_ZERO, _ONE, _LOW, _HIGH = np.float32(0), np.float32(1), np.float32(-np.inf), np.float32(np.inf)
_LOG2E, _LN2 = np.float32(math.log2(math.e)), np.float32(math.log(2))
_NO_MASK, _NO_KEY = np.zeros(1, np.bool_), np.zeros(2, np.int64)


# --- copies -----------------------------------------------------------------------------------------


@inline
def _padded(n):
    """`n` elements in whole vectors."""
    return -(-n // LANES) * LANES


@inline
def _pitch(t_query):
    """From one key's scores to the next one's: an odd number of vectors, or columns meet in few lines of the cache."""
    return min(BLOCK, _padded(t_query)) | LANES


@inline
def _rows(target, t0, t_step, source, s0, s_step, count, columns, factor):
    """`count` rows of `columns` elements times `factor`, from and to anywhere."""
    whole = columns // LANES * LANES
    if whole:
        scaled(target, t0, t_step, source, s0, s_step, count, whole, factor)
    for i in range(count if whole < columns else 0):
        to, of = target[t0 + i * t_step + whole :][: columns - whole], source[s0 + i * s_step + whole :]
        for c in range(columns - whole):
            to[c] = of[c] * factor


@inline
def _transposed(target, pitch, source, s0, s_step, count, columns, factor):
    """`count` rows of `columns` elements times `factor` as columns: row i, column c goes to c * pitch + i."""
    whole = columns // LANES * LANES
    for i in range(0, count, LANES):
        for c in range(0, whole, LANES):
            turn(target, c * pitch + i, pitch, source, s0 + i * s_step + c, s_step, min(LANES, count - i), factor)
    for i in range(count if whole < columns else 0):
        to, of = target[whole * pitch + i :], source[s0 + i * s_step + whole :][: columns - whole]
        for c in range(columns - whole):
            to[c * pitch] = of[c] * factor


# --- a chunk of scores: key j of the chunk in row j, queries side by side -----------------------------
#
# `first`: the position of the block's first query, counted from the chunk's first key; query i stands at first + i and
# sees the keys first + i - back .. first + i + ahead. Products and softmax go through keys in multiples of ROWS, so
# that whatever a tile reads has been computed.


@inline
def _score(scores, pitch, keys, at, step, d, queries_t, width, n, first, ahead, back):
    """Products of the chunk's keys with the queries; those that nobody may see stay as they are."""
    for j in range(0, width, ROWS):
        low = max(j - ahead - first, 0) // LANES * LANES
        high = min(j + ROWS + back - first, n)
        if low < high:
            multiply(scores, j * pitch + low, pitch, keys, at + j * step, step, 1, queries_t, low, pitch,
                     min(ROWS, width - j), _padded(high - low), d, False)  # fmt: skip


@inline
def _range(lane, width, first, ahead, back):
    """The keys that LANES queries from `lane` on may see, in whole tiles."""
    low = max(first + lane - back, 0) // ROWS * ROWS
    return low, min(-(-(first + lane + LANES + ahead) // ROWS) * ROWS, width)


@inline
def _hide(scores, pitch, width, n, first, ahead, back, slope, mask, mask_at, at):
    """Subtract slope * distance from the scores, and set those of hidden keys to minus infinity."""
    lanes = _padded(n)
    if slope != _ZERO:
        for j in range(width):
            line = scores[j * pitch :][:lanes]
            for i in range(lanes):
                line[i] -= slope * np.float32(abs(first + i - j))
    for lane in range(0, n, LANES):
        low, high = _range(lane, width, first, ahead, back)
        least, most = first + lane - back, first + lane + ahead
        hide(scores, pitch, low, min(least + LANES - 1, high), lane, least, most)
        hide(scores, pitch, max(most + 1, low), high, lane, least, most)
    if mask_at[3] > 0 and mask_at[2] == 0:  # one row of the mask is for all queries
        for j in range(width):
            if not mask[at + j]:
                scores[j * pitch :][:lanes] = _LOW
    if mask_at[2] > 0:
        for i in range(n):
            seen = mask[at + i * mask_at[2] :][:width]
            column = scores[i:]
            for j in range(width):
                if not seen[j]:
                    column[j * pitch] = _LOW


@inline
def _draw(kept, pitch, width, n, first, ahead, back, index, step, key, drops, keeps, words):
    """The factors of dropout of every key that a query may see: that of the first key and query is number `index` of
    the draw `key`, and a query further is `step` more."""
    for i in range(n):
        low, high = max(first + i - back, 0), min(first + i + ahead + 1, width)
        if low < high:
            number = index + i * step + low
            block = number // 4
            draw(words, key[0], key[1] + block, (number + high - low + 3) // 4 - block)
            drawn, column = words[number - 4 * block :][: high - low], kept[low * pitch + i :]
            for j in range(high - low):
                column[j * pitch] = factor(drawn[j], drops, keeps)


@inline
def _scale(scores, kept, count):
    line, factors = scores[:count], kept[:count]
    for i in range(count):
        line[i] *= factors[i]


# --- forward ----------------------------------------------------------------------------------------


@kernel
def _forward(
    start, stop, shape, q, q_at, k, k_at, v, v_at, out, out_at, lse, ahead, back, slopes, mask, mask_at, key, drops,
    keeps, scale,
):  # fmt: skip
    """Tasks are (batch, head, block of queries). `*_at`: strides of batch, head and row in a flat array.

    Query i of position p = i + Tk - Tq sees the keys p - back .. p + ahead. drops: words below it drop an element.
    """
    heads, group, t_query, t_key, d, dv = shape
    pitch, dv_pad, chunk = _pitch(t_query), _padded(dv), min(CHUNK, t_key)
    blocks = -(-t_query // BLOCK)
    values, queries_t = np.zeros(t_key * dv_pad, np.float32), np.zeros(d * pitch, np.float32)
    mixed, scores = np.empty(pitch * dv_pad, np.float32), np.zeros(chunk * pitch, np.float32)
    peaks, totals, factors = np.empty(pitch, np.float32), np.empty(pitch, np.float32), np.empty(pitch, np.float32)
    kept = np.zeros(chunk * pitch if drops else 0, np.float32)
    words = np.empty(chunk + 8 * AT_ONCE, np.uint32)
    masked, held = mask_at[3] > 0, -1
    begin, limit = 0, t_key
    for task in range(start, stop):
        b, h, r0 = task // (blocks * heads), task // blocks % heads, task % blocks * BLOCK
        hk = h // group
        at_key = b * k_at[0] + hk * k_at[1]
        if held != b * heads + hk:
            held = b * heads + hk
            _rows(values, 0, dv_pad, v, b * v_at[0] + hk * v_at[1], v_at[2], t_key, dv, _ONE)
        n = min(BLOCK, t_query - r0)
        at_mask = b * mask_at[0] + h * mask_at[1] + r0 * mask_at[2]
        if masked:
            begin, limit = _visible(mask, at_mask, mask_at[2], n, t_key)
        position = t_key - t_query + r0  # of the block's first query
        _transposed(queries_t, pitch, q, b * q_at[0] + h * q_at[1] + r0 * q_at[2], q_at[2], n, d, scale * _LOG2E)
        totals[:] = _ZERO
        peaks[:] = _LOW
        slope, more = slopes[h] * _LOG2E, False
        c0 = max(begin, position - back)
        end = min(limit, position + n + ahead)
        while c0 < end:
            width, first = min(chunk, end - c0), position - c0
            _score(scores, pitch, k, at_key + c0 * k_at[2], k_at[2], d, queries_t, width, n, first, ahead, back)
            _hide(scores, pitch, width, n, first, ahead, back, slope, mask, mask_at, at_mask + c0)
            for lane in range(0, n, LANES):
                low, high = _range(lane, width, first, ahead, back)
                weigh(scores, peaks, totals, factors, pitch, low, high, lane)
            if drops:
                index = ((b * heads + h) * t_query + r0) * t_key + c0
                _draw(kept, pitch, width, n, first, ahead, back, index, t_key, key, drops, keeps, words)
                _scale(scores, kept, width * pitch)
            if more:
                scaled(mixed, 0, dv_pad, mixed, 0, dv_pad, n, dv_pad, factors)
            for i in range(0, n, ROWS):
                low, high = max(first + i - back, 0), min(first + i + ROWS + ahead, width)
                multiply(mixed, i * dv_pad, dv_pad, scores, low * pitch + i, 1, pitch,
                         values, (c0 + low) * dv_pad, dv_pad, min(ROWS, n - i), dv_pad, high - low, more)  # fmt: skip
            c0 += width
            more = True
        ends = lse[(b * heads + h) * t_query + r0 :][:n]
        for i in range(n):
            ends[i] = log(totals[i]) + peaks[i] * _LN2
        for i in range(n):
            factors[i] = _ONE / totals[i]
        scaled(mixed, 0, dv_pad, mixed, 0, dv_pad, n, dv_pad, factors)
        at = b * out_at[0] + h * out_at[1] + r0 * out_at[2]
        _rows(out, at, out_at[2], mixed, 0, dv_pad, n, dv, _ONE)
        for i in range(n):
            if totals[i] == _ZERO:
                out[at + i * out_at[2] :][:dv] = _ZERO


@inline
def _visible(mask, at, step, rows, t_key):
    """A range of keys outside of which the mask hides everything from `rows` queries, by chunks where these differ."""
    begin, limit = 0, t_key
    if step == 0:
        while begin < limit and not mask[at + begin]:
            begin += 1
        while begin < limit and not mask[at + limit - 1]:
            limit -= 1
        return begin, limit
    while begin < limit and not _any(mask, at + begin, step, rows, min(BLOCK, limit - begin)):
        begin += BLOCK
    while begin < limit and not _any(mask, at + (limit - 1) // BLOCK * BLOCK, step, rows, (limit - 1) % BLOCK + 1):
        limit = (limit - 1) // BLOCK * BLOCK
    return begin, limit


@inline
def _any(mask, at, step, rows, columns):
    found = False
    for i in range(rows):
        row = mask[at + i * step :][:columns]
        for j in range(columns):
            found |= row[j]
    return found


# --- backward ---------------------------------------------------------------------------------------


@kernel
def _backward(
    start, stop, shape, g, g_at, q, q_at, k, k_at, v, v_at, result, result_at, lse, dq, dq_at, dk, dk_at, dv, dv_at,
    ahead, back, slopes, mask, mask_at, key, drops, keeps, scale,
):  # fmt: skip
    """Tasks are (batch, key head); the rest as in `_forward`."""
    heads, group, t_query, t_key, d, d_value = shape
    pitch, d_pad, dv_pad = _pitch(t_query), _padded(d), _padded(d_value)
    chunk = min(CHUNK_BACK, t_key)
    keys = np.zeros(t_key * d_pad, np.float32)
    d_keys, d_values = np.empty(t_key * d_pad, np.float32), np.empty(t_key * dv_pad, np.float32)
    queries, ups = np.zeros(pitch * d_pad, np.float32), np.zeros(pitch * dv_pad, np.float32)
    queries_t, ups_t = np.zeros(pitch * d, np.float32), np.zeros(pitch * d_value, np.float32)
    d_queries = np.empty(pitch * d_pad, np.float32)
    inner, bases = np.zeros(pitch, np.float32), np.zeros(pitch, np.float32)
    scores, slants = np.zeros(chunk * pitch, np.float32), np.zeros(chunk * pitch, np.float32)
    kept = np.zeros(chunk * pitch if drops else 0, np.float32)
    words = np.empty(chunk + 8 * AT_ONCE, np.uint32)
    masked, begin, limit = mask_at[3] > 0, 0, t_key
    for task in range(start, stop):
        b, hk = task // (heads // group), task % (heads // group)
        at_key, at_value = b * k_at[0] + hk * k_at[1], b * v_at[0] + hk * v_at[1]
        _rows(keys, 0, d_pad, k, at_key, k_at[2], t_key, d, _ONE)
        d_keys[:] = _ZERO
        d_values[:] = _ZERO
        for visit in range(group * -(-t_query // BLOCK)):
            h, r0 = hk * group + visit % group, visit // group * BLOCK
            n = min(BLOCK, t_query - r0)
            at_mask = b * mask_at[0] + h * mask_at[1] + r0 * mask_at[2]
            if masked:
                begin, limit = _visible(mask, at_mask, mask_at[2], n, t_key)
            position = t_key - t_query + r0
            at, at_up = b * q_at[0] + h * q_at[1] + r0 * q_at[2], b * g_at[0] + h * g_at[1] + r0 * g_at[2]
            _rows(queries, 0, d_pad, q, at, q_at[2], n, d, scale * _LOG2E)
            _rows(ups, 0, dv_pad, g, at_up, g_at[2], n, d_value, _ONE)
            _transposed(queries_t, pitch, queries, 0, d_pad, n, d, _ONE)
            _transposed(ups_t, pitch, ups, 0, dv_pad, n, d_value, _ONE)
            for i in range(n):
                up = ups[i * dv_pad :][:d_value]
                of = result[b * result_at[0] + h * result_at[1] + (r0 + i) * result_at[2] :][:d_value]
                total = _ZERO
                for c in range(d_value):
                    total += up[c] * of[c]
                inner[i] = total
                base = lse[(b * heads + h) * t_query + r0 + i]
                bases[i] = _HIGH if base == _LOW else base * _LOG2E
            slope, more = slopes[h] * _LOG2E, False
            c0 = max(begin, position - back)
            end = min(limit, position + n + ahead)
            while c0 < end:
                width, first = min(chunk, end - c0), position - c0
                _score(scores, pitch, k, at_key + c0 * k_at[2], k_at[2], d, queries_t, width, n, first, ahead, back)
                _score(slants, pitch, v, at_value + c0 * v_at[2], v_at[2], d_value, ups_t, width, n, first, ahead, back)
                _hide(scores, pitch, width, n, first, ahead, back, slope, mask, mask_at, at_mask + c0)
                if drops:
                    index = ((b * heads + h) * t_query + r0) * t_key + c0
                    _draw(kept, pitch, width, n, first, ahead, back, index, t_key, key, drops, keeps, words)
                    _scale(slants, kept, width * pitch)
                for lane in range(0, n, LANES):
                    low, high = _range(lane, width, first, ahead, back)
                    weigh_back(scores, slants, bases, inner, pitch, low, high, lane)
                if drops:
                    _scale(scores, kept, width * pitch)
                for j in range(0, width, ROWS):
                    low, high = max(j - ahead - first, 0), min(j + ROWS + back - first, n)
                    if low < high:
                        tall = min(ROWS, width - j)
                        multiply(d_values, (c0 + j) * dv_pad, dv_pad, scores, j * pitch + low, pitch, 1,
                                 ups, low * dv_pad, dv_pad, tall, dv_pad, high - low, True)  # fmt: skip
                        multiply(d_keys, (c0 + j) * d_pad, d_pad, slants, j * pitch + low, pitch, 1,
                                 queries, low * d_pad, d_pad, tall, d_pad, high - low, True)  # fmt: skip
                for i in range(0, n, ROWS):
                    low, high = max(first + i - back, 0), min(first + i + ROWS + ahead, width)
                    multiply(d_queries, i * d_pad, d_pad, slants, low * pitch + i, 1, pitch,
                             keys, (c0 + low) * d_pad, d_pad, min(ROWS, n - i), d_pad, high - low, more)  # fmt: skip
                c0 += width
                more = True
            at = b * dq_at[0] + h * dq_at[1] + r0 * dq_at[2]
            if not more:
                d_queries[:] = _ZERO
            _rows(dq, at, dq_at[2], d_queries, 0, d_pad, n, d, scale)
        _rows(dk, b * dk_at[0] + hk * dk_at[1], dk_at[2], d_keys, 0, d_pad, t_key, d, _LN2)
        _rows(dv, b * dv_at[0] + hk * dv_at[1], dv_at[2], d_values, 0, dv_pad, t_key, d_value, _ONE)


# --- one query: a step of decoding with a cache -----------------------------------------------------


@kernel
def _one_query(start, stop, query, key, value, mask, mask_at, scale, out, lse):
    """Every array contiguous; key and value are read once, in order, and not behind the last visible key, where the
    room of a cache is not filled yet. Four keys at a time: what surrounds a loop over d costs as much as the loop."""
    heads, t_key, d = query.shape[1], key.shape[2], key.shape[3]
    group = heads // key.shape[1]
    d_value = value.shape[3]
    row = np.empty(t_key, np.float32)
    for head in range(start, stop):
        b, h = head // heads, head % heads
        hk, mask_row = h // group, b * mask_at[0] + h * mask_at[1]
        q, y, keys, values = query[b, h, 0], out[b, h, 0], key[b, hk], value[b, hk]
        end = t_key
        while mask_at[3] and end > 0 and not mask[mask_row + end - 1]:
            end -= 1
        weights = row[:end]
        for j in range(0, end, 4):
            j1, j2, j3 = min(j + 1, end - 1), min(j + 2, end - 1), min(j + 3, end - 1)
            k0, k1, k2, k3 = keys[j], keys[j1], keys[j2], keys[j3]
            s0, s1, s2, s3 = _ZERO, _ZERO, _ZERO, _ZERO
            for c in range(d):
                s0 += q[c] * k0[c]
                s1 += q[c] * k1[c]
                s2 += q[c] * k2[c]
                s3 += q[c] * k3[c]
            weights[j], weights[j1], weights[j2], weights[j3] = s0, s1, s2, s3
        peak = _LOW
        for j in range(end):
            score = weights[j] * scale if not mask_at[3] or mask[mask_row + j] else _LOW
            weights[j] = score
            peak = score if score > peak or score != score else peak
        for c in range(d_value):
            y[c] = _ZERO
        if peak == _LOW:
            lse[b, h, 0] = _LOW
            continue
        total = _ZERO
        for j in range(weights.shape[0]):
            e = exp(weights[j] - peak)
            weights[j] = e
            total += e
        lse[b, h, 0] = log(total) + peak
        share = _ONE / total
        for j in range(weights.shape[0]):
            weights[j] *= share
        for j in range(0, end, 4):
            if j + 4 <= end and weights[j] * weights[j + 1] * weights[j + 2] * weights[j + 3] != _ZERO:
                w0, w1, w2, w3 = weights[j], weights[j + 1], weights[j + 2], weights[j + 3]
                v0, v1, v2, v3 = values[j], values[j + 1], values[j + 2], values[j + 3]
                for c in range(d_value):
                    y[c] += (w0 * v0[c] + w1 * v1[c]) + (w2 * v2[c] + w3 * v3[c])
                continue
            for i in range(j, min(j + 4, end)):  # a hidden value may be NaN: it is not looked at
                w0, v0 = weights[i], values[i]
                if w0 != _ZERO:
                    for c in range(d_value):
                        y[c] += w0 * v0[c]


# --- binding ----------------------------------------------------------------------------------------


def _four(array: Array, rows: int = 2) -> Array:
    """Leading dimensions as two ``(B, H, ...)``, without a copy where there are at most two."""
    lead = array.ndim - rows
    return array.reshape((1,) * (2 - lead) + array.shape)


Flat = tuple[Array, tuple[int, ...]]


def rows_of_heads(calls: Calls, array: Array) -> Flat:
    """An array ``(..., T, d)`` as flat memory and its strides of batch, head and row: one type for every layout."""
    if array.flags.c_contiguous:
        heads = array.shape[-3] if array.ndim > 2 else 1
        rows, columns = array.shape[-2:]
        return array.reshape(-1), (heads * rows * columns, rows * columns, columns)
    if any(s % 4 or s < 0 for s in array.strides) or (array.shape[-1] > 1 and array.strides[-1] != 4):
        return rows_of_heads(calls, calls.contiguous(array))
    four = _four(array)
    strides = tuple([s // 4 for s in four.strides])
    extent = 1 + sum((n - 1) * s for n, s in zip(four.shape, strides, strict=True))
    return np.lib.stride_tricks.as_strided(array, (extent,), (4,)), strides[:3]


def _mask(calls: Calls, mask: Sequence[Array], t_key: int) -> tuple[Array, tuple[int, int, int, int]]:
    """A mask as flat memory, its strides of batch, head and query (0 where broadcast), and whether there is one."""
    if not mask:
        return _NO_MASK, (0, 0, 0, 0)
    four = _four(mask[0].reshape((1,) * (2 - mask[0].ndim) + mask[0].shape))
    if four.shape[-1] != t_key:
        four = np.broadcast_to(four, (*four.shape[:-1], t_key))
    strides = [math.prod(four.shape[i + 1 :]) if four.shape[i] > 1 else 0 for i in range(3)]
    return calls.contiguous(four).reshape(-1), (strides[0], strides[1], strides[2], 1)


def _options(
    calls: Calls, inputs: Sequence[Array], rest: Sequence[Array], scale: float, causal: bool, window: int = 0,
    slopes: Sequence[float] = (), dropout: float = 0.0,
) -> Any:  # fmt: skip
    """What both kernels are told: (shape, what is visible and how)."""
    query, key, value = inputs
    heads, shared = (array.shape[-3] if array.ndim > 2 else 1 for array in (query, key))
    t_query, t_key = query.shape[-2], key.shape[-2]
    near = window - 1 if window else t_query + t_key
    ahead, back = 0 if causal else near, near
    mask, mask_at = _mask(calls, rest[: len(rest) - bool(dropout)], t_key)
    shape = (heads, heads // shared, t_query, t_key, query.shape[-1], value.shape[-1])
    steep = np.asarray(slopes, np.float32) if slopes else np.zeros(heads, np.float32)
    draw = rest[-1] if dropout else _NO_KEY
    return shape, (ahead, back, steep, mask, mask_at, draw, *threshold(dropout), np.float32(scale))


def flash_attention(calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array], **attributes: Any) -> bool:
    """(output, log-sum-exp); declines empty sequences and more than two leading dimensions."""
    query, key, value, *rest = inputs
    if not query.size or not key.size or not value.size or query.ndim > 4:
        return False
    shape, options = _options(calls, (query, key, value), rest, **attributes)
    _, _, t_query, t_key, d, d_value = shape
    tasks, work = outputs[1].size // t_query, (d + d_value) * outputs[1].size * t_key * PAIR
    if (
        t_query == 1
        and attributes.keys() <= {"scale", "causal"}
        and all(a.flags.c_contiguous for a in (query, key, value, outputs[0]))
    ):
        four, made = [_four(a) for a in (query, key, value)], (_four(outputs[0]), _four(outputs[1], 1))
        calls.over_rows(_one_query, tasks, work, *four, *options[3:5], options[-1], *made)
        return True
    flat = [part for array in (query, key, value) for part in rows_of_heads(calls, array)]
    result, finish = in_order(outputs[0])
    lse = outputs[1].reshape(-1)
    calls.over_rows(
        _forward, tasks * -(-t_query // BLOCK), work, shape, *flat, *rows_of_heads(calls, result), lse, *options
    )
    finish(calls)
    return True


def flash_attention_grad(calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array], **attributes: Any) -> bool:
    """(dQ, dK, dV); scores are computed again from the log-sum-exp."""
    g, query, key, value, result, lse, *rest = inputs
    if not query.size or not key.size or not value.size or query.ndim > 4:
        return False
    shape, options = _options(calls, (query, key, value), rest, **attributes)
    read = [part for array in (g, query, key, value, result) for part in rows_of_heads(calls, array)]
    gradients, finishes = zip(*[in_order(output) for output in outputs], strict=True)
    written = [part for array in gradients for part in rows_of_heads(calls, array)]
    tasks = lse.size // shape[2] // shape[1]
    work = (3 * shape[4] + 2 * shape[5]) * lse.size * shape[3] * PAIR
    calls.over_rows(_backward, tasks, work, shape, *read, calls.contiguous(lse).reshape(-1), *written, *options)
    for finish in finishes:
        finish(calls)
    return True


def in_order(output: Array) -> tuple[Array, Callable[[Calls], None]]:
    """An output to compute, and how to finish: one whose rows are not in order is computed elsewhere and copied."""
    if output.shape[-1] == 1 or output.strides[-1] == 4:
        return output, lambda calls: None
    array = np.empty(output.shape, np.float32)
    return array, lambda calls: calls.add(np.copyto, output, array)
