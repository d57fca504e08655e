"""Reference subjects of teacher forcing, greedy decoding and sampling filters."""

from __future__ import annotations

from typing import Any

from conformance.adapters.reference.base import ReferenceSubject, reference
from conformance.protocol import Arrays
from conformance.reference import decoding as f


@reference("shift_targets")
class ShiftTargets(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        decoder_input, labels = f.shift(inputs["ids"])
        return {"out": decoder_input, "labels": labels}


@reference("greedy_decode")
class GreedyDecode(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": f.greedy_decode(inputs["next_logits"], inputs["ids"], **self.config)}


@reference("sampling_filter")
class SamplingFilter(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": f.sampling_probabilities(inputs["logits"], **self.config)}
