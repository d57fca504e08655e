"""The optimizer that a model's file makes for it: which parameters does it let decay?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.adapters.whole.optimizers_made import DECAY, MadeOptimizerProbes
from conformance.protocol import NotProvided

_VECTORS_DECAY = r"\bdecay\w*\s*=.*dim.*(<\s*2|<=\s*1|==\s*1)\b"
"""A line that lets parameters of fewer than two axes decay."""
_SAYS_DECAY = re.compile(r"[\"']weight_decay[\"']|\bdict\([^)]*weight_decay")
"""Code that gives a group a decay of its own: groups of others may be parts of the model."""


@dataclass(frozen=True)
class Decays:
    """How much vectors (norms, biases) and matrices decay, where an optimizer has groups of each alone: the least of
    vectors, since some keep biases from decay, and no norms, and the most of matrices."""

    vectors: float
    matrices: float
    place: str


class DecayProbes(MadeOptimizerProbes):
    """The experiment, of a running model."""

    def decays(self) -> Decays:
        """What its own optimizer does. Raises NotProvided where it makes none, or does not keep vectors apart."""
        for made in self.made_optimizers():
            if not _SAYS_DECAY.search(made.source):
                continue
            for groups in made.by_optimizer:
                vectors, matrices = _decays(groups, vectors=True), _decays(groups, vectors=False)
                if vectors and matrices:
                    place = made.line_of(_VECTORS_DECAY, r"weight_decay\W+", r"def ")
                    return Decays(min(vectors), max(matrices), place)
        raise NotProvided("its optimizer does not keep norms and biases apart")


def _decays(groups: Sequence[Mapping[str, Any]], vectors: bool) -> set[float]:
    """The decays of the groups of vectors alone, or of those that hold none; a group without one takes the
    optimizer's."""
    return {
        group.get("weight_decay", DECAY)
        for group in groups
        if group["params"] and all((parameter.dim() < 2) == vectors for parameter in group["params"])
    }
