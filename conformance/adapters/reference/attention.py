"""Reference subjects of attention."""

from __future__ import annotations

from typing import Any

from conformance.adapters.reference.base import ReferenceSubject, reference
from conformance.protocol import Arrays
from conformance.reference import attention as f


@reference("softmax")
class Softmax(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": f.softmax(inputs["x"], self.config["dim"])}


@reference("attention")
class Attention(ReferenceSubject):
    attributes = {"masked_row": "zero"}

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        query, key, mask = inputs["query"], inputs["key"], inputs.get("mask")
        if self.config["causal"]:
            causal = f.causal_mask(max(query.shape[-2], key.shape[-2]))[-query.shape[-2] :, -key.shape[-2] :]
            mask = causal if mask is None else mask & causal
        out, weights = f.attention(query, key, inputs["value"], mask)
        return {"out": out, "weights": weights}
