"""What the rivals are given of a model: how it is made and called, as the suite finds it out, and a loss to train it.

They get the model as its constructor makes it, in its own precision. They are told its kind: more than the suite is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from conformance.adapters import load_class, parse
from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.whole.making import made_of
from conformance.adapters.whole.model import WholeModel, whole_model
from conformance.protocol import NotProvided
from tools.rivals.cases import SUBJECT

KINDS = {"encoder": "encoder_model"}
"""Other names of kinds of models."""

TEACHES_THE_NEXT = ("language_model", "sequence_to_sequence")


@dataclass
class Given:
    """A model to be tested by others. subject: it runs data of a meaning ("ids", "src", "tgt", "x", "padding")."""

    subject: WholeModel
    _made: int = 0

    @property
    def kind(self) -> str:
        return self.subject.kind

    @property
    def main(self) -> str:
        """The input whose positions the answer runs along."""
        return self.subject.calling.main.meaning

    @property
    def read(self) -> str:
        """The input that is read as a whole: the source of two."""
        return self.subject.calling.inputs[0].meaning

    def padding(self, meaning: str) -> str:
        """The name of what says which tokens of an input are real; empty where nothing hides padding."""
        if self.subject.padding_of(meaning) is None:
            return ""
        return "padding" if meaning in ("ids", "x") else f"{meaning}_padding"

    def fresh(self) -> torch.nn.Module:
        """A new model, from other random numbers each time."""
        self._made += 1
        return self.subject.made.fresh(self._made)

    def example(self, batch: int = 4, length: int = 16, seed: int = 0) -> dict[str, Tensor]:
        """Data of the model. A source is longer than its target, so that the two cannot be mistaken."""
        limit = self.subject.longest or length
        src, tgt = min(length, limit), max(2, min(length, limit) // 2)
        found = self.subject.example(batch, min(length, limit), seed, src=src, tgt=tgt)
        tensors = {name: torch.tensor(array) for name, array in found.items()}
        return {n: t.to(self.subject.torch_dtype) if t.is_floating_point() else t for n, t in tensors.items()}

    def run(self, module: torch.nn.Module, data: Mapping[str, Any]) -> dict[str, Any]:
        """ "out", and "loss" where it returns one, of another module of the same class."""
        return replace(self.subject, module=module).run(data)

    def loss(self, module: torch.nn.Module, data: Mapping[str, Tensor]) -> Tensor:
        """A loss to train it by, in which every output takes part: that of `_main_loss`, and a little of the others,
        such as those of a second head."""
        loss, found = self._main_loss(module, data)
        others = [
            one.square().mean()
            for one in tensors_in(found["result"])
            if one.requires_grad and one is not loss and one.numel() > 1 and one.ndim < 4
        ]
        return loss + 1e-3 * sum(others)

    def _main_loss(self, module: torch.nn.Module, data: Mapping[str, Tensor]) -> tuple[Tensor, dict[str, Any]]:
        """The model's own loss where it takes labels and returns one; else the cross-entropy of what it shall answer,
        or the distance from a fixed answer where it answers vectors. And all that it returned."""
        batch = len(data[self.main])
        if self.subject.calling.labels:
            classes = torch.arange(batch) % max(self.subject.calling.outputs, 1)
            labels = classes if self.kind == "classifier" else data[self.main]
            found = self.run(module, {**data, "labels": labels})
            if "loss" in found:
                return found["loss"], found
        found = self.run(module, data)
        out = found["out"]
        if self.kind in TEACHES_THE_NEXT and out.ndim == 3 and out.shape[1] > 1:
            return F.cross_entropy(out[:, :-1].flatten(0, 1), data[self.main][:, 1:].flatten()), found
        if self.kind == "masked_language_model" and out.ndim == 3:
            return F.cross_entropy(out.flatten(0, 1), data[self.main].flatten()), found
        if self.kind in ("classifier", *TEACHES_THE_NEXT):
            rows = out.flatten(0, -2)
            return F.cross_entropy(rows, torch.arange(len(rows)) % out.shape[-1]), found
        wanted = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out.dtype)
        return F.mse_loss(out, wanted), found


@cache
def given(impl: str, kind: str, room: int = 0) -> Given:
    """The model FILE.py:NAME. room: lengths that it shall take if it can be made so. Raises Unresolved."""
    made = made_of(load_class(impl), parse(impl))
    subject = whole_model(made, KINDS.get(kind, kind))
    changes: dict[str, Any] = {}
    if room and subject.longest is not None and subject.longest < room:
        changes = {"max_len": room}
    try:
        module = made.fresh(0, **changes)
    except NotProvided:
        module = made.fresh(0)
    return Given(replace(subject, module=module.eval(), known={}))


def asked_for(room: int = 0) -> Given:
    """The model that the environment names."""
    impl, _, kind = os.environ[SUBJECT].rpartition(" ")
    return given(impl, kind, room)
