"""Flash attention: scores live only for a block of queries, hidden keys of the causal half are skipped.

Short sequences run whole heads inside one compiled loop. Longer ones go block by block through BLAS: products of a
block of queries with all keys that it may see, on one core a head, the row work between them compiled.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad.kernels import blas
from minigrad.kernels.calls import Calls
from minigrad.kernels.numba.jit import kernel
from minigrad.kernels.numba.math import as_float, exp, log
from minigrad.kernels.threads import over_rows

Array = np.ndarray
BLOCK = 128  # queries whose scores are held at a time
SHORT = 64  # keys up to which a head runs in one compiled loop

_LEAST, _SIGN, _MAGNITUDE = np.int32(-(2**31)), np.int32(31), np.int32(0x7FFFFFFF)
_ZERO, _ONE, _LOW = np.float32(0), np.float32(1), np.float32(-np.inf)
_NO_MASK = np.zeros((1, 1), np.bool_)
_NO_MASKS = np.zeros((1, 1, 1, 1), np.bool_)


# --- rows of a block --------------------------------------------------------------------------------


@kernel
def _softmax_rows(start, stop, scores, bits, mask, masked, first, causal, scale, lse):
    """scores -> weights in place, and each row's log-sum-exp. Row i sees the keys up to first + i if causal."""
    for i in range(start, stop):
        width = min(first + i + 1, scores.shape[1]) if causal else scores.shape[1]
        highest = _LEAST
        if masked:
            for j in range(width):
                word = bits[i, j]
                ordered = word ^ ((word >> _SIGN) & _MAGNITUDE)
                highest = max(highest, ordered if mask[i, j] else _LEAST)
        else:
            for j in range(width):
                word = bits[i, j]
                highest = max(highest, word ^ ((word >> _SIGN) & _MAGNITUDE))
        total = _ZERO
        if highest == _LEAST:  # nothing is visible
            peak = _ZERO
            width = 0
        else:
            peak = as_float(highest ^ ((highest >> _SIGN) & _MAGNITUDE)) * scale
        if masked:
            for j in range(width):
                e = exp(scores[i, j] * scale - peak) if mask[i, j] else _ZERO
                scores[i, j] = e
                total += e
        else:
            for j in range(width):
                e = exp(scores[i, j] * scale - peak)
                scores[i, j] = e
                total += e
        lse[i] = log(total) + peak if width else _LOW
        factor = _ONE / total if total != _ZERO else _ZERO
        for j in range(width):
            scores[i, j] *= factor
        for j in range(width, scores.shape[1]):
            scores[i, j] = _ZERO


@kernel
def _grad_rows(start, stop, scores, d_weights, mask, masked, first, causal, scale, lse, g, result):
    """scores -> weights and d_weights -> d_scores, in place."""
    for i in range(start, stop):
        width = min(first + i + 1, scores.shape[1]) if causal else scores.shape[1]
        if lse[i] == _LOW:
            width = 0
        inner = _ZERO
        for c in range(g.shape[1]):
            inner += g[i, c] * result[i, c]
        peak = lse[i]
        if masked:
            for j in range(width):
                p = exp(scores[i, j] * scale - peak) if mask[i, j] else _ZERO
                scores[i, j] = p
                d_weights[i, j] = p * (d_weights[i, j] - inner) * scale
        else:
            for j in range(width):
                p = exp(scores[i, j] * scale - peak)
                scores[i, j] = p
                d_weights[i, j] = p * (d_weights[i, j] - inner) * scale
        for j in range(width, scores.shape[1]):
            scores[i, j] = _ZERO
            d_weights[i, j] = _ZERO


# --- long sequences: blocks through BLAS ------------------------------------------------------------

_local = threading.local()


