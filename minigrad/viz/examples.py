"""Small computations to draw: each returns a function and its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import minigrad as mg
from minigrad import functional as F
from minigrad import nn

Example = tuple[Callable[..., Any], tuple[Any, ...]]


def neuron() -> Example:
    """tanh(w1 x1 + w2 x2 + b) and its backward pass, on scalars."""

    def step(x1: mg.Tensor, x2: mg.Tensor, w1: mg.Tensor, w2: mg.Tensor, b: mg.Tensor) -> mg.Tensor:
        out = (x1 * w1 + x2 * w2 + b).tanh()
        out.backward()
        return out

    return step, tuple(mg.tensor(v, requires_grad=True) for v in (2.0, 0.0, -3.0, 1.0, 6.8813735870195432))


def mlp() -> Example:
    """Two linear layers with a ReLU, cross-entropy, and the backward pass."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))

    def step(x: mg.Tensor, labels: mg.Tensor) -> mg.Tensor:
        loss = F.cross_entropy(model(x), labels)
        loss.backward()
        return loss

    return step, (mg.randn(5, 4), mg.tensor([0, 2, 1, 1, 0]))


def softmax() -> Example:
    """A composite op, to be unfolded into its steps."""
    return lambda x: x.softmax(-1), (mg.randn(2, 3),)


def attention() -> Example:
    """softmax(Q K^T / sqrt(d_k)) V with a causal mask, written out op by op."""
    visible = mg.tensor(np.tri(4, dtype=bool))

    def scaled_dot_product(query: mg.Tensor, key: mg.Tensor, value: mg.Tensor) -> mg.Tensor:
        scores = query @ key.transpose(-1, -2) / 8**0.5
        return scores.masked_fill(~visible, float("-inf")).softmax(-1) @ value

    return scaled_dot_product, (mg.randn(4, 8), mg.randn(4, 8), mg.randn(4, 8))
