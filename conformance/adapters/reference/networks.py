"""Reference subjects of multi-layer perceptrons and recurrent networks."""

from __future__ import annotations

from typing import Any

from conformance.adapters.reference.base import ReferenceSubject, reference
from conformance.protocol import Arrays
from conformance.reference import networks as f


@reference("mlp")
class MLP(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        layers = [(p[f"layers.{i}.weight"], p.get(f"layers.{i}.bias")) for i in range(len(self.config["sizes"]) - 1)]
        return {"out": f.mlp(inputs["x"], layers, self.config["activation"])}


@reference("rnn")
class RNN(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": f.rnn(inputs["x"], p["weight_ih"], p["weight_hh"], p["bias"])}
