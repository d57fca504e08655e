"""Weights that two parts share: is the part that a weight was taken from a part of the model?

A constructor that writes ``self.decoder.weight = table.weight`` ties two parts. Where the table is made for this line
alone, nothing is tied: the decoder has just other numbers of its own.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from typing import Any
from unittest import mock
from weakref import ReferenceType, ref

from torch import nn

from conformance.adapters.whole.running import RunningModel
from conformance.watch.watcher import place


@dataclass
class _Weight:
    """A parameter. giver: the module that had it first, kept alive by the model alone. of_table: whether that is an
    embedding. was_held: whether it was a part of another module at some time."""

    parameter: nn.Parameter
    giver: ReferenceType[nn.Module]
    of_table: bool
    was_held: bool = False

    @property
    def is_apart(self) -> bool:
        """Whether a table had it first that was never a part of another module."""
        return self.of_table and not self.was_held


@dataclass
class _Constructed:
    """What was seen in a constructor. weights: by the parameter's address. ties: each assignment by which a part took
    another one's parameter in the place of its own, with its line."""

    weights: dict[int, _Weight] = field(default_factory=dict)
    ties: list[tuple[nn.Module, _Weight, str]] = field(default_factory=list)

    def note(self, owner: nn.Module, name: str, value: Any) -> None:
        if isinstance(value, nn.Module):
            for one in value.parameters():
                if id(one) in self.weights:
                    self.weights[id(one)].was_held = True
        if not isinstance(value, nn.Parameter):
            return
        new = _Weight(value, ref(owner), isinstance(owner, nn.Embedding))
        weight = self.weights.setdefault(id(value), new)
        own = (vars(owner).get("_parameters") or {}).get(name)
        if weight.giver() is not owner and own is not None and own is not value:
            self.ties.append((owner, weight, place()))


class TieProbes(RunningModel):
    """What the parts of a running model share."""

    def ties(self) -> tuple[int, list[str]]:
        """How many weights a new model's parts take from another part; and where one takes it from a table that is no
        part of the model and never was, although the model has a table of this size that it could share."""
        seen, put = _Constructed(), nn.Module.__setattr__

        def watched(owner: nn.Module, name: str, value: Any) -> None:
            seen.note(owner, name, value)
            put(owner, name, value)

        with mock.patch.object(nn.Module, "__setattr__", watched):
            module = self.made.fresh()
        parts = {id(one) for one in module.modules()}
        tables = [one.weight.shape for one in module.modules() if isinstance(one, nn.Embedding)]
        tied = [(weight, where) for taker, weight, where in seen.ties if id(taker) in parts]
        apart = [(weight, where) for weight, where in tied if weight.is_apart and weight.parameter.shape in tables]
        if apart:  # the collector alone frees a module that holds itself: a tenth of a second
            gc.collect()
            gc.collect()
        return len(tied), [where for weight, where in apart if weight.giver() is None]
