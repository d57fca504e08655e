"""The attention ops on the device: which kernels compute them.

    flash_attention         few queries over keys: `decode_attention`; head sizes up to 128: `flash`; else the weights
    flash_attention_grad    head sizes up to 128: `flash`; else the weights again
    attention, attention_grad   their weights are an output: products, with a kernel over rows between them

Rows may lie anywhere with contiguous elements (heads inside of rows, a part of a cache); masks may be broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from minigrad.kernels.cuda import decode_attention, flash
from minigrad.kernels.cuda.calls import DeviceCalls
from minigrad.kernels.cuda.head_tiles import HEAD_SIZES
from minigrad.kernels.cuda.language import Kernel, cuda, float32, kernel
from minigrad.kernels.cuda.memory import DeviceArray
from minigrad.kernels.cuda.products import product
from minigrad.kernels.cuda.teams import WARP, maxima, sums
from minigrad.kernels.cuda.tiles import CHUNK, NARROW, POINTER, WIDEN, ZERO

FEW = 4  # queries up to which keys are split over blocks
ROWS = 4  # rows of a block of the kernels over rows: a warp each
ONE, LOW = float32(1), float32(-math.inf)
FLOAT32 = np.dtype("float32")


# --- kernels over rows of weights -----------------------------------------------------------------------


@cache
def weights_kernel(dtype: str) -> Kernel:
    """Scores (rows, Tk) -> softmax(scale score) over visible keys, in place, and each row's log-sum-exp.

    Row (batch, head, i) sees keys below i + reach that its mask shows. Launch: grid ceil(rows / ROWS), 32 ROWS threads.
    Three passes over a row that the caches hold: 4 bytes from memory and 4 to it for each weight.
    """
    widen, narrow = WIDEN[dtype], NARROW[dtype]
    largest, added = maxima(WARP), sums(WARP)

    @kernel(
        f"{POINTER[dtype]}, float32*, uint8*" + ", int32" * 10 + ", float32",
        name=f"attention_weights_{dtype}",
        threads=WARP * ROWS,
        registers=64,
    )
    def attention_weights(x, lse, mask, rows, t_query, t_key, heads, m_b, m_h, m_q, m_k, masked, reach, scale):
        row = cuda.blockIdx.x * ROWS + (cuda.threadIdx.x >> 5)
        lane = cuda.threadIdx.x & 31
        if row < rows:
            i = row % t_query
            m_base = row // t_query // heads * m_b + row // t_query % heads * m_h + i * m_q
            start = row * t_key
            peak, total = LOW, ZERO
            for j in range(lane, t_key, WARP):
                seen = j < i + reach
                if seen and masked != 0:
                    seen = mask[m_base + j * m_k] != 0
                score = widen(x[start + j]) * scale if seen else LOW
                x[start + j] = narrow(score)
                peak = max(peak, score)
            peak = largest(peak, None)
            base = peak if peak > LOW or peak != peak else ZERO
            for j in range(lane, t_key, WARP):
                total += math.exp(widen(x[start + j]) - base)
            total = added(total, None)
            share = ONE / total if total != ZERO else ZERO
            for j in range(lane, t_key, WARP):
                x[start + j] = narrow(math.exp(widen(x[start + j]) - base) * share)
            if lane == 0:
                lse[row] = math.log(total) + base if total != ZERO else LOW

    return attention_weights


@cache
def weights_grad_kernel(dtype: str) -> Kernel:
    """dP (rows, Tk) -> dS = P (dP - rowsum(dP P)) scale, in place. Launch as `weights_kernel`."""
    widen, narrow = WIDEN[dtype], NARROW[dtype]
    added = sums(WARP)

    @kernel(
        f"{POINTER[dtype]}, {POINTER[dtype]}, int32, int32, float32",
        name=f"attention_weights_grad_{dtype}",
        threads=WARP * ROWS,
        registers=64,
    )
    def attention_weights_grad(d, weights, rows, t_key, scale):
        row = cuda.blockIdx.x * ROWS + (cuda.threadIdx.x >> 5)
        if row < rows:
            start, inner = row * t_key, ZERO
            for j in range(cuda.threadIdx.x & 31, t_key, WARP):
                inner += widen(d[start + j]) * widen(weights[start + j])
            inner = added(inner, None)
            for j in range(cuda.threadIdx.x & 31, t_key, WARP):
                d[start + j] = narrow(widen(weights[start + j]) * (widen(d[start + j]) - inner) * scale)

    return attention_weights_grad


# --- attention with its weights -------------------------------------------------------------------------


def attention(
    calls: DeviceCalls, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray], *, scale: float
) -> bool:
    """(output, weights)."""
    query, key, value, *mask = inputs
    out, weights = outputs
    if not weights.size:
        product(calls, weights, value, out)
        return True
    dense = weights if weights.is_contiguous else calls.scratch(weights.shape, weights.dtype)
    _weights(calls, query, key, mask, dense, calls.scratch(weights.shape[:-1], FLOAT32), scale, False)
    product(calls, dense, value, out)
    if dense is not weights:
        calls.copy(weights, dense)
    return True


def attention_grad(
    calls: DeviceCalls, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray], *, scale: float
) -> bool:
    """(dQ, dK, dV) from the weights."""
    g, query, key, value, weights, *_ = inputs
    _grad_of_weights(calls, g, query, key, value, calls.contiguous(weights), outputs, scale)
    return True


def _weights(
    calls: DeviceCalls,
    query: DeviceArray,
    key: DeviceArray,
    mask: Sequence[DeviceArray],
    weights: DeviceArray,
    lse: DeviceArray,
    scale: float,
    causal: bool,
) -> None:
    """The weights and log-sum-exps, both contiguous."""
    product(calls, query, _swapped(key), weights)
    four = _four(calls, weights)
    _, heads, t_query, t_key = four.shape
    rows = weights.size // t_key
    shown, strides = _mask(calls, mask, weights.shape)
    calls.launch(
        weights_kernel(weights.dtype.name), -(-rows // ROWS), WARP * ROWS,
        weights, lse, shown, rows, t_query, t_key, heads, *strides, len(mask), _reach(t_query, t_key, causal), scale,
    )  # fmt: skip


def _grad_of_weights(
    calls: DeviceCalls,
    g: DeviceArray,
    query: DeviceArray,
    key: DeviceArray,
    value: DeviceArray,
    weights: DeviceArray,
    outputs: Sequence[DeviceArray],
    scale: float,
) -> None:
    d = calls.scratch(weights.shape, weights.dtype)
    product(calls, g, _swapped(value), d)
    if d.size:
        rows = d.size // d.shape[-1]
        calls.launch(
            weights_grad_kernel(d.dtype.name), -(-rows // ROWS), WARP * ROWS, d, weights, rows, d.shape[-1], scale
        )
    product(calls, d, key, outputs[0])
    product(calls, _swapped(d), query, outputs[1])
    product(calls, _swapped(weights), g, outputs[2])


# --- flash attention ------------------------------------------------------------------------------------


def flash_attention(
    calls: DeviceCalls, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray], *, scale: float, causal: bool,
    **further: Any,
) -> bool:  # fmt: skip
    """(output, log-sum-exp). Key heads may be fewer than query heads, if they divide them (four dimensions)."""
    query, key, value, *mask = inputs
    out, lse = outputs
    if further or not query.size or not key.size or not value.size:  # windows, ALiBi, dropout: by the decomposition
        return False
    dtype = query.dtype.name
    size = max(query.shape[-1], value.shape[-1])
    heights = lse if lse.is_contiguous else calls.scratch(lse.shape, FLOAT32)
    if query.shape[-2] > FEW and size > HEAD_SIZES[-1]:
        weights = calls.scratch((*query.shape[:-1], key.shape[-2]), query.dtype)
        _weights(calls, query, key, mask, weights, heights, scale, causal)
        product(calls, weights, value, out)
    else:
        q, k, v = (_rows(calls, x) for x in (query, key, value))
        target = _four(calls, out) if _has_rows(out) else calls.scratch(_four_shape(out.shape), out.dtype)
        shown, strides = _mask(calls, mask, (*query.shape[:-1], key.shape[-2]))
        vector = _vector(q, k, v)
        batches, heads, t_query, d_key = q.shape
        t_key, d_value = v.shape[-2:]
        group = heads // k.shape[1]
        sizes = [s for x in (q, k, v, target) for s in _strides(x)] + strides
        if t_query <= FEW:
            _decode(calls, q, k, v, shown, target, heights, sizes, len(mask), vector, scale, causal)
        else:
            width = next(s for s in HEAD_SIZES if s >= size)
            shape = flash.forward_shape(dtype, width, t_query, vector)
            calls.launch(
                flash.forward_kernel(dtype, width, vector, shape), (-(-t_query // shape.rows), heads, batches),
                shape.threads, q, k, v, shown, target, heights, t_query, t_key, d_key, d_value, heads, group, *sizes,
                len(mask), int(causal), _paired(target), scale, shared=flash.shared_bytes(dtype, width, shape, 1),
            )  # fmt: skip
        if not _has_rows(out):
            calls.copy(out, target.reshape(out.shape))
    if heights is not lse:
        calls.copy(lse, heights)
    return True


def _decode(
    calls: DeviceCalls, q: DeviceArray, k: DeviceArray, v: DeviceArray, mask: DeviceArray, out: DeviceArray,
    lse: DeviceArray, sizes: Sequence[int], masked: int, vector: bool, scale: float, causal: bool,
) -> None:  # fmt: skip
    dtype = q.dtype.name
    batches, heads, t_query, d_key = q.shape
    t_key, d_value = v.shape[-2:]
    blocks = -(-t_key // decode_attention.KEYS)
    rows = batches * heads * t_query
    several = blocks > 1
    parts = calls.scratch((blocks, rows, d_value) if several else (1,), FLOAT32)
    statistics = calls.scratch((blocks, rows, 2) if several else (1,), FLOAT32)
    lanes = decode_attention.lanes_for(dtype, max(d_key, d_value), vector)
    calls.launch(
        decode_attention.split_kernel(dtype, lanes, vector), (blocks, heads * t_query, batches),
        decode_attention.THREADS, q, k, v, mask, out, lse, parts, statistics, t_query, t_key, d_key, d_value,
        heads // k.shape[1], *sizes, masked, _reach(t_query, t_key, causal), scale,
    )  # fmt: skip
    if several:
        calls.launch(
            decode_attention.combine_kernel(dtype), (heads * t_query, batches), decode_attention.THREADS,
            parts, statistics, out, lse, blocks, t_query, d_value, *_strides(out),
        )  # fmt: skip


def flash_attention_grad(
    calls: DeviceCalls, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray], *, scale: float, causal: bool,
    **further: Any,
) -> bool:  # fmt: skip
    """(dQ, dK, dV); scores are computed again from the log-sum-exp. Heads as in `flash_attention`."""
    g, query, key, value, result, lse, *mask = inputs
    if further or not query.size or not key.size or not value.size:  # windows, ALiBi, dropout: by the decomposition
        return False
    dtype = query.dtype.name
    size = max(query.shape[-1], value.shape[-1])
    if size > HEAD_SIZES[-1]:
        weights = calls.scratch((*query.shape[:-1], key.shape[-2]), query.dtype)
        _weights(calls, query, key, mask, weights, calls.scratch(lse.shape, FLOAT32), scale, causal)
        _grad_of_weights(calls, g, query, key, value, weights, outputs, scale)
        return True
    up, q, k, v, r = (_rows(calls, x) for x in (g, query, key, value, result))
    heights = calls.contiguous(lse)
    targets = [_four(calls, x) if _has_rows(x) else calls.scratch(_four_shape(x.shape), x.dtype) for x in outputs]
    dq, dk, dv = targets
    shown, strides = _mask(calls, mask, (*query.shape[:-1], key.shape[-2]))
    vector = _vector(up, q, k, v)
    batches, heads, t_query, d_key = q.shape
    t_key, d_value = v.shape[-2:]
    key_heads = k.shape[1]
    width = next(s for s in HEAD_SIZES if s >= size)
    delta = calls.scratch((batches, heads, t_query), FLOAT32)
    sizes = (t_query, t_key, d_key, d_value, heads, heads // key_heads)
    read = [s for x in (up, q, k, v) for s in _strides(x)]
    shape = flash.grad_query_shape(dtype, width, t_query)
    calls.launch(
        flash.grad_query_kernel(dtype, width, vector, shape), (-(-t_query // shape.rows), heads, batches),
        shape.threads, up, q, k, v, r, heights, shown, delta, dq, *sizes, *read, *_strides(r), *_strides(dq), *strides,
        len(mask), int(causal), _paired(dq), scale, shared=flash.shared_bytes(dtype, width, shape, 2),
    )  # fmt: skip
    shape = flash.grad_key_shape(dtype, width, t_key)
    calls.launch(
        flash.grad_key_kernel(dtype, width, vector, shape), (-(-t_key // shape.rows), key_heads, batches),
        shape.threads, up, q, k, v, heights, shown, delta, dk, dv, *sizes, *read, *_strides(dk), *_strides(dv),
        *strides, len(mask), int(causal), _paired(dk, dv), scale, shared=flash.shared_bytes(dtype, width, shape, 2),
    )  # fmt: skip
    for output, target in zip(outputs, targets, strict=True):
        if not _has_rows(output):
            calls.copy(output, target.reshape(output.shape))
    return True


# --- layouts --------------------------------------------------------------------------------------------


def _reach(t_query: int, t_key: int, causal: bool) -> int:
    """Query i sees the keys below i + reach."""
    return t_key - t_query + 1 if causal else t_key


def _swapped(x: DeviceArray) -> DeviceArray:
    return x.transpose(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)


def _four_shape(shape: Sequence[int]) -> tuple[int, ...]:
    lead = len(shape) - 2
    return (1,) * (2 - lead) + tuple(shape) if lead <= 2 else (1, math.prod(shape[:lead]), *shape[lead:])


def _four(calls: DeviceCalls, x: DeviceArray) -> DeviceArray:
    """Leading dimensions as two (batches, heads); a copy only of more of them that are not contiguous."""
    return (x if x.ndim <= 4 else calls.contiguous(x)).reshape(_four_shape(x.shape))


def _has_rows(x: DeviceArray) -> bool:
    """Can a kernel read and write x where it is: contiguous elements, and leading dimensions that are two?"""
    return (x.shape[-1] == 1 or x.strides[-1] == x.itemsize) and (x.ndim <= 4 or x.is_contiguous)


def _rows(calls: DeviceCalls, x: DeviceArray) -> DeviceArray:
    """x ``(batches, heads, T, d)`` with contiguous elements."""
    return _four(calls, x if _has_rows(x) else calls.contiguous(x))


def _strides(x: DeviceArray) -> list[int]:
    """Strides of batches, heads and rows in elements; 0 for one of them."""
    return [0 if n == 1 else s // x.itemsize for n, s in zip(x.shape[:3], x.strides[:3], strict=True)]


def _vector(*arrays: DeviceArray) -> bool:
    """Are all rows made of aligned pieces of 16 bytes?"""
    width = CHUNK[arrays[0].dtype.name]
    return all(
        x.pointer % 16 == 0 and x.shape[-1] % width == 0 and not any(s % width for s in _strides(x)) for x in arrays
    )


def _paired(*arrays: DeviceArray) -> int:
    """Do all rows begin at a multiple of two elements' size?"""
    return int(all(x.pointer % (2 * x.itemsize) == 0 and not any(s % 2 for s in _strides(x)) for x in arrays))


def _mask(calls: DeviceCalls, mask: Sequence[DeviceArray], shape: Sequence[int]) -> tuple[DeviceArray, list[int]]:
    """The mask's bytes, and the strides of (batches, heads, queries, keys), 0 where it is broadcast."""
    if not mask:
        return calls.scratch((1,), np.dtype(bool)), [0, 0, 0, 0]
    given = mask[0]
    missing = len(shape) - given.ndim
    strides = [0] * missing + [0 if n == 1 else s for n, s in zip(given.shape, given.strides, strict=True)]
    whole = given.window(tuple(shape), tuple(strides), 0)
    if len(shape) > 4:
        whole = _four(calls, whole)
        return whole, list(whole.strides)
    return given, [0] * (4 - len(shape)) + strides
