"""Weights that two parts share: is the part that a weight was taken from a part of the model?

A constructor that writes ``self.decoder.weight = table.weight`` ties two parts. Where the table is made for this line
alone, nothing is tied: the decoder has just other numbers of its own.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from typing import Any
from unittest import mock
from weakref import ReferenceType, WeakSet, ref

from torch import nn

from conformance.adapters.whole.running import RunningModel
from conformance.watch.watcher import place


@dataclass
class _Tied:
    """An assignment by which a part took another one's parameter in the place of its own. giver: kept alive by the
    model alone. was_held: whether it was a part of something then."""

    taker: nn.Module
    giver: ReferenceType[nn.Module]
    was_held: bool
    of_table: bool
    weight: nn.Parameter
    place: str


@dataclass
class _Constructed:
    """What was seen in a constructor. givers: parameter, by its address -> itself, and the module that had it first.
    held: the modules that were parts of others at some time."""

    ties: list[_Tied] = field(default_factory=list)
    givers: dict[int, tuple[nn.Parameter, ReferenceType[nn.Module]]] = field(default_factory=dict)
    held: WeakSet[nn.Module] = field(default_factory=WeakSet)

    def note(self, owner: nn.Module, name: str, value: Any) -> None:
        if isinstance(value, nn.Module):
            self.held.add(value)
        if not isinstance(value, nn.Parameter):
            return
        giver = self.givers.setdefault(id(value), (value, ref(owner)))[1]
        own = (vars(owner).get("_parameters") or {}).get(name)
        if giver() is not owner and own is not None and own is not value:
            self.ties.append(
                _Tied(owner, giver, giver() in self.held, isinstance(giver(), nn.Embedding), value, place())
            )


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
        gc.collect()
        parts = {id(one) for one in module.modules()}
        tied = [one for one in seen.ties if id(one.taker) in parts]
        tables = [one.weight.shape for one in module.modules() if isinstance(one, nn.Embedding)]
        return len(tied), [one.place for one in tied if _is_lost(one) and one.weight.shape in tables]


def _is_lost(tie: _Tied) -> bool:
    """Whether nothing holds the table that a weight was taken from, and nothing ever did."""
    return tie.giver() is None and not tie.was_held and tie.of_table