def _scratch(name: str, rows: int, columns: int) -> Array:
    """This thread's own block of memory, kept between calls."""
    held = _local.__dict__.setdefault(name, np.empty(0, np.float32))
    if held.size < rows * columns:
        held = _local.__dict__[name] = np.empty(rows * columns, np.float32)
    return held[: rows * columns].reshape(rows, columns)


def _forward_heads(start: int, stop: int, heads: Sequence[tuple[Any, ...]], scale: Any, causal: bool) -> None:
    for query, key, value, mask, masked, out, lse in heads[start:stop]:
        t_query, t_key = len(query), len(key)
        for r0 in range(0, t_query, BLOCK):
            r1 = min(r0 + BLOCK, t_query)
            first = r0 + t_key - t_query
            seen = max(min(first + r1 - r0, t_key), 0) if causal else t_key
            if seen == 0:
                out[r0:r1] = 0
                lse[r0:r1] = -np.inf
                continue
            scores = _scratch("scores", r1 - r0, seen)
            np.matmul(query[r0:r1], key[:seen].T, scores)
            rows = mask[r0:r1] if masked else _NO_MASK
            _softmax_rows(0, r1 - r0, scores, scores.view(np.int32), rows, masked, first, causal, scale, lse[r0:r1])
            np.matmul(scores, value[:seen], out[r0:r1])


def _backward_heads(start: int, stop: int, heads: Sequence[tuple[Any, ...]], scale: Any, causal: bool) -> None:
    for g, query, key, value, result, lse, mask, masked, d_query, d_key, d_value in heads[start:stop]:
        t_query, t_key = len(query), len(key)
        d_key[...] = 0
        d_value[...] = 0
        for r0 in range(0, t_query, BLOCK):
            r1 = min(r0 + BLOCK, t_query)
            first = r0 + t_key - t_query
            seen = max(min(first + r1 - r0, t_key), 0) if causal else t_key
            if seen == 0:
                d_query[r0:r1] = 0
                continue
            scores, d_weights = _scratch("scores", r1 - r0, seen), _scratch("d_weights", r1 - r0, seen)
            np.matmul(query[r0:r1], key[:seen].T, scores)
            np.matmul(g[r0:r1], value[:seen].T, d_weights)
            rows = mask[r0:r1] if masked else _NO_MASK
            _grad_rows(
                0, r1 - r0, scores, d_weights, rows, masked, first, causal, scale, lse[r0:r1], g[r0:r1], result[r0:r1]
            )
            np.matmul(d_weights, key[:seen], d_query[r0:r1])
            part = _scratch("part", seen, query.shape[1])
            np.matmul(d_weights.T, query[r0:r1], part)
            d_key[:seen] += part
            part = _scratch("part", seen, value.shape[1])
            np.matmul(scores.T, g[r0:r1], part)
            d_value[:seen] += part


def _with_single_blas(kernel: Any, count: int, size: int, *arguments: Any) -> None:
    with blas.single():
        over_rows(kernel, count, size, *arguments)


# --- short sequences: whole heads in one loop -------------------------------------------------------


@kernel
def _short_forward(start, stop, query, key, value, mask, masked, causal, scale, out, lse):
    heads, t_query, d = query.shape[1], query.shape[2], query.shape[3]
    t_key, d_value = key.shape[2], value.shape[3]
    keys = np.empty((d, t_key), np.float32)
    values = np.empty((t_key, d_value), np.float32)
    row = np.empty(t_key, np.float32)
    mixed = np.empty(d_value, np.float32)
    for head in range(start, stop):
        b, h = head // heads, head % heads
        for j in range(t_key):
            for c in range(d):
                keys[c, j] = key[b, h, j, c]
            for c in range(d_value):
                values[j, c] = value[b, h, j, c]
        for i in range(t_query):
            width = max(min(t_key - t_query + i + 1, t_key), 0) if causal else t_key
            row[:width] = _ZERO
            for c in range(d):
                q = query[b, h, i, c] * scale
                for j in range(width):
                    row[j] += q * keys[c, j]
            peak = _LOW
            for j in range(width):
                if not masked or mask[b, h, i, j]:
                    peak = row[j] if row[j] > peak or row[j] != row[j] else peak
                else:
                    row[j] = _LOW
            mixed[:] = _ZERO
            if peak == _LOW:
                lse[b, h, i] = _LOW
            else:
                total = _ZERO
                for j in range(width):
                    e = exp(row[j] - peak)
                    row[j] = e
                    total += e
                lse[b, h, i] = log(total) + peak
                for j in range(width):
                    p = row[j] / total
                    for c in range(d_value):
                        mixed[c] += p * values[j, c]
            for c in range(d_value):
                out[b, h, i, c] = mixed[c]


