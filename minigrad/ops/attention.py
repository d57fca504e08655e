"""Scaled dot-product attention as one node (document 000 section 2.2.3; Vaswani et al. 2017, 3.2.1).

Masks are boolean (True = may attend) and stay boolean: a hidden weight is exactly 0, and a row whose keys are all
hidden gives 0 output and 0 gradient, never NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from minigrad import dtypes
from minigrad.ops import rules
from minigrad.ops.arguments import expect_tensors
from minigrad.ops.derivation import Derivation, Example, derive, grid
from minigrad.ops.elementwise import exp
from minigrad.ops.matmul import matmul
from minigrad.ops.operands import cast
from minigrad.ops.reduce import amax, sum
from minigrad.ops.registry import HALVES, Array, Op, Sample, op
from minigrad.ops.selection import where
from minigrad.ops.shape import detach, transpose
from minigrad.tensor import Tensor

CHAIN = (
    "O = P V, P = softmax(S), S = scale Q K^T; as in matmul dV = P^T G and dP = G V^T",
    "softmax's rule, row by row: dS = P (dP - rowsum(dP P)); a hidden key has P = 0 and gets nothing",
)
LAST = {"query": "scale * dS @ key", "key": "scale * T(dS) @ query", "value": "T(P) @ g"}


def example(flash: bool, grad: bool) -> Example:
    """Two queries, two keys of width 3; flash attention is causal, so that its mask has a part."""
    q, k, v = (grid(2, 3, seed=seed) for seed in range(3))
    scale = 3**-0.5
    scores = np.where(np.tri(2, dtype=bool) | (not flash), q @ k.T * scale, -np.inf)
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    kept = [weights @ v, np.log(np.exp(scores).sum(-1))] if flash else [weights]
    attrs = {"scale": scale, "causal": True} if flash else {"scale": scale}
    return lambda: ([*([grid(2, 3, seed=3)] if grad else []), q, k, v, *(kept if grad else [])], attrs)


def second_order(weights: Mapping[str, str], example: Example) -> Derivation:
    """Of the gradients of attention; `weights` says how P is found."""
    return derive(
        "three outputs: A = scale dS K, B = scale dS^T Q, C = P^T g, with dS = P (dP - rowsum(dP P)), dP = g V^T",
        "L = <h, A> + <h1, B> + <h2, C>: what arrives at dS is E = scale (h K^T + Q h1^T)",
        "dS is linear in dP and symmetric: F = P (E - rowsum(E P)) arrives at dP",
        "what arrives at P: W = E (dP - rowsum(dP P)) - dP rowsum(E P) + g h2^T; softmax carries it to S: U",
        "Q and K are read by S and, directly, by A and B",
        let={
            **weights,
            "dP": "g @ T(value)",
            "dS": "P * (dP - sum(dP * P))",
            "E": "scale * (h @ T(key) + query @ T(h1))",
            "F": "P * (E - sum(E * P))",
            "W": "E * (dP - sum(dP * P)) - dP * sum(E * P) + g @ T(h2)",
            "U": "P * (W - sum(W * P))",
        },
        example=example,
        g="F @ value + P @ h2",
        query="scale * (U @ key + dS @ h1)",
        key="scale * (T(U) @ query + T(dS) @ h)",
        value="T(F) @ g",
    )


def _weights(query: Array, key: Array, mask: tuple[Array, ...], scale: float) -> Array:
    scores = np.matmul(query, np.swapaxes(key, -1, -2)) * np.asarray(scale, query.dtype)
    if mask:
        scores = np.where(mask[0], scores, np.asarray(-np.inf, query.dtype))
    peak = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    e = np.exp(scores - np.where(peak == -np.inf, np.asarray(0, query.dtype), peak))
    total = np.sum(e, axis=-1, keepdims=True)
    return e / np.where(total == 0, np.asarray(1, query.dtype), total)


def _attention(query: Array, key: Array, value: Array, *mask: Array, scale: float) -> tuple[Array, Array]:
    weights = _weights(query, key, mask, scale)
    return np.matmul(weights, value), weights


def attention_weights(
    query: Tensor, key: Tensor, mask: Tensor | None, scale: float, bias: Tensor | None = None
) -> Tensor:
    """softmax of the scaled scores plus `bias` over the visible keys ``(..., Tq, Tk)``, in plain tensor ops."""
    scores = matmul(query, transpose(key, -1, -2)) * scale
    return visible_softmax(scores if bias is None else scores + bias, mask)


def visible_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """softmax of scores ``(..., Tq, Tk)`` over the visible keys; a row without any gives zeros. In plain tensor ops."""
    if mask is None:
        e = exp(scores - detach(amax(scores, -1, keepdim=True)))
        return e / sum(e, -1, keepdim=True)
    hidden = where(mask, scores, float("-inf"))
    peak = detach(amax(hidden, -1, keepdim=True))
    e = where(mask, exp(where(mask, scores - where(peak == float("-inf"), 0.0, peak), 0.0)), 0.0)
    total = sum(e, -1, keepdim=True)
    return e / where(total == 0, 1.0, total)


def _steps(query: Tensor, key: Tensor, value: Tensor, *mask: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    weights = attention_weights(query, key, mask[0] if mask else None, scale)
    return matmul(weights, value), weights


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    for mask in (None, (4, 5), (2, 1, 1, 5)):
        inputs: list[Array] = [rng.standard_normal(shape) for shape in ((2, 3, 4, 6), (2, 3, 5, 6), (2, 3, 5, 7))]
        if mask is not None:
            visible = rng.random(mask) < 0.6
            visible[..., 0, :] = False
            visible[-1:] = True
            inputs.append(visible)
        yield inputs, {"scale": 6**-0.5}


attention_op = op(
    "attention",
    _attention,
    lambda g, query, key, value, mask, out1, scale: [
        *attention_grad_op(g, query, key, value, out1, *mask, scale=scale),
        *[None] * len(mask),
    ],
    decomposition=_steps,
    aux=1,
    keeps_output=True,
    shape=lambda metas, *, scale: [
        ((*metas[0][0][:-1], metas[2][0][-1]), metas[0][1]),
        ((*metas[0][0][:-1], metas[1][0][-2]), metas[0][1]),
    ],
    flops=lambda metas, outputs, *, scale: (2 * metas[0][0][-1] + 2 * metas[2][0][-1] + 14) * rules.size(outputs[1]),
    samples=_samples,
    formula="softmax(scale Q K^T over visible keys) V",
    source="document 000 section 2.2.3; Vaswani et al. 2017, 3.2.1",
    kernels={"cuda.halves": HALVES, "cuda.attention": "float32"},
    derivation=derive(
        *CHAIN,
        "S = scale Q K^T: dQ = scale dS K, dK = scale dS^T Q",
        let={"P": "y1", "dP": "g @ T(value)", "dS": "P * (dP - sum(dP * P))"},
        example=example(False, False),
        **LAST,
    ),
)


def _attention_grad(
    g: Array, query: Array, key: Array, value: Array, weights: Array, *mask: Array, scale: float
) -> tuple[Array, Array, Array]:
    d_weights = np.matmul(g, np.swapaxes(value, -1, -2))
    inner = np.sum(d_weights * weights, axis=-1, keepdims=True)
    d_scores = weights * (d_weights - inner) * np.asarray(scale, query.dtype)
    return (
        np.matmul(d_scores, key),
        np.matmul(np.swapaxes(d_scores, -1, -2), query),
        np.matmul(np.swapaxes(weights, -1, -2), g),
    )


def _grad_steps(
    g: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor, *mask: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """From the inputs alone: the weights are functions of them."""
    weights = attention_weights(query, key, mask[0] if mask else None, scale)
    d_weights = matmul(g, transpose(value, -1, -2))
    d_scores = weights * (d_weights - sum(d_weights * weights, -1, keepdim=True)) * scale
    return matmul(d_scores, key), matmul(transpose(d_scores, -1, -2), query), matmul(transpose(weights, -1, -2), g)


attention_grad_op: Op = op(
    "attention_grad",
    _attention_grad,
    decomposition=_grad_steps,
    shape=lambda metas, *, scale: [metas[1], metas[2], metas[3]],
    flops=lambda metas, outputs, *, scale: (6 * metas[1][0][-1] + 4) * rules.size(metas[4]),
    samples=lambda rng: [
        (
            (
                rng.standard_normal((*q.shape[:-1], v.shape[-1])),
                q,
                k,
                v,
                _weights(q, k, tuple(mask), attrs["scale"]),
                *mask,
            ),
            attrs,
        )
        for (q, k, v, *mask), attrs in _samples(rng)
    ],
    formula="P = weights; dV = P^T g; dP = g V^T; dS = P (dP - rowsum(dP P)) scale; dQ = dS K; dK = dS^T Q",
    kernels={"cuda.halves": HALVES, "cuda.attention": "float32"},
    derivation=second_order({"P": "weights"}, example=example(False, True)),
)


def attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """(output ``(..., Tq, d_v)``, weights ``(..., Tq, Tk)``, which carry no gradient) of scaled dot-product attention.

    query ``(..., Tq, d_k)``, key ``(..., Tk, d_k)``, value ``(..., Tk, d_v)``; mask bool, True = may attend, broadcast
    to ``(..., Tq, Tk)``; scale 1/sqrt(d_k) unless given. Raises ValueError for shapes, TypeError for a mask that is not
    bool.
    """
    rest = checked(query, key, value, mask)
    dtype = query.array.dtype
    return attention_op(
        query,
        cast(key, dtype=dtype),
        cast(value, dtype=dtype),
        *rest,
        scale=float(max(query.array.shape[-1], 1) ** -0.5 if scale is None else scale),
    )


def checked(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, shared_heads: bool = False) -> list[Tensor]:
    """The mask as a list of none or one. shared_heads: a head of keys may serve several heads of queries.

    Raises ValueError for shapes that do not fit, TypeError for a mask that is not bool and for integers.
    """
    given = [x.array.dtype for x in (query, key, value)]
    if not all(map(dtypes.is_floating, given)):
        raise TypeError(f"attention: query, key and value must be floating, got {', '.join(map(dtypes.name, given))}")
    q, k, v = query.array.shape, key.array.shape, value.array.shape
    fits = len(q) > 1 and len(q) == len(k) == len(v) and q[-1] == k[-1] and k[:-1] == v[:-1] and q[:-3] == k[:-3]
    if fits and len(q) > 2 and q[-3] != k[-3]:
        fits = shared_heads and k[-3] > 0 and q[-3] % k[-3] == 0
    if not fits:
        raise ValueError(
            f"attention: query {list(q)}, key {list(k)}, value {list(v)} do not fit: expected (..., Tq, d_k), "
            "(..., Tk, d_k), (..., Tk, d_v) with equal leading dimensions"
        )
    rest = []
    if mask is not None:
        check_mask(mask, (*q[:-1], k[-2]))
        rest = [mask]
    return rest


def check_mask(mask: Tensor, shape: tuple[int, ...]) -> None:
    """Raise TypeError unless `mask` is bool, ValueError unless it broadcasts to `shape`."""
    if mask.array.dtype != dtypes.bool_:
        raise TypeError(
            f"a mask must be bool (True = may attend), got {dtypes.name(mask.array.dtype)}: "
            "write (mask != 0), or (mask == 0) if yours marks what is hidden"
        )
    try:
        fits = np.broadcast_shapes(mask.array.shape, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(f"a mask of shape {list(mask.array.shape)} does not broadcast to the scores {list(shape)}")


expect_tensors(globals())
