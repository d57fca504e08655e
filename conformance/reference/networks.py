"""Multi-layer perceptrons and recurrent networks (document 003: neural network, linearity, RNN)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from conformance.reference.feed_forward import ACTIVATIONS, linear

Array = np.ndarray
Layer = tuple[Array, Array | None]


def activate(x: Array, kind: str) -> Array:
    """relu, sigmoid, tanh, gelu (exact) or identity, elementwise."""
    return x if kind == "identity" else ACTIVATIONS[kind](x)


def mlp(x: Array, layers: Sequence[Layer], activation: str) -> Array:
    """x W^T + b a layer, with the activation between layers and none after the last.

    x ``(B, n_0)``; layer i: weight ``(n_(i+1), n_i)`` and bias ``(n_(i+1),)`` or None.
    """
    for i, (weight, bias) in enumerate(layers):
        x = activate(x, activation) if i else x
        x = linear(x, weight, bias)
    return x


def rnn(x: Array, weight_ih: Array, weight_hh: Array, bias: Array, state: Array | None = None) -> Array:
    """Every h_t = tanh(x_t W_ih^T + h_(t-1) W_hh^T + b) ``(B, T, h)`` for x ``(B, T, d)``; h_0 = `state`, or zeros."""
    hidden = np.zeros((len(x), len(weight_hh)), x.dtype) if state is None else state
    states = []
    for step in range(x.shape[1]):
        hidden = np.tanh(x[:, step] @ weight_ih.T + hidden @ weight_hh.T + bias)
        states.append(hidden)
    return np.stack(states, axis=1)
