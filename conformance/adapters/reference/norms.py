"""Reference subjects of the norms."""

from __future__ import annotations

from typing import Any

from conformance.adapters.reference.base import ReferenceSubject, reference
from conformance.protocol import Arrays
from conformance.reference import norms as f


@reference("layer_norm")
class LayerNorm(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": f.layer_norm(inputs["x"], p["weight"], p["bias"], self.config["eps"])}


@reference("rms_norm")
class RMSNorm(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": f.rms_norm(inputs["x"], p["weight"], self.config["eps"])}
