"""Reference subjects of teacher forcing, greedy decoding, beam search and sampling filters."""

from __future__ import annotations

from typing import Any

import numpy as np

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


@reference("beam_search")
class BeamSearch(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        c = self.config
        (prompt,) = inputs["ids"]
        limits = (c["beams"], c["max_new_tokens"], c["eos_id"], c["length_penalty"])
        ids, score = f.beam_search(inputs["next_logits"], prompt, *limits)
        return {"out": ids[None], "score": np.asarray(score)}


@reference("sampling_filter")
class SamplingFilter(ReferenceSubject):
    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": f.sampling_probabilities(inputs["logits"], **self.config)}
