"""The attention ops on the device: which kernels compute them.

    flash_attention         few queries over keys: `decode_attention`; head sizes up to 128: `flash`; else the weights
    flash_attention_grad    head sizes up to 128: `flash`; else the weights again
    attention, attention_grad   their weights are an output: products, with a kernel over rows between them

Weights and scores in memory are float32: halves would overflow before they are scaled.

Rows may lie anywhere with contiguous elements (heads inside of rows, a part of a cache); masks may be broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from minigrad.kernels.cuda import decode_attention, elementwise, flash, halves
from minigrad.kernels.cuda.calls import DeviceCalls
from minigrad.kernels.cuda.dropout import MOST, threshold
from minigrad.kernels.cuda.dropout import dropout as drop
from minigrad.kernels.cuda.head_tiles import HEAD_SIZES
from minigrad.kernels.cuda.heads import as_four, four_shape, has_rows, in_pairs, in_vectors, row_strides, rows_of_heads
from minigrad.kernels.cuda.language import Kernel, cuda, float32, kernel
from minigrad.kernels.cuda.memory import DeviceArray
from minigrad.kernels.cuda.products import GRID, product
from minigrad.kernels.cuda.scores import LOW, MaskRows, Rows, Seen, Sizes, base_of
from minigrad.kernels.cuda.teams import WARP, maxima, sums
from minigrad.kernels.cuda.tiles import CHUNK, ZERO

FEW = 4  # queries up to which keys are split over blocks
ROWS = 4  # rows of a block of the kernels over rows: a warp each
ONE = float32(1)
FLOAT32 = np.dtype("float32")


# --- kernels over rows of weights -----------------------------------------------------------------------


largest, added = maxima(WARP), sums(WARP)


@kernel(
    "float32*, float32*, uint8*, float32*, int32, MaskRows, Sizes, Seen, float32",
    name="attention_weights",
    threads=WARP * ROWS,
    registers=64,
)
def _softmax_rows(x, lse, mask, slopes, rows, mask_at, sizes, seen, scale):
    """Scores (rows, Tk) -> softmax(scale score) over visible keys, in place, and each row's log-sum-exp.

    Which keys a row sees, and its slope: `minigrad.kernels.cuda.scores`. Launch: grid ceil(rows / ROWS), 32 ROWS
    threads.
    Three passes over a row that the caches hold: 4 bytes from memory and 4 to it for each weight.
    """
    row = cuda.blockIdx.x * ROWS + (cuda.threadIdx.x >> 5)
    lane = cuda.threadIdx.x & 31
    if row < rows:
        i, above = row % sizes.t_query, row // sizes.t_query
        head, batch = above % sizes.heads, above // sizes.heads
        m_base = base_of(mask_at, batch, head) + i * mask_at.query
        t_key = sizes.t_key
        start = row * t_key
        slope = slopes[head] if seen.sloped != 0 else ZERO
        peak, total = LOW, ZERO
        for j in range(lane, t_key, WARP):
            shown = i + seen.low <= j and j < i + seen.reach
            if shown and seen.masked != 0:
                shown = mask[m_base + j * mask_at.key] != 0
            far = float32(abs(i + t_key - sizes.t_query - j))
            score = x[start + j] * scale - slope * far if shown else LOW
            x[start + j] = score
            peak = max(peak, score)
        peak = largest(peak, None)
        base = peak if peak > LOW or peak != peak else ZERO
        for j in range(lane, t_key, WARP):
            total += math.exp(x[start + j] - base)
        total = added(total, None)
        share = ONE / total if total != ZERO else ZERO
        for j in range(lane, t_key, WARP):
            x[start + j] = math.exp(x[start + j] - base) * share
        if lane == 0:
            lse[row] = math.log(total) + base if total != ZERO else LOW


@kernel("float32*, float32*, int32, int32, float32", name="attention_weights_grad", threads=WARP * ROWS, registers=64)
def _softmax_rows_grad(d, weights, rows, t_key, scale):
    """dP (rows, Tk) -> dS = P (dP - rowsum(dP P)) scale, in place. Launch as `_softmax_rows`."""
    row = cuda.blockIdx.x * ROWS + (cuda.threadIdx.x >> 5)
    if row < rows:
        start, inner = row * t_key, ZERO
        for j in range(cuda.threadIdx.x & 31, t_key, WARP):
            inner += d[start + j] * weights[start + j]
        inner = added(inner, None)
        for j in range(cuda.threadIdx.x & 31, t_key, WARP):
            d[start + j] = weights[start + j] * (d[start + j] - inner) * scale


# --- what the kernels are told --------------------------------------------------------------------------


class Told(NamedTuple):
    """About the scores of one call, as `minigrad.kernels.cuda.scores` describes it."""

    mask: DeviceArray
    slopes: DeviceArray
    draw: DeviceArray
    mask_at: MaskRows
    sizes: Sizes
    seen: Seen
    drops: int
    keeps: float
    scale: float

    @property
    def dropping(self) -> bool:
        return self.drops > 0


def _told(
    calls: DeviceCalls, query: DeviceArray, key: DeviceArray, value: DeviceArray, rest: Sequence[DeviceArray],
    *, scale: float, causal: bool = False, window: int = 0, slopes: Sequence[float] = (), dropout: float = 0.0,
) -> Told:  # fmt: skip
    """From the op's inputs and attributes."""
    t_query, t_key = query.shape[-2], key.shape[-2]
    masks = rest[: len(rest) - bool(dropout)]
    mask, strides = _mask(calls, masks, (*query.shape[:-1], t_key))
    heads = four_shape(query.shape)[1]
    sizes = Sizes(t_query, t_key, query.shape[-1], value.shape[-1], heads, heads // four_shape(key.shape)[1])
    near = window - 1 if window else t_query + t_key  # the largest distance that is seen
    ahead = t_key - t_query  # of a query's position
    seen = Seen(ahead - near, ahead + 1 if causal else ahead + near + 1, len(masks), int(bool(slopes)))
    steep = calls.runtime.literal(np.asarray(slopes or (0.0,), np.float32))
    key_of_draw = calls.contiguous(rest[-1]) if dropout else calls.runtime.literal(np.zeros(2, np.int64))
    return Told(mask, steep, key_of_draw, MaskRows(*strides), sizes, seen, *threshold(dropout), scale)


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
    told = _told(calls, query, key, value, mask, scale=scale)
    _weights(calls, query, key, told, dense, calls.scratch(weights.shape[:-1], FLOAT32))
    product(calls, dense, value, out)
    if dense is not weights:
        calls.copy(weights, dense)
    return True


def attention_grad(
    calls: DeviceCalls, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray], *, scale: float
) -> bool:
    """(dQ, dK, dV) from the weights."""
    g, query, key, value, weights, *_ = inputs
    _grad_of_weights(calls, g, query, key, value, calls.contiguous(weights), outputs, scale, lambda weights: weights)
    return True


