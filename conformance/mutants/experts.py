"""Mutants of mixtures of experts."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.adapters.reference.feed_forward import MixtureOfExperts
from conformance.mutants.base import mutant
from conformance.protocol import Array, Arrays
from conformance.reference import feed_forward as f
from conformance.reference.attention import softmax


@mutant(
    breaks=(
        "gates-of-the-chosen-experts-sum-to-one",
        "two-experts-a-token-share-a-softmax",
        "one-expert-is-its-feed-forward-network",
    ),
    known_as="E02",
)
class RouterLogitsAsGates(MixtureOfExperts):
    """The router's raw logits weigh the experts, without a softmax."""

    def gates(self, logits: Array) -> Array:
        return np.where(super().gates(logits) > 0, logits, 0.0)


@mutant(breaks=("two-experts-a-token-share-a-softmax",), known_as="E04")
class GatesThroughTwoSoftmaxes(MixtureOfExperts):
    """The chosen probabilities go through a second softmax instead of being divided by their sum."""

    def gates(self, logits: Array) -> Array:
        chosen = f.gates(logits, self.config["top_k"], renormalise=False)
        again = np.where(chosen > 0, np.exp(chosen), 0.0)
        return again / again.sum(axis=-1, keepdims=True)


@mutant(breaks=("gates-of-the-chosen-experts-sum-to-one", "two-experts-a-token-share-a-softmax"))
class GatesNotRenormalised(MixtureOfExperts):
    """The gates are probabilities among all experts where they should be renormalised."""

    def gates(self, logits: Array) -> Array:
        return f.gates(logits, self.config["top_k"], renormalise=False)


@mutant(breaks=("gates-of-the-chosen-experts-sum-to-one", "one-expert-is-its-feed-forward-network"))
class SigmoidGates(MixtureOfExperts):
    """Each chosen expert has a gate of its own, a sigmoid."""

    def gates(self, logits: Array) -> Array:
        return np.where(super().gates(logits) > 0, f.sigmoid(logits), 0.0)


@mutant(breaks=("two-experts-a-token-share-a-softmax", "experts-not-chosen-have-no-part"))
class EveryExpertCounts(MixtureOfExperts):
    """All experts are mixed, not the chosen ones alone."""

    def gates(self, logits: Array) -> Array:
        return softmax(logits)


@mutant(breaks=("two-experts-a-token-share-a-softmax", "experts-not-chosen-have-no-part"))
class LeastLikelyExperts(MixtureOfExperts):
    """The experts with the smallest logits are chosen."""

    def gates(self, logits: Array) -> Array:
        return super().gates(-logits)


@mutant(breaks=("two-experts-a-token-share-a-softmax",))
class GatesInOtherOrder(MixtureOfExperts):
    """The gates of the chosen experts are given out in the reverse order."""

    def gates(self, logits: Array) -> Array:
        right = super().gates(logits)
        order = np.argsort(-right, axis=-1, kind="stable")[:, : self.config["top_k"]]
        wrong = np.zeros_like(right)
        np.put_along_axis(wrong, order, np.take_along_axis(right, order, axis=-1)[:, ::-1], axis=-1)
        return wrong


@mutant(breaks=("two-experts-a-token-share-a-softmax",))
class OneRouteForAll(MixtureOfExperts):
    """All tokens go where the first one goes."""

    def gates(self, logits: Array) -> Array:
        return np.repeat(super().gates(logits)[:1], len(logits), axis=0)


@mutant(breaks=("one-expert-is-its-feed-forward-network", "two-experts-a-token-share-a-softmax"))
class ResidualInside(MixtureOfExperts):
    """The layer's input is added to its output, which belongs to the block around it."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {"out": super().forward(p, **inputs)["out"] + inputs["x"]}
