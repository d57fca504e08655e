"""Flash attention: scores live only for a block of queries and a chunk of keys, hidden parts of the square are skipped.

A head's keys and values are copied once into padded rows and transposed panels, so that every product runs in
whole register tiles (`minigrad.kernels.numba.tile`); softmax runs online over the chunks, in powers of two. One thread
takes whole heads in the backward pass (query heads that share a key head stay together), blocks of queries in the
forward pass: nobody waits for anybody, and results do not depend on the number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigrad.kernels.calls import Calls
from minigrad.kernels.numba.jit import inline, kernel
from minigrad.kernels.numba.math import as_float, exp, exp2, log
from minigrad.kernels.numba.philox import AT_ONCE, draw
from minigrad.kernels.numba.tile import LANES, ROWS, multiply

Array = np.ndarray
BLOCK = 64  # queries at a time
PANEL = 64  # keys of a transposed panel
CHUNK, CHUNK_BACK = 256, 128  # keys whose scores are held at a time, forward and backward
STEP = 64  # scores of a row are gone through in multiples of it
PAIR = 0.02  # nanoseconds of one multiplication and addition, about
_SKEW = 16  # rows of scores lie this much further apart, or all would fall into the same lines of the cache

_LEAST, _SIGN, _MAGNITUDE = np.int32(-(2**31)), np.int32(31), np.int32(0x7FFFFFFF)
_ZERO, _ONE, _LOW, _HIGH = np.float32(0), np.float32(1), np.float32(-np.inf), np.float32(np.inf)
LOG2E, LN2 = math.log2(math.e), math.log(2)
_LOG2E, _LN2 = np.float32(LOG2E), np.float32(LN2)
_NO_MASK, _NO_KEY = np.zeros(1, np.bool_), np.zeros(2, np.int64)


# --- copies -----------------------------------------------------------------------------------------


@inline
def _rows(target, t0, t_step, source, s0, s_step, count, columns, factor):
    """`count` rows of `columns` elements times `factor`, from and to anywhere."""
    for i in range(count):
        to, of = target[t0 + i * t_step :][:columns], source[s0 + i * s_step :][:columns]
        for c in range(columns):
            to[c] = of[c] * factor


@inline
def _panels(target, source, s0, s_step, count, columns, padded):
    """Rows transposed, PANEL at a time: row j, column c goes to panel j // PANEL, row c, column j % PANEL."""
    for p in range(0, count, PANEL):
        width = min(PANEL, count - p)
        for j in range(width):
            to, of = target[p * padded + j :], source[s0 + (p + j) * s_step :][:columns]
            for c in range(columns):
                to[c * PANEL] = of[c]


# --- a row of scores --------------------------------------------------------------------------------


