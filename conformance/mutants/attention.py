"""Mutants of attention, masks, multi-head and grouped-query attention."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.adapters.reference.attention import Attention
from conformance.mutants.base import mutant
from conformance.protocol import Arrays


@mutant(breaks=("attention-is-scaled-by-sqrt-d-k",), known_as="A01")
class Unscaled(Attention):
    """The scores are not divided by sqrt(d_k)."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        scale = np.sqrt(inputs["query"].shape[-1])
        return super().forward(p, **{**inputs, "query": inputs["query"] * scale})
