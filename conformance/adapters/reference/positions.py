"""Reference subjects of the positional encodings."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.adapters.reference.base import ReferenceSubject, reference
from conformance.protocol import Array, Arrays
from conformance.reference import positions as f


@reference("sinusoidal_positions")
class SinusoidalPositions(ReferenceSubject):
    attributes = {"layout": "interleaved"}

    def table(self, n: int) -> Array:
        """The codes of the positions 0 .. n-1: ``(n, d_model)``."""
        return f.sinusoid(np.arange(n), self.config["d_model"])

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x = inputs["x"]
        return {"out": x + self.table(x.shape[1]).astype(x.dtype)}


@reference("learned_positions")
class LearnedPositions(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        x, table = inputs["x"], p["weight"]
        n = x.shape[1]
        if n > len(table):
            raise ValueError(f"{n} positions do not fit a table of {len(table)} rows; build it with a larger max_len")
        return {"out": x + table[:n]}


@reference("rope")
class Rope(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        out = f.rope(inputs["x"], inputs.get("offset", 0), self.config["base"], self.config["pairing"])
        return {"out": out}
