"""Losses beside a model that take the vectors of pairs, as functions or as modules of their own: they are run on
vectors of which no two are alike."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from conformance.adapters.helpers.criteria import made_of_defaults

PAIRS, WIDTH = 5, 7
"""So many pairs, of vectors so long."""
_NAMED = re.compile(r"loss|contrast|nce|xent|criterion|objective")
_NO_VECTORS = re.compile(
    r"(?i)model|net(work)?$|batch|logit|score|sim|label|target|mask|id(s|x)?$|loss|pred|token|len|^y|log_|student|teacher"
)
_NUMBERS = re.compile(r"(?i)\w*(ids?|groups?|class(es)?|labels?)")


def losses_of_vectors(module: nn.Module) -> Iterator[tuple[Callable[..., Any], dict[str, Any]]]:
    """Each such loss, with what it is given: the vectors of both sides, and a number of its own for each pair."""
    for function in _beside(type(module)):
        taken = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
        rest = taken[2:]
        if len(taken) < 2 or any(_NO_VECTORS.search(one.name) for one in taken[:2]):
            continue
        if all(_NUMBERS.fullmatch(one.name) for one in rest):
            yield (
                function,
                {
                    **{one.name: _vectors(seed) for seed, one in enumerate(taken[:2])},
                    **{one.name: torch.arange(PAIRS) for one in rest},
                },
            )


def _vectors(seed: int) -> Tensor:
    """(PAIRS, WIDTH) of length 1, computed from what learns."""
    start = torch.randn(PAIRS, WIDTH, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    return F.normalize(start, dim=-1)


def _beside(cls: type) -> Iterator[Callable[..., Any]]:
    """The functions of the model's file that are called losses, and the forwards of modules that are, where these are
    made of their defaults and learn single numbers at most."""
    for name, one in list(vars(sys.modules.get(cls.__module__, SimpleNamespace())).items()):
        if getattr(one, "__module__", "") != cls.__module__ or not _NAMED.search(name.lower()):
            continue
        if inspect.isfunction(one):
            yield one
        elif one is not cls and isinstance(one, type) and (made := made_of_defaults(one)) is not None:
            yield made.forward


def owner_of(loss: Callable[..., Any]) -> nn.Module | None:
    """The module whose forward a loss is; None for a function."""
    return getattr(loss, "__self__", None)
