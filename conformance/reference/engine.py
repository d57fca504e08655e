"""Hand-derived gradients (document 003 back propagation, residual and normalisation)."""

from __future__ import annotations

import math

import numpy as np

from conformance.reference.attention import softmax
from conformance.reference.feed_forward import sigmoid

Array = np.ndarray


def derivative(activation: str, x: Array) -> Array:
    """act'(x), elementwise, for relu (0 at 0), sigmoid, tanh, gelu (exact) and silu."""
    if activation == "relu":
        return (x > 0).astype(np.float64)
    if activation == "tanh":
        return 1.0 - np.tanh(x) ** 2
    if activation == "gelu":
        erf = np.vectorize(math.erf, otypes=[np.float64])
        return 0.5 * (1.0 + erf(x / math.sqrt(2.0))) + x * np.exp(-x * x / 2.0) / math.sqrt(2.0 * math.pi)
    s = sigmoid(x)
    if activation == "sigmoid":
        return s * (1.0 - s)
    if activation == "silu":
        return s + x * s * (1.0 - s)
    raise ValueError(f"no derivative of {activation!r} here; there is relu, sigmoid, tanh, gelu, silu")


def neuron_gradients(x: float, w: float, b: float, y: float) -> dict[str, float]:
    """Of L = (a - y)^2 / 2 with a = sigmoid(w x + b): error times slope times what the argument is multiplied by."""
    a = float(sigmoid(np.asarray(w * x + b)))
    delta = (a - y) * a * (1.0 - a)
    return {"w": delta * x, "b": delta, "x": delta * w, "y": y - a}


def softmax_gradient(x: Array, g: Array, dim: int = -1) -> Array:
    """y (g - sum(g y)) along `dim`, y = softmax(x)."""
    y = softmax(x, dim)
    return y * (g - (g * y).sum(axis=dim, keepdims=True))


def log_softmax_gradient(x: Array, g: Array, dim: int = -1) -> Array:
    """g - softmax(x) sum(g) along `dim`."""
    return g - softmax(x, dim) * g.sum(axis=dim, keepdims=True)


def sigmoid_chain_gradient(x: float, depth: int) -> float:
    """d x_depth / d x_0 of x_(i+1) = sigmoid(x_i): the product of the slopes a (1 - a)."""
    product = 1.0
    for _ in range(depth):
        x = float(sigmoid(np.asarray(x)))
        product *= x * (1.0 - x)
    return product
