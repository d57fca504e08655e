"""Reference subjects of single-head, multi-head, grouped-query and cached attention: heads in batched products."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from conformance.adapters.reference.base import ReferenceSubject, reference
from conformance.protocol import Array, Arrays
from conformance.reference import attention as f
from conformance.reference.multi_head import project


@reference("self_attention")
class SelfAttention(ReferenceSubject):
    def attend(self, query: Array, key: Array, value: Array, mask: Array | None) -> tuple[Array, Array]:
        return f.attention(query, key, value, mask)

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x, mask = inputs["x"], inputs.get("mask")
        q, k, v = (project(p, name, x) for name in ("q_proj", "k_proj", "v_proj"))
        out, weights = self.attend(q, k, v, None if mask is None else mask[:, 0])
        return {"out": out, "weights": weights}


class HeadedAttention(ReferenceSubject):
    """The steps of `multi_head_attention` and `grouped_query_attention` that a mutant can get wrong."""

    def __init__(self, config: Mapping[str, Any], dtype: Any = np.float64) -> None:
        super().__init__(config, dtype)
        self.n_heads = self.config["n_heads"]
        self.n_kv_heads = self.config.get("n_kv_heads", self.n_heads)
        self.validate()

    def validate(self) -> None:
        if self.config["d_model"] % self.n_heads:
            raise ValueError(
                f"n_heads must divide d_model, got d_model={self.config['d_model']}, n_heads={self.n_heads}"
            )
        if self.n_heads % self.n_kv_heads:
            raise ValueError(
                f"n_kv_heads must divide n_heads, got n_heads={self.n_heads}, n_kv_heads={self.n_kv_heads}"
            )

    def split(self, x: Array, n_heads: int) -> Array:
        """``(B, T, n_heads * d_head)`` to ``(B, n_heads, T, d_head)``."""
        return x.reshape(*x.shape[:2], n_heads, -1).swapaxes(1, 2)

    def merge(self, x: Array) -> Array:
        """``(B, H, T, d_head)`` to ``(B, T, H * d_head)``."""
        return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)

    def expand(self, x: Array) -> Array:
        """Each key/value head once for every query head that it serves."""
        return np.repeat(x, self.n_heads // x.shape[1], axis=1)

    def drop(self, weights: Array) -> Array:
        rate = self.config.get("dropout", 0.0)
        if not self.training or rate == 0.0:
            return weights
        return weights * (self.rng.random(weights.shape) >= rate) / (1.0 - rate)

    def attend(self, query: Array, key: Array, value: Array, mask: Array | None) -> tuple[Array, Array]:
        weights = f.masked_softmax(f.scaled_scores(query, key), mask)
        return self.drop(weights) @ value, weights

    def headed(self, p: Arrays, query: Array, key: Array, value: Array, mask: Array | None) -> Arrays:
        q = self.split(project(p, "q_proj", query), self.n_heads)
        k = self.split(project(p, "k_proj", key), self.n_kv_heads)
        v = self.split(project(p, "v_proj", value), self.n_kv_heads)
        if k.shape[2] != v.shape[2]:
            raise ValueError(f"expected as many values as keys, got {v.shape[2]} values and {k.shape[2]} keys")
        out, weights = self.attend(q, self.expand(k), self.expand(v), mask)
        return {"out": project(p, "out_proj", self.merge(out)), "weights": weights}


@reference("multi_head_attention")
class MultiHeadAttention(HeadedAttention):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return self.headed(p, inputs["query"], inputs["key"], inputs["value"], inputs.get("mask"))


@reference("grouped_query_attention")
class GroupedQueryAttention(HeadedAttention):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return self.headed(p, inputs["x"], inputs["x"], inputs["x"], inputs.get("mask"))


@reference("cached_attention")
class CachedAttention(HeadedAttention):
    """Each call projects its own rows, appends their keys and values to the cache, and attends to all of it."""

    def remember(self, past: Array | None, new: Array) -> Array:
        """The cache ``(B, H, T, d_head)`` with the new rows at its end."""
        return new if past is None else np.concatenate([past, new], axis=2)

    def visible(self, n_query: int, n_key: int) -> Array | None:
        """``(n_query, n_key)``: the queries are the last rows of a causal mask over all keys."""
        return f.causal_mask(n_key)[n_key - n_query :]

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x, start, outs = inputs["x"], 0, []
        keys: Array | None = None
        values: Array | None = None
        for length in inputs["chunks"]:
            chunk = x[:, start : start + length]
            start += length
            query, key, value = (
                self.split(project(p, name, chunk), self.n_heads) for name in ("q_proj", "k_proj", "v_proj")
            )
            keys, values = self.remember(keys, key), self.remember(values, value)
            out, _ = self.attend(query, keys, values, self.visible(length, keys.shape[2]))
            outs.append(project(p, "out_proj", self.merge(out)))
        return {"out": np.concatenate(outs, axis=1)}
