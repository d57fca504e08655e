"""The optimizer that a model's file makes for it: which parameters does it let decay?"""

from __future__ import annotations

from dataclasses import dataclass

from conformance.adapters.whole.optimizers_made import DECAY, MadeOptimizer, MadeOptimizerProbes
from conformance.protocol import NotProvided

_VECTORS_DECAY = r"\bdecay\w*\s*=.*dim.*(<\s*2|<=\s*1|==\s*1)\b"
"""A line that lets parameters of fewer than two axes decay."""


@dataclass(frozen=True)
class Decays:
    """How much vectors (norms, biases) and matrices decay, where an optimizer has a group that holds matrices only."""

    vectors: float
    matrices: float
    place: str


class DecayProbes(MadeOptimizerProbes):
    """The experiment, of a running model."""

    def decays(self) -> Decays:
        """What its own optimizer does. Raises NotProvided where it makes none, or does not keep vectors apart."""
        for made in self.made_optimizers():
            found = _by_kind(made)
            if found[True] and found[False]:
                place = made.line_of(_VECTORS_DECAY, r"weight_decay\W+", r"def ")
                return Decays(max(found[True]), max(found[False]), place)
        raise NotProvided("its optimizer does not keep norms and biases apart")


def _by_kind(made: MadeOptimizer) -> dict[bool, set[float]]:
    """The decays of the groups that hold vectors, and of those that hold none."""
    found: dict[bool, set[float]] = {True: set(), False: set()}
    for group in made.groups:
        if group["params"]:
            has_vectors = any(parameter.dim() < 2 for parameter in group["params"])
            found[has_vectors].add(group.get("weight_decay", DECAY))  # a group without one takes the optimizer's
    return found
