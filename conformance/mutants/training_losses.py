"""Mutants of losses that take the model."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.adapters.reference.training import TrainingLoss
from conformance.mutants.base import mutant
from conformance.protocol import Array, Arrays
from conformance.reference import training as f

NEXT = "a-training-loss-teaches-the-next-token"
PADDING = "a-training-loss-teaches-no-padding"


@mutant(breaks=(NEXT,))
class NotShifted(TrainingLoss):
    """Each position is taught the token that it was just fed."""

    def labels(self, ids: Array) -> Array:
        return ids[:, :-1]


@mutant(breaks=(NEXT,))
class TaughtTwoAhead(TrainingLoss):
    """Each position is taught the token after the next one."""

    def labels(self, ids: Array) -> Array:
        return ids[:, 2:]


@mutant(breaks=(PADDING,))
class PaddingTaught(TrainingLoss):
    """Padding is a label as any other."""

    def loss(self, logits: Array, labels: Array) -> Array:
        return f.cross_entropy(logits, labels)


@mutant(breaks=("padding-does-not-dilute-a-training-loss",))
class PaddingCounted(TrainingLoss):
    """The sum over the real labels is divided by the number of all labels."""

    def loss(self, logits: Array, labels: Array) -> Array:
        return f.cross_entropy(logits, labels, ignore_index=0, reduction="sum") / len(labels)


@mutant(breaks=("a-training-loss-feeds-the-true-text",))
class FedTheLabels(TrainingLoss):
    """The model is fed what it shall predict."""

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        return {**super().forward(p, **inputs), "given": np.asarray(inputs["ids"])[:, 1:]}