def _weights(
    calls: DeviceCalls, query: DeviceArray, key: DeviceArray, told: Told, weights: DeviceArray, lse: DeviceArray
) -> None:
    """The weights and log-sum-exps, both contiguous."""
    product(calls, query, _swapped(key), weights)
    rows = weights.size // weights.shape[-1]
    calls.launch(
        _softmax_rows, -(-rows // ROWS), WARP * ROWS,
        weights, lse, told.mask, told.slopes, rows, told.mask_at, told.sizes, told.seen, told.scale,
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
    dropped: Callable[[DeviceArray], DeviceArray],
) -> None:
    """dropped: what dropout makes of the weights, and of the gradients of what it made of them."""
    d = calls.scratch(weights.shape, weights.dtype)
    product(calls, g, _swapped(value), d)
    d = dropped(d)
    if d.size:
        rows = d.size // d.shape[-1]
        calls.launch(_softmax_rows_grad, -(-rows // ROWS), WARP * ROWS, d, weights, rows, d.shape[-1], scale)
    product(calls, d, key, outputs[0])
    product(calls, _swapped(d), query, outputs[1])
    product(calls, _swapped(dropped(weights)), g, outputs[2])


# Heads of queries that share a head of keys follow each other: to the products they are more rows of one.


def _shape_of_rows(x: DeviceArray, key: DeviceArray) -> tuple[int, ...]:
    """Of x ``(..., heads, T, d)`` with the heads of `key`: ``(..., key heads, group T, d)``."""
    return (*key.shape[:-2], math.prod(x.shape[:-1]) // math.prod(key.shape[:-2]), x.shape[-1])


def _rows_of(calls: DeviceCalls, x: DeviceArray, key: DeviceArray) -> DeviceArray:
    """x in `_shape_of_rows`; a copy where heads do not lie one behind the other."""
    if x.shape[:-2] == key.shape[:-2]:
        return x
    return calls.contiguous(x).reshape(_shape_of_rows(x, key))


def _target_rows(calls: DeviceCalls, out: DeviceArray, key: DeviceArray) -> DeviceArray:
    """Where `out` is computed in `_shape_of_rows`; `_copy_back` takes it where it belongs."""
    if out.shape[:-2] == key.shape[:-2]:
        return out
    return (out if out.is_contiguous else calls.scratch(out.shape, out.dtype)).reshape(_shape_of_rows(out, key))


def _copy_back(calls: DeviceCalls, out: DeviceArray, target: DeviceArray) -> None:
    if target.pointer != out.pointer:
        calls.copy(out, target.reshape(out.shape))


# --- flash attention ------------------------------------------------------------------------------------


def _way(query: DeviceArray, key: DeviceArray, value: DeviceArray, dropout: float, few: int = 0) -> str:
    """Which kernels serve: those of up to `few` queries ("few"), "flash", or the "weights", for heads too large for
    tiles or too many for a launch. "" for empty sequences, and for more draws than count."""
    if not query.size or not key.size or not value.size:
        return ""
    batches, heads, tokens, _ = four_shape(query.shape)
    if tokens <= few and not dropout and max(batches, heads * tokens) <= GRID:
        return "few"
    if max(query.shape[-1], value.shape[-1]) <= HEAD_SIZES[-1] and max(batches, heads) <= GRID:
        return "flash"
    return "weights" if not dropout or math.prod(query.shape[:-1]) * key.shape[-2] <= MOST else ""


def _dropper(calls: DeviceCalls, told: Told, p: float) -> Callable[[DeviceArray], DeviceArray]:
    """Dropout of arrays that lie as the weights do."""

    def dropped(weights: DeviceArray) -> DeviceArray:
        if not told.dropping:
            return weights
        made = calls.scratch(weights.shape, weights.dtype)
        drop(calls, [weights, told.draw], [made], p=p)
        return made

    return dropped


def flash_attention(
    calls: DeviceCalls, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray], *, dropout: float = 0.0,
    **attributes: Any,
) -> bool:  # fmt: skip
    """(output, log-sum-exp). Key heads may be fewer than query heads, if they divide them (four dimensions)."""
    query, key, value, *rest = inputs
    out, lse = outputs
    way = _way(query, key, value, dropout, FEW)
    if not way:
        return False
    if way == "weights" and query.dtype != FLOAT32:
        return halves.flash_attention(calls, inputs, outputs, dropout=dropout, **attributes)
    told = _told(calls, query, key, value, rest, dropout=dropout, **attributes)
    dtype = query.dtype.name
    size = max(query.shape[-1], value.shape[-1])
    heights = lse if lse.is_contiguous else calls.scratch(lse.shape, FLOAT32)
    if way == "weights":
        rows, target = _rows_of(calls, query, key), _target_rows(calls, out, key)
        weights = calls.scratch((*rows.shape[:-1], key.shape[-2]), FLOAT32)
        _weights(calls, rows, key, told, weights, heights)
        product(calls, _dropper(calls, told, dropout)(weights), value, target)
        _copy_back(calls, out, target)
    else:
        q, k, v = (rows_of_heads(calls, x) for x in (query, key, value))
        target = as_four(calls, out) if has_rows(out) else calls.scratch(four_shape(out.shape), out.dtype)
        vector = in_vectors(q, k, v)
        if way == "few":
            _decode(calls, q, k, v, target, heights, told, vector)
        else:
            width = next(s for s in HEAD_SIZES if s >= size)
            shape = flash.forward_shape(dtype, width, q.shape[-2], vector, told.dropping)
            _launch(
                calls, flash.forward_kernel(dtype, width, vector, shape, told.dropping), shape, told, q, q, k, v,
                [target, heights], [target], in_pairs(target), flash.shared_bytes(dtype, width, shape, 1),
            )  # fmt: skip
        if not has_rows(out):
            calls.copy(out, target.reshape(out.shape))
    if heights is not lse:
        calls.copy(lse, heights)
    return True


def _launch(
    calls: DeviceCalls, kernel: Kernel, shape: flash.Shape, told: Told, own: DeviceArray, q: DeviceArray,
    k: DeviceArray, v: DeviceArray, arrays: Sequence[DeviceArray], rows: Sequence[DeviceArray], paired: int,
    shared: int,
) -> None:  # fmt: skip
    """A flash kernel over the rows of `own`; rows: the arrays whose strides it takes besides those of q, k and v."""
    batches, heads, tokens, _ = own.shape
    calls.launch(
        kernel, (-(-tokens // shape.rows), heads, batches), shape.threads, q, k, v, told.mask, told.slopes, told.draw,
        *arrays, *(Rows(*row_strides(x)) for x in (q, k, v, *rows)), told.mask_at, told.sizes, told.seen, told.drops,
        paired, told.keeps, told.scale, shared=shared,
    )  # fmt: skip


def _decode(
    calls: DeviceCalls, q: DeviceArray, k: DeviceArray, v: DeviceArray, out: DeviceArray, lse: DeviceArray, told: Told,
    vector: bool,
) -> None:  # fmt: skip
    dtype, sizes = q.dtype.name, told.sizes
    batches, heads, t_query, _ = q.shape
    blocks = -(-sizes.t_key // decode_attention.KEYS)
    rows = batches * heads * t_query
    several = blocks > 1
    parts = calls.scratch((blocks, rows, sizes.d_value) if several else (1,), FLOAT32)
    statistics = calls.scratch((blocks, rows, 2) if several else (1,), FLOAT32)
    lanes = decode_attention.lanes_for(dtype, max(sizes.d_key, sizes.d_value), vector)
    calls.launch(
        decode_attention.split_kernel(dtype, lanes, vector), (blocks, heads * t_query, batches),
        decode_attention.THREADS, q, k, v, told.mask, told.slopes, out, lse, parts, statistics,
        *(Rows(*row_strides(x)) for x in (q, k, v, out)), told.mask_at, sizes, told.seen, told.scale,
    )  # fmt: skip
    if several:
        calls.launch(
            decode_attention.combine_kernel(dtype), (heads * t_query, batches), decode_attention.THREADS,
            parts, statistics, out, lse, blocks, sizes, Rows(*row_strides(out)),
        )  # fmt: skip


def flash_attention_grad(
    calls: DeviceCalls, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray], *, dropout: float = 0.0,
    **attributes: Any,
) -> bool:  # fmt: skip
    """(dQ, dK, dV); scores are computed again from the log-sum-exp. Heads as in `flash_attention`."""
    g, query, key, value, result, lse, *rest = inputs
    way = _way(query, key, value, dropout)
    if not way:
        return False
    if way == "weights" and query.dtype != FLOAT32:
        return halves.flash_attention_grad(calls, inputs, outputs, dropout=dropout, **attributes)
    told = _told(calls, query, key, value, rest, dropout=dropout, **attributes)
    dtype = query.dtype.name
    size = max(query.shape[-1], value.shape[-1])
    if way == "weights":
        up, rows, target = _rows_of(calls, g, key), _rows_of(calls, query, key), _target_rows(calls, outputs[0], key)
        weights = calls.scratch((*rows.shape[:-1], key.shape[-2]), FLOAT32)
        _weights(calls, rows, key, told, weights, calls.scratch(lse.shape, FLOAT32))
        dropped = _dropper(calls, told, dropout)
        _grad_of_weights(calls, up, rows, key, value, weights, (target, *outputs[1:]), told.scale, dropped)
        _copy_back(calls, outputs[0], target)
        return True
    up, q, k, v, r = (rows_of_heads(calls, x) for x in (g, query, key, value, result))
    heights = calls.contiguous(lse)
    vector = in_vectors(up, q, k, v)
    width = next(s for s in HEAD_SIZES if s >= size)
    fits = flash.grad_key_fits(dtype, width, vector, told.dropping)
    if not fits:  # aligned rows need fewer registers
        up, q, k, v, r = (_aligned(calls, x) for x in (up, q, k, v, r))
        vector, told = True, told._replace(sizes=told.sizes._replace(d_key=q.shape[-1], d_value=v.shape[-1]))
    direct = [fits and has_rows(x) for x in outputs]
    targets = [
        as_four(calls, x) if there else calls.scratch((*four_shape(x.shape)[:-1], rows.shape[-1]), x.dtype)
        for x, there, rows in zip(outputs, direct, (q, k, v), strict=True)
    ]
    dq, dk, dv = targets
    delta = calls.scratch(q.shape[:-1], FLOAT32)
    shape = flash.grad_query_shape(dtype, width, told.sizes.t_query, vector, told.dropping)
    _launch(
        calls, flash.grad_query_kernel(dtype, width, vector, shape, told.dropping), shape, told, q, q, k, v,
        [up, r, heights, delta, dq], [up, r, dq], in_pairs(dq), flash.shared_bytes(dtype, width, shape, 2),
    )  # fmt: skip
    shape = flash.grad_key_shape(dtype, width, told.sizes.t_key, vector, told.dropping)
    _launch(
        calls, flash.grad_key_kernel(dtype, width, vector, shape, told.dropping), shape, told, k, q, k, v,
        [up, heights, delta, dk, dv], [up, dk, dv], in_pairs(dk, dv), flash.shared_bytes(dtype, width, shape, 2),
    )  # fmt: skip
    for output, target, there in zip(outputs, targets, direct, strict=True):
        if not there:
            calls.copy(output, target[:, :, :, : output.shape[-1]].reshape(output.shape))
    return True


def _aligned(calls: DeviceCalls, x: DeviceArray) -> DeviceArray:
    """Rows filled up with zeros to aligned pieces of 16 bytes."""
    d, piece = x.shape[-1], CHUNK[x.dtype.name]
    made = calls.scratch((*x.shape[:-1], -(-d // piece) * piece), x.dtype)
    elementwise.fill(calls, made, 0)
    calls.copy(made[:, :, :, :d], x)
    return made


# --- layouts --------------------------------------------------------------------------------------------


def _swapped(x: DeviceArray) -> DeviceArray:
    return x.transpose(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2)


def _mask(calls: DeviceCalls, mask: Sequence[DeviceArray], shape: Sequence[int]) -> tuple[DeviceArray, list[int]]:
    """The mask's bytes, and the strides of (batches, heads, queries, keys), 0 where it is broadcast."""
    if not mask:
        return calls.scratch((1,), np.dtype(bool)), [0, 0, 0, 0]
    given = mask[0]
    missing = len(shape) - given.ndim
    strides = [0] * missing + [0 if n == 1 else s for n, s in zip(given.shape, given.strides, strict=True)]
    whole = given.window(tuple(shape), tuple(strides), 0)
    if len(shape) > 4:
        whole = as_four(calls, whole)
        return whole, list(whole.strides)
    return given, [0] * (4 - len(shape)) + strides
