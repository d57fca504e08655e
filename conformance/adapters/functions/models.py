"""Losses that take the model and a batch, run on a model that answers the logits of a claim.

What such a loss teaches shows in the gradient of those logits; what it feeds is what the model was called with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from conformance.adapters.functions.arguments import PAD, Arguments, read
from conformance.adapters.functions.masks import exchanged
from conformance.adapters.functions.roles import MODEL
from conformance.adapters.functions.scripted import ANSWERS, Scripted, texts_in
from conformance.adapters.functions.subjects import Served, constants, first_tensor, noise, source_of
from conformance.adapters.inference.facts import Fact, Unresolved

WORDS = {
    "model": MODEL,
    "pad": PAD,
    "criterion": r"criterion|loss_?(fn|func|function)|crit",
    "source_mask": r"src_(padding_)?mask",
    "source": r"src|source|(src|source|encoder)_(ids|seq|tokens?|input(_ids)?|batch)",
    "labels": r"targets?|labels?|y|tgt|trg|(tgt|trg|target)_(ids|seq|tokens?|out|batch)",
    "ids": r"ids|input_ids|tokens?|x|data|batch|inputs?|text|seq(uence)?s?",
}
FORMS: dict[str, Callable[[Tensor], dict[str, Any]]] = {
    "a source and the text": lambda ids: {"source": _source(ids), "labels": ids},
    "an input and its labels": lambda ids: {"ids": ids[:, :-1], "labels": ids[:, 1:]},
    "an input and its labels in one row": lambda ids: {"ids": ids[:, :-1], "labels": ids[:, 1:]},
    "the text": lambda ids: {"ids": ids},
    "a batch with input_ids": lambda ids: {"ids": {"input_ids": ids, "labels": ids}},
    "a pair of input and labels": lambda ids: {"ids": (ids[:, :-1], ids[:, 1:])},
}
"""What the text (B, T) is handed over as."""
V = 9


def _source(ids: Tensor) -> Tensor:
    """Other texts than the target, of another length, without padding."""
    return torch.arange(ids.shape[0] * (ids.shape[1] + 2)).reshape(ids.shape[0], -1) % (V - 2) + 1


class Taught(Scripted):
    """A model that answers the logits (B, T, V) of a claim, as many positions as it is fed; `fed` is what it was."""

    def __init__(self, logits: Tensor, answer: str, sequence_first: bool) -> None:
        super().__init__(lambda text: text, answer, sequence_first)
        self.given = logits
        self.fed: Tensor | None = None

    def _logits(self, arguments: Any, keywords: Any) -> Tensor:
        text = texts_in((arguments, keywords))[-1]
        self.fed = text.t() if self.sequence_first else text
        logits = self.given[:, : self.fed.shape[1]].contiguous()
        return logits.transpose(0, 1).contiguous() if self.sequence_first else logits


@dataclass(frozen=True)
class TrainingLoss:
    """How the loss is called. pad: its own, where it does not take it. log: its model gives log-probabilities."""

    function: Callable[..., Any]
    arguments: Arguments
    form: str
    answer: str
    sequence_first: bool
    pad: int | None
    log: bool

    def __call__(self, logits: Tensor, ids: Tensor) -> dict[str, Any]:
        """The loss, and what the model was fed. A claim's padding is 0."""
        own = 0 if self.pad is None else self.pad
        words = max(logits.shape[-1], own + 1)
        order = torch.arange(words)
        order[0], order[own] = own, 0
        wide = torch.cat([logits, logits.new_full((*logits.shape[:2], words - logits.shape[-1]), -1e4)], -1)[..., order]
        model = Taught(wide.log_softmax(-1) if self.log else wide, self.answer, self.sequence_first)
        given = FORMS[self.form](exchanged(ids, 0, own))
        values = {name: self._turned(value) for name, value in given.items()}
        if self.form.endswith("in one row"):
            values["labels"] = values["labels"].reshape(-1)
        if "source" in given:
            values["source_mask"] = torch.ones(len(ids), 1, given["source"].shape[1], dtype=torch.bool)
        values |= {"model": model, "pad": own, "criterion": nn.CrossEntropyLoss(ignore_index=own)}
        made = self.arguments.call(self.function, **values)
        loss = made.loss if isinstance(made, SimpleNamespace) else first_tensor(made)
        if loss.numel() != 1:
            raise TypeError(f"it returns {tuple(loss.shape)}, which is no loss")
        if model.fed is None:
            raise TypeError("it does not call the model")
        return {"out": loss.reshape(()), "given": exchanged(model.fed, own, 0)}

    def _turned(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._turned(v) for name, v in value.items()}
        if isinstance(value, tuple):
            return tuple(map(self._turned, value))
        return value.t() if self.sequence_first else value


def resolve(function: Callable[..., Any]) -> list[Served]:
    """The function as training_loss. Raises Unresolved when it runs on no model and batch that are known."""
    arguments = read(function, WORDS, ("model", "ids", "labels"))
    pads = list(constants(function, r"(.*_)?pad(_.*)?").values())
    pad = None if arguments.has("pad") or not pads else pads[0]
    log = bool(re.search(r"nll_?loss", source_of(function).lower()))
    ids = torch.tensor([[1, 4, 2, 6, 3, 5], [2, 5, 7, 1, 8, 4]])
    logits = noise(2, 6, V)
    forms = [form for form in FORMS if _fits(arguments, form)]
    reasons: list[str] = []
    for form in forms:
        for sequence_first in (False, True):
            for answer in ANSWERS:
                loss = TrainingLoss(function, arguments, form, answer, sequence_first, pad, log)
                try:
                    leaf = logits.clone().requires_grad_()
                    made = loss(leaf, ids)
                    (gradient,) = torch.autograd.grad(made["out"], leaf)
                except Exception as error:
                    reasons.append(f"{type(error).__name__}: {' '.join(str(error).split())}")
                    continue
                if made["given"].shape[0] != len(ids) or not gradient.any():
                    reasons.append("its loss does not depend on the model's answer")
                    continue
                facts = [
                    Fact("batch", f"{form}{', texts (T, B)' if sequence_first else ''}", "it runs so"),
                    Fact("model", f"returns {answer}{', log-probabilities' if log else ''}", "it runs so"),
                ]
                if pad is not None:
                    facts.append(Fact("padding", pad, "a constant of its file"))
                elif arguments.has("pad") or arguments.has("criterion"):
                    facts.append(Fact("padding", "handed in", "its parameters"))
                return [Served("training_loss", partial(_make, loss), facts, None)]
    raise Unresolved(
        f"{arguments.name} does not run on a model that returns logits, and a batch: {(reasons or ['no form'])[0]}"
    )


def _fits(arguments: Arguments, form: str) -> bool:
    """Whether the form hands over all that it takes, and no more than that."""
    wanted = {name for name in ("source", "labels", "ids") if arguments.has(name)}
    return wanted == set(FORMS[form](torch.ones(1, 3, dtype=torch.int64)))


def _make(loss: TrainingLoss, config: Mapping[str, Any]) -> Callable[..., dict[str, Any]]:
    return lambda training, logits, ids: loss(logits, ids)
