"""The optimizer that a model's file makes for it: which parameters does it let decay?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from conformance.adapters.whole.optimizers_made import DECAY, MadeOptimizer, MadeOptimizerProbes
from conformance.protocol import NotProvided

_VECTORS_DECAY = r"\bdecay\w*\s*=.*dim.*(<\s*2|<=\s*1|==\s*1)\b"
"""A line that lets parameters of fewer than two axes decay."""
_SAYS_DECAY = re.compile(r"[\"']weight_decay[\"']|\bdict\([^)]*weight_decay")
"""Code that gives a group a decay of its own: groups of others may be parts of the model."""
_ADDED = re.compile(r"(?i)pos|token|cls|class_?(tok|emb)|embed|quer(y|ies)$|scale|gamma|prompt")
"""What a module calls a parameter of its own that it adds, or multiplies place by place."""


_SAYS_NORMS_REST = re.compile(
    r"(?i)\bnorms?\b[^.\n]{0,40}(left alone|no (weight )?decay|not decay|exclu|exempt|undecayed)"
    r"|\b(no|without|exclud\w*|never|exempt\w*)\b[^.\n]{0,40}(?<!grad )(?<!gradient )\bnorms?\b"
    r"|\b(decay|decays) (weight )?matrices only"
)
"""What an author writes whose norms are to be kept from decay."""


@dataclass(frozen=True)
class Decays:
    """How much vectors (norms, biases) and matrices decay, where an optimizer has groups of each: the least of
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
                vectors, matrices = _decays(made, groups, vectors=True), _decays(made, groups, vectors=False)
                if vectors and matrices:
                    place = made.line_of(_VECTORS_DECAY, r"weight_decay\W+", r"def ")
                    return Decays(min(vectors), max(matrices), place)
                norms = _of_norms(made, groups) if _SAYS_NORMS_REST.search(made.source) else set()
                everywhere = {group.get("weight_decay", DECAY) for group in groups}
                if norms and 0.0 in everywhere:
                    place = made.line_of(
                        r"\bdecay\w*\s*=.*(bias|endswith| in )", r"no_?decay", r"weight_decay\W+", r"def "
                    )
                    return Decays(min(norms), max(everywhere), place)
        raise NotProvided("its optimizer does not keep norms and biases apart")


def _decays(made: MadeOptimizer, groups: Sequence[Mapping[str, Any]], vectors: bool) -> set[float]:
    """The decays of the groups of vectors, or of those that hold none; a group without one takes the optimizer's. With
    vectors may stand what is added or looked up, such as positions, but no map."""
    added = _added(made.module)
    return {
        group.get("weight_decay", DECAY)
        for group in groups
        if any((one.dim() < 2) == vectors for one in group["params"])
        and all((one.dim() < 2) == vectors or (vectors and id(one) in added) for one in group["params"])
    }


def _of_norms(made: MadeOptimizer, groups: Sequence[Mapping[str, Any]]) -> set[float]:
    """The decays of the groups that hold the gains of norms."""
    gains = {
        id(parameter)
        for part in made.module.modules()
        if "norm" in type(part).__name__.lower()
        for name, parameter in part.named_parameters(recurse=False)
        if parameter.dim() < 2 and "bias" not in name
    }
    return {group.get("weight_decay", DECAY) for group in groups if any(id(one) in gains for one in group["params"])}


def _added(module: nn.Module) -> set[int]:
    """The ids of the parameters that are no maps by where they stand: tables, and a module's own tokens, positions and
    queries."""
    return {
        id(parameter)
        for part in module.modules()
        for name, parameter in part.named_parameters(recurse=False)
        if isinstance(part, nn.Embedding) or (not type(part).__module__.startswith("torch.") and _ADDED.search(name))
    }