@kernel
def _short_backward(
    start, stop, g, query, key, value, result, lse, mask, masked, causal, scale, d_query, d_key, d_value
):
    heads, t_query, d = query.shape[1], query.shape[2], query.shape[3]
    t_key, dv = key.shape[2], value.shape[3]
    keys, keys_t = np.empty((t_key, d), np.float32), np.empty((d, t_key), np.float32)
    values_t = np.empty((dv, t_key), np.float32)
    dk, d_values = np.empty((t_key, d), np.float32), np.empty((t_key, dv), np.float32)
    row, slope = np.empty(t_key, np.float32), np.empty(t_key, np.float32)
    q, dq, up = np.empty(d, np.float32), np.empty(d, np.float32), np.empty(dv, np.float32)
    for head in range(start, stop):
        b, h = head // heads, head % heads
        dk[:, :] = _ZERO
        d_values[:, :] = _ZERO
        for j in range(t_key):
            for c in range(d):
                keys[j, c] = key[b, h, j, c]
                keys_t[c, j] = key[b, h, j, c]
            for c in range(dv):
                values_t[c, j] = value[b, h, j, c]
        for i in range(t_query):
            width = max(min(t_key - t_query + i + 1, t_key), 0) if causal else t_key
            peak = lse[b, h, i]
            inner = _ZERO
            for c in range(dv):
                up[c] = g[b, h, i, c]
                inner += up[c] * result[b, h, i, c]
            for c in range(d):
                q[c] = query[b, h, i, c]
            dq[:] = _ZERO
            if peak != _LOW:
                row[:width] = _ZERO
                slope[:width] = _ZERO
                for c in range(d):
                    scaled = q[c] * scale
                    for j in range(width):
                        row[j] += scaled * keys_t[c, j]
                for c in range(dv):
                    for j in range(width):
                        slope[j] += up[c] * values_t[c, j]
                for j in range(width):
                    p = exp(row[j] - peak)
                    if masked:
                        p = p if mask[b, h, i, j] else _ZERO
                    row[j] = p
                    slope[j] = p * (slope[j] - inner) * scale
                for j in range(width):
                    p = row[j]
                    s = slope[j]
                    for c in range(dv):
                        d_values[j, c] += p * up[c]
                    for c in range(d):
                        dq[c] += s * keys[j, c]
                        dk[j, c] += s * q[c]
            for c in range(d):
                d_query[b, h, i, c] = dq[c]
        for j in range(t_key):
            for c in range(d):
                d_key[b, h, j, c] = dk[j, c]
            for c in range(dv):
                d_value[b, h, j, c] = d_values[j, c]


# --- one query: a step of decoding with a cache -----------------------------------------------------


