"""Attention whose weights are never stored: only each row's log-sum-exp is kept, so memory grows with T, not with T^2.

The same function as `minigrad.ops.attention` (exact, not an approximation). Its kernels go through the scores block by
block and skip what causality hides (Dao et al. 2022; document 002 'Flash Attention').
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from minigrad import dtypes
from minigrad.ops import attention as plain
from minigrad.ops import rules
from minigrad.ops.elementwise import bitwise_and, cast
from minigrad.ops.matmul import matmul
from minigrad.ops.reduce import sum
from minigrad.ops.registry import Array, Op, Sample, op
from minigrad.ops.shape import transpose
from minigrad.tensor import Tensor


def visible(t_query: int, t_key: int) -> Array:
    """The causal mask ``(Tq, Tk)``, aligned at the end: the last query sees every key."""
    return np.tri(t_query, t_key, t_key - t_query, dtype=bool)


def _mask(query: Array, key: Array, mask: tuple[Array, ...], causal: bool) -> tuple[Array, ...]:
    if not causal:
        return mask
    tri = visible(query.shape[-2], key.shape[-2])
    return (mask[0] & tri,) if mask else (tri,)


def _scores(query: Array, key: Array, mask: tuple[Array, ...], scale: float) -> Array:
    scores = np.matmul(query, np.swapaxes(key, -1, -2)) * np.asarray(scale, query.dtype)
    return np.where(mask[0], scores, np.asarray(-np.inf, query.dtype)) if mask else scores


def _flash(query: Array, key: Array, value: Array, *mask: Array, scale: float, causal: bool) -> tuple[Array, Array]:
    scores = _scores(query, key, _mask(query, key, mask, causal), scale)
    peak = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    peak = np.where(peak == -np.inf, np.asarray(0, query.dtype), peak)
    e = np.exp(scores - peak)
    total = np.sum(e, axis=-1, keepdims=True)
    lse = (np.log(total) + peak)[..., 0]
    return np.matmul(e / np.where(total == 0, np.asarray(1, query.dtype), total), value), lse


def _tensor_mask(query: Tensor, key: Tensor, mask: tuple[Tensor, ...], causal: bool) -> Tensor | None:
    given = mask[0] if mask else None
    if not causal:
        return given
    tri = Tensor(visible(query.array.shape[-2], key.array.shape[-2]))
    return tri if given is None else bitwise_and(given, tri)


def _steps(query: Tensor, key: Tensor, value: Tensor, *mask: Tensor, scale: float, causal: bool) -> Tensor:
    return matmul(plain.attention_weights(query, key, _tensor_mask(query, key, mask, causal), scale), value)


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    for inputs, attrs in plain.attention_op.samples(rng):  # type: ignore[misc]
        for causal in (False, True):
            yield inputs, {**attrs, "causal": causal}


flash_op: Op = op(
    "flash_attention",
    _flash,
    lambda g, query, key, value, mask, out, out1, scale, causal: [
        *flash_grad_op(g, query, key, value, out, out1, *mask, scale=scale, causal=causal),
        *[None] * len(mask),
    ],
    decomposition=_steps,
    aux=1,
    wide=1,
    shape=lambda metas, **_: [
        ((*metas[0][0][:-1], metas[2][0][-1]), metas[0][1]),
        (metas[0][0][:-1], dtypes.float32 if dtypes.is_half(metas[0][1]) else metas[0][1]),
    ],
    flops=lambda metas, outputs, *, scale, causal: (
        (2 * metas[0][0][-1] + 2 * metas[2][0][-1] + 14)
        * rules.size(outputs[1])
        * metas[1][0][-2]
        // (2 if causal else 1)
    ),
    samples=_samples,
    formula="softmax(scale Q K^T over visible keys) V, and each row's ln sum e^score",
    source="Dao et al. 2022; document 002 'Flash Attention'",
)


def _flash_grad(
    g: Array,
    query: Array,
    key: Array,
    value: Array,
    result: Array,
    lse: Array,
    *mask: Array,
    scale: float,
    causal: bool,
) -> tuple[Array, Array, Array]:
    scores = _scores(query, key, _mask(query, key, mask, causal), scale)
    weights = np.exp(scores - np.where(lse == -np.inf, np.asarray(0, lse.dtype), lse)[..., None])
    d_weights = np.matmul(g, np.swapaxes(value, -1, -2))
    inner = np.sum(g * result, axis=-1, keepdims=True)
    d_scores = weights * (d_weights - inner) * np.asarray(scale, query.dtype)
    return (
        np.matmul(d_scores, key),
        np.matmul(np.swapaxes(d_scores, -1, -2), query),
        np.matmul(np.swapaxes(weights, -1, -2), g),
    )


def _grad_steps(
    g: Tensor, query: Tensor, key: Tensor, value: Tensor, result: Tensor, lse: Tensor, *mask: Tensor, scale: float,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """From the inputs alone: result and log-sum-exp are functions of them."""
    weights = plain.attention_weights(query, key, _tensor_mask(query, key, mask, causal), scale)
    d_weights = matmul(g, transpose(value, -1, -2))
    d_scores = weights * (d_weights - sum(d_weights * weights, -1, keepdim=True)) * scale
    return matmul(d_scores, key), matmul(transpose(d_scores, -1, -2), query), matmul(transpose(weights, -1, -2), g)


def _grad_samples(rng: np.random.Generator) -> Iterable[Sample]:
    for (query, key, value, *mask), attrs in _samples(rng):
        result, lse = _flash(query, key, value, *mask, **attrs)
        yield (rng.standard_normal(result.shape), query, key, value, result, lse, *mask), attrs


flash_grad_op: Op = op(
    "flash_attention_grad",
    _flash_grad,
    decomposition=_grad_steps,
    shape=lambda metas, **_: [metas[1], metas[2], metas[3]],
    flops=lambda metas, outputs, *, scale, causal: (
        (10 * metas[1][0][-1] + 4) * rules.size(metas[5]) * metas[2][0][-2] // (2 if causal else 1)
    ),
    samples=_grad_samples,
    formula="P = e^(S - lse); dV = P^T g; dS = P (g V^T - rowsum(g O)) scale; dQ = dS K; dK = dS^T Q",
    source="Dao et al. 2022",
)


def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Scaled dot-product attention ``(..., Tq, d_v)`` without stored weights.

    query ``(..., Tq, d_k)``, key ``(..., Tk, d_k)``, value ``(..., Tk, d_v)``; mask bool, True = may attend; `causal`
    hides later keys, aligned at the end. Raises as `minigrad.ops.attention.attention` does.
    """
    rest = plain.checked(query, key, value, mask)
    dtype = query.array.dtype
    factor = query.array.shape[-1] ** -0.5 if scale is None else scale
    key, value = cast(key, dtype=dtype), cast(value, dtype=dtype)
    return flash_op(query, key, value, *rest, scale=float(factor), causal=bool(causal))[0]
