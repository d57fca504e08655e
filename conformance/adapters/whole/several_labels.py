"""Losses of a forward that takes several labels, as of words and of their text: given together, each teaches."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import torch
from torch import Tensor

from conformance.adapters.whole.calling import default_dtype, loss_in
from conformance.adapters.whole.losses import LossProbes
from conformance.protocol import NotProvided
from conformance.seeds import seed_torch

_LABELS = re.compile(r"(\w+_)?(labels?|targets?)|y")
ROWS = 4


@dataclass(frozen=True)
class Silenced:
    """name: of labels that teach alone, and not beside those called `other`. place: file:line that is likely to leave
    them out."""

    name: str
    other: str
    place: str


class SeveralLabelProbes(LossProbes):
    """The experiment, of a running model."""

    def silenced_labels(self) -> Silenced | None:
        """Labels that teach nothing where others are given, too; None where all do. Raises NotProvided where forward
        takes no two labels that each give a loss."""
        data = {one.parameter for one in self.calling.inputs}
        optional = [p.name for p in inspect.signature(self.module.forward).parameters.values() if p.default is None]
        names = [n for n in optional if n not in data and n not in self.calling.fixed and _LABELS.fullmatch(n.lower())]
        twin = self.twin()
        inputs = twin.tensors(twin.example(ROWS, seed=95))
        given = {n: value for n, value in twin.calling.arguments(inputs).items() if n not in names}
        ids = inputs.get(twin.calling.main.meaning)
        known: dict[str, tuple[Tensor, Tensor]] = {}
        for name in names:
            for form in _forms(ids):
                alone = [twin._loss(given | {name: one}) for one in form]
                if all(one is not None for one in alone) and not torch.equal(*alone):
                    known[name] = form
                    break
        if len(known) < 2:
            raise NotProvided("its forward takes no two labels that each give a loss")
        for name, other in permutations(known, 2):
            both = [twin._loss(given | {name: one, other: known[other][0]}) for one in known[name]]
            if all(one is not None for one in both) and torch.equal(*both):
                place = self.line_of(rf"loss\w*\s*=.*\b{other}\b") or self.line_of(r"\bloss\s*=(?! None)")
                return Silenced(name, other, place or self.place())
        return None

    def _loss(self, given: Mapping[str, Any]) -> Tensor | None:
        """The loss; None where there is none, or nothing learns from it."""
        seed_torch(6)
        with self.mode(False), torch.enable_grad(), default_dtype(self.torch_dtype), suppress(Exception):
            value = loss_in(self.module(**given))
            return value if value is not None and value.requires_grad else None
        return None


def _forms(ids: Tensor | None) -> list[tuple[Tensor, Tensor]]:
    """Two labels of each form: a class for each row, one for each word, and the words themselves."""
    rows = torch.arange(ROWS) % 2
    found = [(rows, 1 - rows)]
    if ids is not None and ids.dim() == 2 and not ids.is_floating_point():
        places = torch.arange(ids.numel()).reshape(ids.shape) % 2
        found = [*found, (places, 1 - places), (ids, ids.roll(1, 1))]
    return found