@inline
def _clear(scores, at, width, low, high):
    """Hide a row's scores outside of low .. high, up to whole vectors, and zero the rest; the range to go through.

    Loops over whole vectors have no remainder, which would be computed element by element.
    """
    row = scores[at : at + -(-width // STEP) * STEP]
    if low >= high:
        row[:] = _ZERO
        return 0, 0
    begin, end = low // STEP * STEP, -(-high // STEP) * STEP
    row[:begin] = _ZERO
    row[begin:low] = _LOW
    row[high:end] = _LOW
    row[end:] = _ZERO
    return begin, end


@inline
def _shade(line, distance, slope, masked, seen):
    """Subtract slope * |distance - j| from the keys j of a row, hide those that are not `seen`."""
    if slope != _ZERO:
        for j in range(len(line)):
            line[j] -= slope * np.float32(abs(distance - j))
    if masked:
        for j in range(len(line)):
            line[j] = line[j] if seen[j] else _LOW


@inline
def _peak(bits):
    """The largest of a row, NaN above all: floats in the order of integers, a maximum that vectorises."""
    highest = _LEAST
    for j in range(len(bits)):
        word = bits[j]
        highest = max(highest, word ^ ((word >> _SIGN) & _MAGNITUDE))
    return as_float(highest ^ ((highest >> _SIGN) & _MAGNITUDE))


@inline
def _drop(words, index, count, key):
    """The words of the elements index .. index + count of the draw `key`; where in `words` the first one stands."""
    first = index // 4
    draw(words, key[0], key[1] + first, (index + count + 3) // 4 - first)
    return index - 4 * first


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
    d_pad, dv_pad, t_pad = -(-d // LANES) * LANES, -(-dv // LANES) * LANES, -(-t_key // PANEL) * PANEL
    blocks = -(-t_query // BLOCK)
    stride = min(CHUNK, t_pad) + _SKEW
    keys_t, values = np.zeros(t_pad * d_pad, np.float32), np.zeros(t_pad * dv_pad, np.float32)
    queries, mixed = np.zeros(BLOCK * d_pad, np.float32), np.zeros(BLOCK * dv_pad, np.float32)
    scores, peaks, totals = (
        np.zeros(BLOCK * stride, np.float32),
        np.empty(BLOCK, np.float32),
        np.empty(BLOCK, np.float32),
    )
    bits, words = scores.view(np.int32), np.empty(stride + 8 * AT_ONCE, np.uint32)
    masked, held = mask_at[3] > 0, -1
    begin, limit = 0, t_key
    for task in range(start, stop):
        b, h, r0 = task // (blocks * heads), task // blocks % heads, task % blocks * BLOCK
        hk = h // group
        if held != b * heads + hk:
            held = b * heads + hk
            _panels(keys_t, k, b * k_at[0] + hk * k_at[1], k_at[2], t_key, d, d_pad)
            _rows(values, 0, dv_pad, v, b * v_at[0] + hk * v_at[1], v_at[2], t_key, dv, _ONE)
        n = min(BLOCK, t_query - r0)
        if masked:
            at = b * mask_at[0] + h * mask_at[1] + r0 * mask_at[2]
            begin, limit = _visible(mask, at, mask_at[2], n, t_key)
        first = t_key - t_query + r0  # the position of the block's first query
        _rows(queries, 0, d_pad, q, b * q_at[0] + h * q_at[1] + r0 * q_at[2], q_at[2], n, d, scale * _LOG2E)
        mixed[:] = _ZERO
        totals[:] = _ZERO
        peaks[:] = _LOW
        slope = slopes[h] * _LOG2E
        c0 = max(begin, first - back) // PANEL * PANEL
        end = min(limit, first + n + ahead)
        while c0 < end:
            width = min(CHUNK, end - c0)
            _score(scores, stride, queries, d_pad, keys_t, c0, width, n, first, ahead, back)
            for i in range(n):
                low = max(begin, first + i - back, c0) - c0
                high = min(limit, first + i + ahead + 1, c0 + width) - c0
                if low < high and (masked or slope != _ZERO):
                    at = b * mask_at[0] + h * mask_at[1] + (r0 + i) * mask_at[2] + c0 + low
                    _shade(scores[i * stride :][low:high], first + i - c0 - low, slope, masked, mask[at:])
                low, high = _clear(scores, i * stride, width, low, high)
                if low >= high:
                    continue
                line, row = scores[i * stride :][low:high], bits[i * stride :][low:high]
                before, peak = peaks[i], _peak(row)
                peak = before if before > peak else peak
                if peak == _LOW:  # nothing is visible so far
                    line[:] = _ZERO
                    continue
                total = _ZERO
                for j in range(high - low):
                    e = exp2(line[j] - peak)
                    line[j] = e
                    total += e
                if before != peak:
                    factor = exp2(before - peak)
                    totals[i] *= factor
                    of = mixed[i * dv_pad :][:dv_pad]
                    for c in range(dv_pad):
                        of[c] *= factor
                    peaks[i] = peak
                totals[i] += total
                if drops:
                    index = ((b * heads + h) * t_query + r0 + i) * t_key + c0 + low
                    drawn = words[_drop(words, index, high - low, key) :]
                    for j in range(high - low):
                        line[j] = line[j] * keeps if np.int64(drawn[j] >> np.uint32(8)) >= drops else _ZERO
            for i in range(0, n, ROWS):
                low = max(begin, first + i - back, c0)
                high = min(limit, first + i + ROWS + ahead, c0 + width)
                if low < high:
                    multiply(mixed, i * dv_pad, dv_pad, scores, i * stride + low - c0, stride, 1,
                             values, low * dv_pad, dv_pad, ROWS, dv_pad, high - low, True)  # fmt: skip
            c0 += width
        for i in range(n):
            total = totals[i]
            at = b * out_at[0] + h * out_at[1] + (r0 + i) * out_at[2]
            _rows(out, at, 0, mixed, i * dv_pad, 0, 1, dv, _ONE / total if total != _ZERO else _ZERO)
            lse[(b * heads + h) * t_query + r0 + i] = (
                np.float32(log(total) + peaks[i] * LN2) if total != _ZERO else _LOW
            )


@inline
def _visible(mask, at, step, rows, t_key):
    """A range of keys outside of which the mask hides everything from `rows` queries, by panels where these differ."""
    begin, limit = 0, t_key
    if step == 0:
        while begin < limit and not mask[at + begin]:
            begin += 1
        while begin < limit and not mask[at + limit - 1]:
            limit -= 1
        return begin, limit
    while begin < limit and not _any(mask, at + begin, step, rows, min(PANEL, limit - begin)):
        begin += PANEL
    while begin < limit and not _any(mask, at + (limit - 1) // PANEL * PANEL, step, rows, (limit - 1) % PANEL + 1):
        limit = (limit - 1) // PANEL * PANEL
    return begin, limit


@inline
def _any(mask, at, step, rows, columns):
    found = False
    for i in range(rows):
        row = mask[at + i * step :][:columns]
        for j in range(columns):
            found |= row[j]
    return found


@inline
def _score(scores, stride, queries, d, keys_t, c0, width, n, first, ahead, back):
    """Products of the queries with the chunk's keys; tiles that nobody may see stay as they are."""
    for p in range(0, width, PANEL):
        key = c0 + p
        low = max(key - ahead - first, 0) // ROWS * ROWS
        high = min(n, key + PANEL + back - first)
        for i in range(low, high, ROWS):
            columns = min(width - p, first + i + ROWS + ahead - key, PANEL)
            multiply(scores, i * stride + p, stride, queries, i * d, d, 1, keys_t, key * d, PANEL,
                     ROWS, -(-columns // LANES) * LANES, d, False)  # fmt: skip


# --- backward ---------------------------------------------------------------------------------------


@kernel
def _backward(
    start, stop, shape, g, g_at, q, q_at, k, k_at, v, v_at, result, result_at, lse, dq, dq_at, dk, dk_at, dv, dv_at,
    ahead, back, slopes, mask, mask_at, key, drops, keeps, scale,
):  # fmt: skip
    """Tasks are (batch, key head); the rest as in `_forward`."""
    heads, group, t_query, t_key, d, d_value = shape
    d_pad, dv_pad, t_pad = -(-d // LANES) * LANES, -(-d_value // LANES) * LANES, -(-t_key // PANEL) * PANEL
    stride = min(CHUNK_BACK, t_pad) + _SKEW
    keys, keys_t = np.zeros(t_pad * d_pad, np.float32), np.zeros(t_pad * d_pad, np.float32)
    values_t = np.zeros(t_pad * dv_pad, np.float32)
    d_keys, d_values = np.empty(t_pad * d_pad, np.float32), np.empty(t_pad * dv_pad, np.float32)
    queries, d_queries = np.zeros(BLOCK * d_pad, np.float32), np.zeros(BLOCK * d_pad, np.float32)
    ups, inner = np.zeros(BLOCK * dv_pad, np.float32), np.empty(BLOCK, np.float32)
    scores, slants = np.zeros(BLOCK * stride, np.float32), np.zeros(BLOCK * stride, np.float32)
    words = np.empty(stride + 8 * AT_ONCE, np.uint32)
    masked, begin, limit = mask_at[3] > 0, 0, t_key
    for task in range(start, stop):
        b, hk = task // (heads // group), task % (heads // group)
        _panels(keys_t, k, b * k_at[0] + hk * k_at[1], k_at[2], t_key, d, d_pad)
        _panels(values_t, v, b * v_at[0] + hk * v_at[1], v_at[2], t_key, d_value, dv_pad)
        _rows(keys, 0, d_pad, k, b * k_at[0] + hk * k_at[1], k_at[2], t_key, d, _ONE)
        d_keys[:] = _ZERO
        d_values[:] = _ZERO
        for turn in range(group * -(-t_query // BLOCK)):
            h, r0 = hk * group + turn % group, turn // group * BLOCK
            n = min(BLOCK, t_query - r0)
            if masked:
                at = b * mask_at[0] + h * mask_at[1] + r0 * mask_at[2]
                begin, limit = _visible(mask, at, mask_at[2], n, t_key)
            first = t_key - t_query + r0
            _rows(queries, 0, d_pad, q, b * q_at[0] + h * q_at[1] + r0 * q_at[2], q_at[2], n, d, scale * _LOG2E)
            _rows(ups, 0, dv_pad, g, b * g_at[0] + h * g_at[1] + r0 * g_at[2], g_at[2], n, d_value, _ONE)
            for i in range(n):
                up = ups[i * dv_pad :][:d_value]
                of = result[b * result_at[0] + h * result_at[1] + (r0 + i) * result_at[2] :][:d_value]
                total = _ZERO
                for c in range(d_value):
                    total += up[c] * of[c]
                inner[i] = total
            d_queries[:] = _ZERO
            slope = slopes[h] * _LOG2E
            c0 = max(begin, first - back) // PANEL * PANEL
            end = min(limit, first + n + ahead)
            while c0 < end:
                width = min(CHUNK_BACK, end - c0)
                _score(scores, stride, queries, d_pad, keys_t, c0, width, n, first, ahead, back)
                _score(slants, stride, ups, dv_pad, values_t, c0, width, n, first, ahead, back)
                for i in range(n):
                    low = max(begin, first + i - back, c0) - c0
                    high = min(limit, first + i + ahead + 1, c0 + width) - c0
                    if low < high and (masked or slope != _ZERO):
                        at = b * mask_at[0] + h * mask_at[1] + (r0 + i) * mask_at[2] + c0 + low
                        _shade(scores[i * stride :][low:high], first + i - c0 - low, slope, masked, mask[at:])
                    _clear(slants, i * stride, width, low, high)
                    low, high = _clear(scores, i * stride, width, low, high)
                    if low >= high:
                        continue
                    line, slant = scores[i * stride :][low:high], slants[i * stride :][low:high]
                    peak = np.float32(lse[(b * heads + h) * t_query + r0 + i] * LOG2E)
                    peak = _HIGH if peak == _LOW else peak
                    mean = inner[i]
                    if drops:
                        index = ((b * heads + h) * t_query + r0 + i) * t_key + c0 + low
                        drawn = words[_drop(words, index, high - low, key) :]
                        for j in range(high - low):
                            p = exp2(line[j] - peak)
                            kept = keeps if np.int64(drawn[j] >> np.uint32(8)) >= drops else _ZERO
                            line[j] = p * kept
                            slant[j] = p * (slant[j] * kept - mean) if p != _ZERO else _ZERO
                    else:
                        for j in range(high - low):
                            p = exp2(line[j] - peak)
                            line[j] = p
                            slant[j] = p * (slant[j] - mean) if p != _ZERO else _ZERO
                for j in range(0, width, ROWS):
                    low = max(c0 + j - ahead - first, 0)
                    high = min(c0 + j + ROWS + back - first, n)
                    if low < high:
                        multiply(d_values, (c0 + j) * dv_pad, dv_pad, scores, low * stride + j, 1, stride,
                                 ups, low * dv_pad, dv_pad, ROWS, dv_pad, high - low, True)  # fmt: skip
                        multiply(d_keys, (c0 + j) * d_pad, d_pad, slants, low * stride + j, 1, stride,
                                 queries, low * d_pad, d_pad, ROWS, d_pad, high - low, True)  # fmt: skip
                for i in range(0, n, ROWS):
                    low = max(begin, first + i - back, c0)
                    high = min(limit, first + i + ROWS + ahead, c0 + width)
                    if low < high:
                        multiply(d_queries, i * d_pad, d_pad, slants, i * stride + low - c0, stride, 1,
                                 keys, low * d_pad, d_pad, ROWS, d_pad, high - low, True)  # fmt: skip
                c0 += width
            _rows(dq, b * dq_at[0] + h * dq_at[1] + r0 * dq_at[2], dq_at[2], d_queries, 0, d_pad, n, d, scale)
        _rows(dk, b * dk_at[0] + hk * dk_at[1], dk_at[2], d_keys, 0, d_pad, t_key, d, _LN2)
        _rows(dv, b * dv_at[0] + hk * dv_at[1], dv_at[2], d_values, 0, dv_pad, t_key, d_value, _ONE)


# --- one query: a step of decoding with a cache -----------------------------------------------------


@kernel
def _one_query(start, stop, query, key, value, mask, mask_at, scale, out, lse):
    """Every array contiguous; key and value are read once, in order, and not behind the last visible key, where the
    room of a cache is not filled yet."""
    heads, t_key, d = query.shape[1], key.shape[2], key.shape[3]
    group = heads // key.shape[1]
    d_value = value.shape[3]
    row = np.empty(t_key, np.float32)
    for head in range(start, stop):
        b, h = head // heads, head % heads
        hk, mask_row = h // group, b * mask_at[0] + h * mask_at[1]
        q, y = query[b, h, 0], out[b, h, 0]
        end = t_key
        while mask_at[3] and end > 0 and not mask[mask_row + end - 1]:
            end -= 1
        peak = _LOW
        for j in range(end):
            k = key[b, hk, j]
            score = _ZERO
            for c in range(d):
                score += q[c] * k[c]
            score *= scale
            if mask_at[3]:
                score = score if mask[mask_row + j] else _LOW
            row[j] = score
            peak = score if score > peak or score != score else peak
        for c in range(d_value):
            y[c] = _ZERO
        if peak == _LOW:
            lse[b, h, 0] = _LOW
            continue
        weights = row[:end]
        total = _ZERO
        for j in range(weights.shape[0]):
            e = exp(weights[j] - peak)
            weights[j] = e
            total += e
        lse[b, h, 0] = log(total) + peak
        share = _ONE / total
        for j in range(weights.shape[0]):
            weight = weights[j] * share
            if weight != _ZERO:
                v = value[b, hk, j]
                for c in range(d_value):
                    y[c] += weight * v[c]


# --- binding ----------------------------------------------------------------------------------------


def _four(array: Array, rows: int = 2) -> Array:
    """Leading dimensions as two ``(B, H, ...)``, without a copy where there are at most two."""
    lead = array.ndim - rows
    return array.reshape((1,) * (2 - lead) + array.shape)


Flat = tuple[Array, tuple[int, ...]]


def _flat(calls: Calls, array: Array) -> Flat:
    """An array ``(..., T, d)`` as flat memory and its strides of batch, head and row: one type for every layout."""
    if any(s % 4 or s < 0 for s in array.strides) or (array.shape[-1] > 1 and array.strides[-1] != 4):
        array = calls.contiguous(array)
    four = _four(array)
    strides = tuple([s // 4 for s in four.strides])
    if array.flags.c_contiguous:
        return array.reshape(-1), strides[:3]
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
    query, key, value = (_four(array) for array in inputs)
    heads, (t_query, t_key) = query.shape[1], (query.shape[2], key.shape[2])
    near = window - 1 if window else t_query + t_key
    ahead, back = 0 if causal else near, near
    mask, mask_at = _mask(calls, rest[: len(rest) - bool(dropout)], t_key)
    shape = (heads, heads // key.shape[1], t_query, t_key, query.shape[3], value.shape[3])
    steep = np.asarray(slopes, np.float32) if slopes else np.zeros(heads, np.float32)
    draw = rest[-1] if dropout else _NO_KEY
    drops, keeps = math.ceil(float(np.float32(dropout)) * 2**24), np.float32(1.0 / (1.0 - dropout))
    return shape, (ahead, back, steep, mask, mask_at, draw, drops, keeps, np.float32(scale))


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
    flat = [part for array in (query, key, value) for part in _flat(calls, array)]
    result, finish = _output(outputs[0])
    lse = outputs[1].reshape(-1)
    calls.over_rows(_forward, tasks * -(-t_query // BLOCK), work, shape, *flat, *_flat(calls, result), lse, *options)
    finish(calls)
    return True


def flash_attention_grad(calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array], **attributes: Any) -> bool:
    """(dQ, dK, dV); scores are computed again from the log-sum-exp."""
    g, query, key, value, result, lse, *rest = inputs
    if not query.size or not key.size or not value.size or query.ndim > 4:
        return False
    shape, options = _options(calls, (query, key, value), rest, **attributes)
    read = [part for array in (g, query, key, value, result) for part in _flat(calls, array)]
    gradients, finishes = zip(*[_output(output) for output in outputs], strict=True)
    written = [part for array in gradients for part in _flat(calls, array)]
    tasks = lse.size // shape[2] // shape[1]
    work = (3 * shape[4] + 2 * shape[5]) * lse.size * shape[3] * PAIR
    calls.over_rows(_backward, tasks, work, shape, *read, calls.contiguous(lse).reshape(-1), *written, *options)
    for finish in finishes:
        finish(calls)
    return True


def _output(output: Array) -> tuple[Array, Callable[[Calls], None]]:
    """An output to compute, and how to finish: one whose rows are not in order is computed elsewhere and copied."""
    if output.shape[-1] == 1 or output.strides[-1] == 4:
        return output, lambda calls: None
    array = np.empty(output.shape, np.float32)
    return array, lambda calls: calls.add(np.copyto, output, array)