@kernel
def _one_query(start, stop, query, key, value, mask, masked, scale, out, lse):
    """Every array contiguous; key and value are read once, in order."""
    heads, t_key, d = query.shape[1], key.shape[2], key.shape[3]
    d_value = value.shape[3]
    row = np.empty(t_key, np.float32)
    for head in range(start, stop):
        b, h = head // heads, head % heads
        peak = _LOW
        for j in range(t_key):
            score = _ZERO
            for c in range(d):
                score += query[b, h, 0, c] * key[b, h, j, c]
            score *= scale
            if masked:
                score = score if mask[b, h, 0, j] else _LOW
            row[j] = score
            peak = score if score > peak or score != score else peak
        for c in range(d_value):
            out[b, h, 0, c] = _ZERO
        if peak == _LOW:
            lse[b, h, 0] = _LOW
            continue
        total = _ZERO
        for j in range(t_key):
            e = exp(row[j] - peak)
            row[j] = e
            total += e
        lse[b, h, 0] = log(total) + peak
        for j in range(t_key):
            weight = row[j] / total
            if weight != _ZERO:
                for c in range(d_value):
                    out[b, h, 0, c] += weight * value[b, h, j, c]


# --- binding ----------------------------------------------------------------------------------------


def _four(array: Array, rows: int = 2) -> Array:
    """Leading dimensions as two ``(B, H, ...)``, without a copy where there are at most two."""
    lead = array.ndim - rows
    if lead <= 2:
        return array.reshape((1,) * (2 - lead) + array.shape)
    return array.reshape(1, -1, *array.shape[lead:])


def _mask(mask: Sequence[Array], query: Array, key: Array) -> tuple[Array, bool]:
    if not mask:
        return _NO_MASKS, False
    return _four(np.broadcast_to(mask[0], (*query.shape[:-1], key.shape[-2]))), True


def flash_attention(
    calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array], *, scale: float, causal: bool
) -> bool:
    """(output, log-sum-exp); declines empty sequences."""
    query, key, value, *given = inputs
    if not query.size or not key.size or not value.size or query.ndim > 4:
        return False
    mask, masked = _mask(given, query, key)
    q, k, v, out, lse = _four(query), _four(key), _four(value), _four(outputs[0]), _four(outputs[1], 1)
    count = q.shape[0] * q.shape[1]
    work = 2 * lse.size * k.shape[2]
    factor = np.float32(scale)
    if q.shape[2] == 1 and all(a.flags.c_contiguous for a in (q, k, v, out)):
        calls.over_rows(_one_query, count, work * k.shape[3], q, k, v, mask, masked, factor, out, lse)
        return True
    if k.shape[2] <= SHORT:
        calls.over_rows(_short_forward, count, work, q, k, v, mask, masked, causal, factor, out, lse)
        return True
    heads = [(q[i], k[i], v[i], mask[i] if masked else None, masked, out[i], lse[i]) for i in np.ndindex(*q.shape[:2])]
    calls.add(_with_single_blas, _forward_heads, count, work, heads, factor, causal)
    return True


def flash_attention_grad(
    calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array], *, scale: float, causal: bool
) -> bool:
    """(dQ, dK, dV); scores are computed again from the log-sum-exp."""
    g, query, key, value, result, lse, *given = inputs
    if not query.size or not key.size or not value.size or query.ndim > 4:
        return False
    mask, masked = _mask(given, query, key)
    g4, q, k, v, result4 = _four(calls.contiguous(g)), _four(query), _four(key), _four(value), _four(result)
    lse3 = _four(lse, 1)
    d_query, d_key, d_value = (_four(output) for output in outputs)
    count = q.shape[0] * q.shape[1]
    work = 5 * lse3.size * k.shape[2]
    factor = np.float32(scale)
    if k.shape[2] <= SHORT:
        gradients = (d_query, d_key, d_value)
        calls.over_rows(
            _short_backward, count, work, g4, q, k, v, result4, lse3, mask, masked, causal, factor, *gradients
        )
        return True
    read, written = (g4, q, k, v, result4, lse3), (d_query, d_key, d_value)
    heads = [
        (*[a[i] for a in read], mask[i] if masked else None, masked, *[a[i] for a in written])
        for i in np.ndindex(*q.shape[:2])
    ]
    calls.add(_with_single_blas, _backward_heads, count, work, heads, factor, causal)
    return True
