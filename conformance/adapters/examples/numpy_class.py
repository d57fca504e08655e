"""An implementation that is no nn.Module: a plain class over numpy arrays, two roles, nothing inherited.

    pytest conformance/ --impl conformance/adapters/examples/numpy_class.py:NumpyTransformer

Copy it to test code in any framework: convert arrays at this boundary. `conformance.protocol.ROLES` says what each role
is called with and must return. A role that `build` refuses with NotProvided, and a method that a subject lacks
(`params`, `load`, `vjp`, `train`), count as NOT PROVIDED.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from conformance.protocol import Array, Arrays, NotProvided


class NumpyTransformer:
    """What `--impl` names: constructed without arguments, asked for one subject at a time."""

    name = "plain numpy"

    def build(self, role: str, config: Mapping[str, Any]) -> Any:
        if role == "attention":
            return Attention(config["causal"])
        if role == "layer_norm":
            return LayerNorm(config["d_model"], config["eps"])
        raise NotProvided(f"this example has no {role}")


class Attention:
    """A function needs only to be callable. The keys of what it returns are the outputs of its role."""

    dtype = np.dtype(np.float32)
    attributes = {"masked_row": "zero"}

    def __init__(self, causal: bool) -> None:
        self.causal = causal

    def __call__(self, query: Array, key: Array, value: Array, mask: Array | None = None) -> Arrays:
        query, key, value = (np.asarray(x, self.dtype) for x in (query, key, value))
        scores = query @ key.swapaxes(-1, -2) / np.sqrt(self.dtype.type(query.shape[-1]))
        visible = np.ones(scores.shape, bool) if mask is None else np.broadcast_to(mask, scores.shape)
        if self.causal:
            n_query, n_key = scores.shape[-2:]
            visible = visible & np.tri(n_query, n_key, n_key - n_query, dtype=bool)
        scores = np.where(visible, scores, -np.inf)
        highest = scores.max(-1, keepdims=True, initial=-np.inf)
        weights = np.exp(scores - np.where(np.isfinite(highest), highest, 0))
        weights = weights / np.maximum(weights.sum(-1, keepdims=True), np.finfo(self.dtype).tiny)
        return {"out": weights @ value, "weights": weights}


class LayerNorm:
    """A module also has `params` and `load`, under the parameter names of its role."""

    dtype = np.dtype(np.float64)

    def __init__(self, d_model: int, eps: float) -> None:
        self.eps = eps
        self.weights: Arrays = {"weight": np.ones(d_model), "bias": np.zeros(d_model)}

    def __call__(self, x: Array) -> Arrays:
        centred = x - x.mean(-1, keepdims=True)
        scale = np.sqrt((centred**2).mean(-1, keepdims=True) + self.eps)
        return {"out": centred / scale * self.weights["weight"] + self.weights["bias"]}

    def params(self) -> Arrays:
        return dict(self.weights)

    def load(self, params: Mapping[str, Array]) -> None:
        self.weights = dict(params)
