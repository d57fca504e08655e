"""Attention whose weights are never stored: only each row's log-sum-exp is kept, so memory grows with T, not with T^2.

The same function as `minigrad.ops.attention` (exact, not an approximation), with what is usually done to the scores
done where they live: causality, a sliding window, ALiBi, dropout, heads of queries that share a head of keys. Kernels
go through the scores block by block and skip what nobody may see (Dao et al. 2022; document 002 'Flash Attention').

Attributes beyond `scale` and `causal` are given only where they are used: window (keys at distance below it are
visible), slopes (ALiBi's, one a head), dropout (the probability; then the last input is the key of the random draw).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from minigrad import dtypes, random
from minigrad.ops import attention as plain
from minigrad.ops import rules
from minigrad.ops.arguments import expect_tensors
from minigrad.ops.copies import placed
from minigrad.ops.derivation import derive
from minigrad.ops.joins import repeat_interleave
from minigrad.ops.logic import bitwise_and
from minigrad.ops.matmul import matmul
from minigrad.ops.operands import cast
from minigrad.ops.reduce import sum
from minigrad.ops.registry import FLOATS, Array, Meta, Op, Sample, op
from minigrad.ops.shape import reshape, transpose
from minigrad.state import silently
from minigrad.tensor import Tensor

Slopes = tuple[float, ...]


def distances(t_query: int, t_key: int) -> Array:
    """How far each key lies before each query ``(Tq, Tk)``; the last query stands at the last key."""
    return np.arange(t_key - t_query, t_key)[:, None] - np.arange(t_key)


def visible(t_query: int, t_key: int, causal: bool = True, window: int = 0) -> Array:
    """What position alone lets be seen, bool ``(Tq, Tk)``: no later key if `causal`, none `window` or more away."""
    distance = distances(t_query, t_key)
    seen = distance >= 0 if causal else np.ones(distance.shape, bool)
    return seen & (abs(distance) < window) if window else seen


# --- reference --------------------------------------------------------------------------------------


def _weights(
    query: Array,
    key: Array,
    rest: Sequence[Array],
    scale: float,
    causal: bool,
    window: int,
    slopes: Slopes,
    dropout: float,
) -> tuple[Array, Array | None, Array]:
    """(scores, which of them are visible, factors of dropout); heads of keys are repeated."""
    t_query, t_key = query.shape[-2], key.shape[-2]
    scores = np.matmul(query, np.swapaxes(_spread(key, query), -1, -2)) * np.asarray(scale, query.dtype)
    if slopes:
        bias = np.multiply.outer(np.asarray(slopes), abs(distances(t_query, t_key)))
        scores = scores - bias.astype(query.dtype)
    seen = rest[0] if len(rest) > bool(dropout) else None
    if causal or window:
        by_position = visible(t_query, t_key, causal, window)
        seen = by_position if seen is None else seen & by_position
    if not dropout:
        return scores, seen, np.ones((), query.dtype)
    drawn = random.uniform_op.evaluate([rest[-1]], {"shape": scores.shape, "dtype": dtypes.float32})[0]
    return scores, seen, (drawn >= np.float32(dropout)).astype(query.dtype) * query.dtype.type(1.0 / (1.0 - dropout))


def _spread(array: Array, query: Array) -> Array:
    """Keys or values with a head for every head of the query."""
    if array.ndim < 3 or array.shape[-3] == query.shape[-3]:
        return array
    return np.repeat(array, query.shape[-3] // array.shape[-3], axis=-3)


def _gathered(gradient: Array, array: Array) -> Array:
    """The gradient of `_spread`."""
    if gradient.shape == array.shape:
        return gradient
    return gradient.reshape(*array.shape[:-2], -1, *array.shape[-2:]).sum(axis=-3)


def _flash(
    query: Array, key: Array, value: Array, *rest: Array, scale: float, causal: bool, window: int = 0,
    slopes: Slopes = (), dropout: float = 0.0,
) -> tuple[Array, Array]:  # fmt: skip
    scores, seen, kept = _weights(query, key, rest, scale, causal, window, slopes, dropout)
    if seen is not None:
        scores = np.where(seen, scores, np.asarray(-np.inf, query.dtype))
    peak = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    peak = np.where(peak == -np.inf, np.asarray(0, query.dtype), peak)
    e = np.exp(scores - peak)
    total = np.sum(e, axis=-1, keepdims=True)
    lse = (np.log(total) + peak)[..., 0]
    weights = e / np.where(total == 0, np.asarray(1, query.dtype), total)
    return np.matmul(weights * kept, _spread(value, query)), lse


def _flash_grad(
    g: Array, query: Array, key: Array, value: Array, result: Array, lse: Array, *rest: Array, scale: float,
    causal: bool, window: int = 0, slopes: Slopes = (), dropout: float = 0.0,
) -> tuple[Array, Array, Array]:  # fmt: skip
    scores, seen, kept = _weights(query, key, rest, scale, causal, window, slopes, dropout)
    if seen is not None:
        scores = np.where(seen, scores, np.asarray(-np.inf, query.dtype))
    weights = np.exp(scores - np.where(lse == -np.inf, np.asarray(0, lse.dtype), lse)[..., None])
    d_weights = np.matmul(g, np.swapaxes(_spread(value, query), -1, -2)) * kept
    inner = np.sum(g * result, axis=-1, keepdims=True)
    d_scores = weights * (d_weights - inner) * np.asarray(scale, query.dtype)
    return (
        np.matmul(d_scores, _spread(key, query)),
        _gathered(np.matmul(np.swapaxes(d_scores, -1, -2), query), key),
        _gathered(np.matmul(np.swapaxes(weights * kept, -1, -2), g), value),
    )


# --- decomposition ----------------------------------------------------------------------------------


def _parts(
    query: Tensor, key: Tensor, value: Tensor, rest: Sequence[Tensor], scale: float, causal: bool, window: int = 0,
    slopes: Slopes = (), dropout: float = 0.0,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:  # fmt: skip
    """(weights, the factors of their dropout, keys and values with a head for every head of the query)."""
    t_query, t_key, device = query.array.shape[-2], key.array.shape[-2], query.storage.device
    if key.array.ndim > 2 and key.array.shape[-3] != query.array.shape[-3]:
        group = query.array.shape[-3] // key.array.shape[-3]
        key, value = repeat_interleave(key, group, -3), repeat_interleave(value, group, -3)
    mask = rest[0] if len(rest) > bool(dropout) else None
    if causal or window:
        by_position = placed(visible(t_query, t_key, causal, window), device)
        mask = by_position if mask is None else bitwise_and(mask, by_position)
    bias = None
    if slopes:
        far = np.multiply.outer(-np.asarray(slopes), abs(distances(t_query, t_key)))
        bias = placed(far.astype(query.array.dtype), device)
    weights = plain.attention_weights(query, key, mask, scale, bias)
    if not dropout:
        return weights, None, key, value
    drawn = random.uniform_op(rest[-1], shape=weights.array.shape, dtype=dtypes.float32)
    return weights, cast(drawn >= dropout, dtype=query.array.dtype) * (1.0 / (1.0 - dropout)), key, value


def _steps(
    query: Tensor, key: Tensor, value: Tensor, *rest: Tensor, scale: float, causal: bool, **options: Any
) -> Tensor:
    weights, kept, _, value = _parts(query, key, value, rest, scale, causal, **options)
    return matmul(weights if kept is None else weights * kept, value)


def _grad_steps(
    g: Tensor, query: Tensor, key: Tensor, value: Tensor, result: Tensor, lse: Tensor, *rest: Tensor, scale: float,
    causal: bool, **options: Any,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """From the inputs alone: result and log-sum-exp are functions of them."""
    weights, kept, keys, values = _parts(query, key, value, rest, scale, causal, **options)
    d_weights = matmul(g, transpose(values, -1, -2))
    dropped = weights
    if kept is not None:
        d_weights, dropped = d_weights * kept, weights * kept
    d_scores = weights * (d_weights - sum(d_weights * weights, -1, keepdim=True)) * scale
    d_key, d_value = matmul(transpose(d_scores, -1, -2), query), matmul(transpose(dropped, -1, -2), g)
    if d_key.array.shape != key.array.shape:
        d_key, d_value = (
            sum(reshape(gradient, *of.array.shape[:-2], -1, *of.array.shape[-2:]), -3)
            for gradient, of in ((d_key, key), (d_value, value))
        )
    return matmul(d_scores, keys), d_key, d_value


# --- ops --------------------------------------------------------------------------------------------


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    query, key, value = (rng.standard_normal(shape) for shape in ((2, 4, 3, 6), (2, 2, 5, 6), (2, 2, 5, 7)))
    draw, attrs = np.array([3, 5]), {"scale": 6**-0.5, "causal": True}
    yield (query, key, value), {**attrs, "window": 2}
    yield (query, key, value), {**attrs, "causal": False, "slopes": (0.5, 0.25, 0.125, 0.0625)}
    yield (query, key, value, draw), {**attrs, "dropout": 0.4}
    yield (query, key, value, rng.random((2, 1, 1, 5)) < 0.7, draw), {**attrs, "dropout": 0.4}
    for inputs, attrs in plain.attention_op.samples(rng):  # type: ignore[misc]
        for causal in (False, True):
            yield inputs, {**attrs, "causal": causal}


def _pairs(query: Meta, key: Meta, causal: bool, window: int = 0, **_: Any) -> int:
    """How many pairs of a query and a key there are, about."""
    t_key = key[0][-2]
    seen = min(window * (1 if causal else 2), t_key) if window else t_key
    return rules.size(query) // query[0][-1] * (seen // 2 if causal and not window else seen)


flash_op: Op = op(
    "flash_attention", _flash,
    lambda g, query, key, value, rest, out, out1, attrs: [
        *flash_grad_op(g, query, key, value, out, out1, *rest, **attrs),
        *[None] * len(rest),
    ],
    decomposition=_steps, aux=1, wide=1, keeps_output=True,
    shape=lambda metas, **_: [
        ((*metas[0][0][:-1], metas[2][0][-1]), metas[0][1]),
        (metas[0][0][:-1], dtypes.float32 if dtypes.is_half(metas[0][1]) else metas[0][1]),
    ],
    flops=lambda metas, outputs, **attrs: (
        (2 * metas[0][0][-1] + 2 * metas[2][0][-1] + 14) * _pairs(metas[0], metas[1], **attrs)
    ),
    samples=_samples, formula="softmax(scale Q K^T over visible keys) V, and each row's ln sum e^score",
    source="Dao et al. 2022; document 002 'Flash Attention'",
    kernels={"numba.flash": "float32", "cuda.attention": FLOATS}, any_strides=True,
    derivation=derive(
        *plain.CHAIN,
        "P is not kept, but its row's ln sum e^S is (y1): P = e^(S - y1) is made again, block by block",
        "rowsum(dP P) = rowsum(G V^T P) = rowsum(G O): one number a row, known before any block is visited",
        let={
            "S": "hide(scale * query @ T(key), causal)",
            "P": "exp(S - y1[..., None])",
            "dS": "P * (g @ T(value) - sum(g * y))",
        },
        example=plain.example(True, False),
        **plain.LAST,
    ),
)  # fmt: skip


def _grad_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for (query, key, value, *rest), attrs in _samples(rng):
        result, lse = silently(_flash, query, key, value, *rest, **attrs)
        yield (rng.standard_normal(result.shape), query, key, value, result, lse, *rest), attrs


flash_grad_op: Op = op(
    "flash_attention_grad", _flash_grad, decomposition=_grad_steps,
    shape=lambda metas, **_: [metas[1], metas[2], metas[3]],
    flops=lambda metas, outputs, **attrs: (10 * metas[1][0][-1] + 4) * _pairs(metas[1], metas[2], **attrs),
    samples=_grad_samples,
    formula="P = e^(S - lse); dV = P^T g; dS = P (g V^T - rowsum(g O)) scale; dQ = dS K; dK = dS^T Q",
    source="Dao et al. 2022", kernels={"numba.flash": "float32", "cuda.attention": FLOATS}, any_strides=True,
    derivation=plain.second_order(
        {"S": "hide(scale * query @ T(key), causal)", "P": "exp(S - lse[..., None])"}, example=plain.example(True, True)
    ),
)  # fmt: skip


def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    *,
    window: int = 0,
    slopes: Sequence[float] = (),
    dropout: float = 0.0,
    generator: random.Generator | None = None,
) -> Tensor:
    """Scaled dot-product attention ``(..., Tq, d_v)`` without stored weights.

    query ``(..., H, Tq, d_k)``, key ``(..., H', Tk, d_k)``, value ``(..., H', Tk, d_v)``, where H' divides H: H / H'
    consecutive heads of queries share one of keys. mask bool, True = may attend; `causal` hides later keys, aligned at
    the end, and `window` keys at that distance or further (0: none). slopes: ALiBi's, one a head: slope * distance is
    subtracted from the scaled score. dropout: drops weights, equal to `functional.dropout` of them with the same
    generator. Raises as `minigrad.ops.attention.attention` does, ValueError also for a dropout outside [0, 1), a
    negative window, or slopes that are not one for each head.
    """
    rest = plain.checked(query, key, value, mask, shared_heads=True)
    heads = query.array.shape[-3] if query.array.ndim > 2 else 1
    if not 0.0 <= dropout < 1.0:
        raise ValueError(f"flash_attention: the probability of dropout must lie in [0, 1), got {dropout}")
    if window < 0:
        raise ValueError(f"flash_attention: a window must not be negative (0 means none), got {window}")
    if slopes and len(slopes) != heads:
        raise ValueError(f"flash_attention: {len(slopes)} slopes were given for {heads} heads: give one for each")
    dtype = query.array.dtype
    options: dict[str, Any] = {}
    if window:
        options["window"] = int(window)
    if slopes:
        options["slopes"] = tuple(map(float, slopes))
    if dropout:
        options["dropout"] = float(dropout)
        words = int(np.prod(query.array.shape[:-1])) * key.array.shape[-2]
        rest.append((generator or random.default_generator).take(words, query.storage.device))
    factor = max(query.array.shape[-1], 1) ** -0.5 if scale is None else scale
    key, value = cast(key, dtype=dtype), cast(value, dtype=dtype)
    return flash_op(query, key, value, *rest, scale=float(factor), causal=bool(causal), **options)[0]


expect_tensors(globals())
