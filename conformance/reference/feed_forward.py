"""Linear maps, activations and feed-forward networks (document 000 section 2.7; 002 complete implementation and
GPT section; Hendrycks and Gimpel 2016; Shazeer 2020)."""

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
