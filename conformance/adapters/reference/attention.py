"""Reference subjects of softmax, attention and the masks."""

from __future__ import annotations

from typing import Any

from conformance.adapters.reference.base import ReferenceSubject, reference
from conformance.protocol import Array, Arrays
from conformance.reference import attention as f


@reference("softmax")
class Softmax(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": f.softmax(inputs["x"], self.config["dim"])}


@reference("attention")
class Attention(ReferenceSubject):
    """The formula in the steps that a mutant can get wrong: scores, mask, softmax, dropout, sum."""

    attributes = {"masked_row": "zero"}

    def scores(self, query: Array, key: Array) -> Array:
        return f.scaled_scores(query, key)

    def causal(self, n_query: int, n_key: int) -> Array:
        """The last query sees every key, whatever the two lengths."""
        return f.causal_mask(max(n_query, n_key))[-n_query:, -n_key:]

    def weigh(self, scores: Array, mask: Array | None) -> Array:
        return f.masked_softmax(scores, mask)

    def drop(self, weights: Array) -> Array:
        rate = self.config["dropout"]
        if not self.training or rate == 0.0:
            return weights
        return weights * (self.rng.random(weights.shape) >= rate) / (1.0 - rate)

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        query, key, value, mask = inputs["query"], inputs["key"], inputs["value"], inputs.get("mask")
        if key.shape[-2] != value.shape[-2]:
            raise ValueError(f"expected as many values as keys, got {value.shape[-2]} values, {key.shape[-2]} keys")
        if self.config["causal"]:
            causal = self.causal(query.shape[-2], key.shape[-2])
            mask = causal if mask is None else mask & causal
        weights = self.weigh(self.scores(query, key), mask)
        return {"out": self.drop(weights) @ value, "weights": weights}


@reference("causal_mask")
class CausalMask(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": f.causal_mask(inputs["n"])}


@reference("padding_mask")
class PaddingMask(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": f.padding_mask(inputs["ids"], self.config["pad_id"])}
