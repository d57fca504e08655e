"""Linear maps, activations, feed-forward networks and mixtures of them (document 000 section 2.7; 002 complete
implementation and GPT section; 003 modern models; Hendrycks and Gimpel 2016; Shazeer 2020)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import erf, pi, sqrt

import numpy as np

Array = np.ndarray

_erf = np.vectorize(erf, otypes=[np.float64])


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """x W^T + b; weight ``(out, in)``."""
    out = x @ weight.T
    return out if bias is None else out + bias


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), by tanh so that nothing overflows."""
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def relu(x: Array) -> Array:
    return np.maximum(x, 0.0)


def gelu(x: Array) -> Array:
    """x Phi(x), with the error function."""
    return 0.5 * x * (1.0 + _erf(x / sqrt(2.0)))


def gelu_tanh(x: Array) -> Array:
    """GELU's tanh approximation."""
    return 0.5 * x * (1.0 + np.tanh(sqrt(2.0 / pi) * (x + 0.044715 * x**3)))


def silu(x: Array) -> Array:
    """x sigmoid(x)."""
    return x * sigmoid(x)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": relu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
    "silu": silu,
    "sigmoid": sigmoid,
    "tanh": np.tanh,
}


def unchanged(x: Array) -> Array:
    """What dropout does in evaluation."""
    return x


def feed_forward(
    p: Mapping[str, Array], x: Array, activation: str = "relu", drop: Callable[[Array], Array] = unchanged
) -> Array:
    """linear2(drop(activation(linear1(x)))): dropout falls on the hidden activations."""
    hidden = ACTIVATIONS[activation](linear(x, p["linear1.weight"], p.get("linear1.bias")))
    return linear(drop(hidden), p["linear2.weight"], p.get("linear2.bias"))


def swiglu(p: Mapping[str, Array], x: Array) -> Array:
    """down_proj(silu(gate_proj(x)) * up_proj(x))."""
    gated = silu(linear(x, p["gate_proj.weight"])) * linear(x, p["up_proj.weight"])
    return linear(gated, p["down_proj.weight"])


def gates(logits: Array, top_k: int, renormalise: bool = True) -> Array:
    """What each expert counts for each token: zero outside the top_k, softmax probabilities within.

    logits ``(N, E)`` to ``(N, E)``. renormalise: the gates of a token add up to one (Mixtral); otherwise they are the
    probabilities among all experts (Switch Transformers).
    """
    probabilities = np.exp(logits - logits.max(axis=-1, keepdims=True))
    probabilities /= probabilities.sum(axis=-1, keepdims=True)
    chosen = np.argsort(-logits, axis=-1, kind="stable")[:, :top_k]
    kept = np.zeros_like(probabilities)
    np.put_along_axis(kept, chosen, np.take_along_axis(probabilities, chosen, axis=-1), axis=-1)
    return kept / kept.sum(axis=-1, keepdims=True) if renormalise else kept


def expert(p: Mapping[str, Array], i: int) -> dict[str, Array]:
    """The parameters of expert i."""
    prefix = f"experts.{i}."
    return {name.removeprefix(prefix): value for name, value in p.items() if name.startswith(prefix)}


def mixture(p: Mapping[str, Array], x: Array, weights: Array) -> Array:
    """sum over experts of weights * expert(x), each run on the tokens alone that it counts for.

    x ``(N, d_model)``, weights ``(N, E)``.
    """
    out = np.zeros_like(x)
    for i in range(weights.shape[-1]):
        rows = np.flatnonzero(weights[:, i])
        out[rows] += weights[rows, i, None] * swiglu(expert(p, i), x[rows])
    return out
