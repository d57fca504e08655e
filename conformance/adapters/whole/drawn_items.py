"""Losses that draw false items by themselves: which items they push up and down, and at which places of a text.

What is drawn need not be known. The score of an item is its row of a table times the state of a place. So an item that
was read at one place only gets a gradient along the state of that place, and its sign says which way the loss moves it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from conformance.adapters.torch_subject import to_array
from conformance.adapters.whole.calling import default_dtype, loss_in
from conformance.adapters.whole.loss_texts import Texts
from conformance.adapters.whole.losses import LossProbes, loss_candidates, partial_of
from conformance.adapters.whole.used_functions import functions_called_by, line_in, text_of
from conformance.protocol import Array, NotProvided
from conformance.seeds import seed_torch

_SAMPLERS = re.compile(
    r"_?((sampled?|drawn?|get|make|random)_)*neg(ative)?s?(_(sampl\w+|items?|ids?))*|_?sample_false\w*", re.I
)
_TRUE = re.compile(r"pos(itives?)?(_?(seqs?|items?|ids?|samples?))?|targets?|labels?|next_items?", re.I)
_SAYS = re.compile(
    r"(is|are|was|be)(n.t| not| never)|never|other than|except|differ|exclud|avoid|without|!=|unequal|not the"
    r"|skip|resampl|collid|collision",
    re.I,
)
_ALONG = 1 - 1e-7
DRAWS = 20
"""How often false items are drawn, for the items of 64 histories."""


@dataclass(frozen=True)
class Push:
    """What a loss does with the score of one item at one place. item: its number; is_true: whether it is the next item,
    else a drawn one. slope: of the loss along the score, up to a factor above zero. padded: whether the place and the
    next are padding. state: of the place."""

    loss: str
    place: str
    item: int
    is_true: bool
    slope: float
    padded: bool
    state: Array


@dataclass(frozen=True)
class Sampled:
    """What a method that draws false items gave. hits: how many of `count` are their own true item. says: whether its
    text says that none is."""

    name: str
    place: str
    hits: int
    count: int
    says: bool


class DrawnItemProbes(LossProbes):
    """The experiments, of a running model."""

    def pushes(self, wider: int = -1, seed: int = 1) -> list[Push]:
        """What its losses of drawn items do with scores. wider: so many places of padding more than the first text has,
        which has none below 0. Raises NotProvided where that is not seen."""
        found: list[Push] = []
        for name, function, method in loss_candidates(self):
            if re.search(r"(?i)neg|false|sampled", "".join(map(text_of, (function, *functions_called_by(function))))):
                with suppress(Exception):  # it asks for what nothing here shows
                    found += self._pushes(name, function, method, wider, seed)
        if not found:
            raise NotProvided("none of its losses draws false items that are seen")
        return found

    def _pushes(self, name: str, function: Callable[..., Any], method: bool, wider: int, seed: int) -> Iterator[Push]:
        twin = self.twin()
        texts = Texts(twin, wider >= 0, False, max(wider, 0))
        given = texts.arguments(function, True)
        if len(texts.texts) != 1 or not given.keys() <= texts.texts.keys():
            return
        (text,) = texts.texts.values()
        outside = texts.words[0]
        with twin.mode(False), torch.enable_grad(), default_dtype(twin.torch_dtype):
            seed_torch(seed)
            value = loss_in(partial_of(function, twin.module, method)(**given))
            if value is None or not value.requires_grad:
                return
            places = [place for cut in (text, text[:, :-1]) for place in _places(twin, cut, outside)]
            table = places[0][0]
            (slopes,) = torch.autograd.grad(value, [table], allow_unused=True)
        if slopes is None or not bool(slopes.isfinite().all()):
            return
        last = {[word for word in row if word != self.pad_id][-1] for row in text.tolist()}
        line = line_in(function, r"sigmoid|softplus|cross_entropy|relu|clamp", r"neg\w* *=", r"def ")
        for item in slopes.abs().sum(-1).nonzero().flatten().tolist():
            if item == self.pad_id or (item in texts.where and item not in last):
                continue
            for _, state, row, at in places:
                along = float(slopes[item] @ state / (slopes[item].norm() * state.norm()).clamp(min=1e-30))
                if abs(along) > _ALONG:
                    padded = bool((text[row, at : at + 2] == self.pad_id).all()) and wider >= 0
                    size = float(slopes[item] @ state / (state @ state))
                    yield Push(name, line, item, item in last, size, padded, to_array(state))
                    break

    def samplers(self) -> list[Sampled]:
        """What its methods that draw false items for true ones give. Raises NotProvided where it has none."""
        found = []
        for name, function in inspect.getmembers(type(self.module), inspect.isfunction):
            wanted = list(inspect.signature(function).parameters.values())[1:]
            needed = [one for one in wanted if one.default is one.empty]
            if not _SAMPLERS.fullmatch(name) or len(needed) != 1 or not _TRUE.fullmatch(needed[0].name):
                continue
            true = torch.tensor(self.example(64, seed=97)[self.calling.main.meaning])
            with suppress(Exception), torch.no_grad():
                seed_torch(1)
                drawn = torch.cat([torch.as_tensor(function(self.twin().module, true)) for _ in range(DRAWS)])
                true = true.repeat(DRAWS, 1)
                if drawn.is_floating_point() or drawn.shape[: true.dim()] != true.shape:
                    continue
                same = drawn == true.reshape(*true.shape, *[1] * (drawn.dim() - true.dim()))
                place = line_in(function, r"rand\w*\(|multinomial\(", r"def ")
                says = bool(_SAYS.search(text_of(function)))
                found.append(Sampled(name, place, int(same.sum()), drawn.numel(), says))
        if not found:
            raise NotProvided("it has no method that draws false items for true ones")
        return found


def _places(subject: LossProbes, text: Tensor, outside: int) -> Iterator[tuple[nn.Parameter, Tensor, int, int]]:
    """The table of items, and for each place its state, row and number. outside: an item that is not in the text."""
    scores = replace(subject).run({subject.calling.main.meaning: text.numpy()})["out"]
    tables = [p for p in subject.module.parameters() if p.requires_grad and p.dim() == 2 and len(p) > outside]
    for row in range(len(text)):
        for at in range(text.shape[1]):
            for table, slopes in zip(
                tables,
                torch.autograd.grad(scores[row, at, outside], tables, allow_unused=True, retain_graph=True),
                strict=True,
            ):
                if slopes is not None and bool(slopes[outside].any()):
                    yield table, slopes[outside], row, at
                    break
