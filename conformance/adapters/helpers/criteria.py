"""Losses that a function that trains may be handed as its criterion: one of torch's, and those of its own file."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from types import FunctionType
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from conformance.adapters.functions.arguments import read

CRITERION = re.compile(r"Loss|Criterion|Objective")
"""Names of classes that are losses."""
_SOFTER = re.compile(r"Smooth|Entropy")
"""Further names of losses over classes, which are made with settings."""
_LOSS = re.compile(r"loss|criterion|objective|entropy|(^|_)nll($|_)")
_SCORES = re.compile(r"(\w+_)?(logits?|scores?|outputs?|preds?|predictions?)|log_?p(robs?)?|log_probabilities|out")
"""Names of functions that are losses, and of the scores that they take."""


def made_of_defaults(cls: type) -> nn.Module | None:
    """A loss that is a module, made of its defaults; None where it wants more, or learns more than single numbers, such
    as a scale."""
    with suppress(Exception):  # it wants what nothing here shows
        made = cls()
        if isinstance(made, nn.Module) and all(one.numel() == 1 for one in made.parameters()):
            return made
    return None


class CrossEntropy(nn.CrossEntropyLoss):
    """Torch's, for classes on the last axis, too: a loss of one's own often flattens what it is given."""

    def forward(self, scores: Tensor, labels: Tensor) -> Tensor:
        if scores.ndim > 2 and scores.shape[:-1] == labels.shape:
            scores, labels = scores.flatten(0, -2), labels.flatten()
        return F.cross_entropy(scores, labels, ignore_index=self.ignore_index)


def criteria_of(function: Callable[..., Any], settings: Mapping[str, Any], words: Mapping[str, str]) -> Iterator[Any]:
    """The losses of a function's file: modules without parameters, and functions of scores and labels. What the
    constructors of the first take is known by the meaning of its name, as `words` says; settings: its values."""
    names = list(vars(sys.modules.get(getattr(function, "__module__", ""), object())).values())
    for cls in [one for one in names if isinstance(one, type) and issubclass(one, nn.Module)]:
        if cls.__module__ != function.__module__ or not (
            CRITERION.search(cls.__name__) or _SOFTER.search(cls.__name__)
        ):
            continue
        with suppress(Exception):  # it wants what nothing here shows
            taken = read(cls, words)
            required = {name for name, p in inspect.signature(cls).parameters.items() if p.default is p.empty}
            given = {m: settings[m] for m, name in taken.parameter_of.items() if name in required or m == "pad"}
            module = taken.call(cls, **given)
            if isinstance(module, nn.Module) and not any(isinstance(p, Tensor) for p in module.parameters()):
                yield module
    for one in names:
        if isinstance(one, FunctionType) and one.__module__ == function.__module__ and _is_loss(one, words["labels"]):
            yield one


def _is_loss(function: FunctionType, labels: str) -> bool:
    """Whether a function takes scores and labels, needs nothing else, and is called a loss."""
    taken = [*inspect.signature(function).parameters.values()]
    needed = [one for one in taken if one.default is one.empty]
    if not _LOSS.search(function.__name__.lower()) or len(needed) != 2 or taken[:2] != needed:
        return False
    scores, truth = (one.name.lower() for one in needed)
    return _SCORES.fullmatch(scores) is not None and re.fullmatch(labels, truth) is not None
