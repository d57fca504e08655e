"""The loss of a model that marks a span of its text: whether it is taught where the span starts, and where it ends."""

from __future__ import annotations

import inspect
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from conformance.adapters.whole.calling import default_dtype, loss_in
from conformance.adapters.whole.losses import LossProbes
from conformance.protocol import NotProvided

_NUMBERED = r"s?(_?(pos(itions?)?|ind(ex|ices)|idx|labels?|targets?|ids?|tokens?))?"
_START, _END = re.compile(rf"(span_?)?start{_NUMBERED}"), re.compile(rf"(span_?)?end{_NUMBERED}")
ROWS = 4


@dataclass(frozen=True)
class TaughtSpan:
    """What a loss of spans depends on. names: its parameters; unread: those that do not change it; crossed: the scores
    that are given first are taught the ends, and those behind them the starts. place: file:line of the loss."""

    names: tuple[str, str]
    unread: tuple[str, ...]
    crossed: bool
    place: str


class SpanLossProbes(LossProbes):
    """The experiment, of a running model."""

    def taught_span(self) -> TaughtSpan:
        """What the loss of forward teaches. Raises NotProvided where it is given no starts and ends, or gives no loss
        for them."""
        names = self._span_parameters()
        twin = self.twin()
        inputs = twin.tensors(twin.example(ROWS, seed=92))
        given = {name: value for name, value in twin.calling.arguments(inputs).items() if name not in names}
        length = next(one for one in tree_leaves(given) if isinstance(one, Tensor) and one.dim() >= 2).shape[1]
        if length < 4:
            raise NotProvided("its texts are too short for a span")
        starts, ends = torch.arange(ROWS) % (length - 2) + 1, (torch.arange(ROWS) + 1) % (length - 2) + 1
        value, scores = twin._loss_of_span(given | dict(zip(names, (starts, ends), strict=True)))
        moved = [(starts % (length - 2) + 1, ends), (starts, ends % (length - 2) + 1)]
        others = [twin._loss_of_span(given | dict(zip(names, pair, strict=True)))[0] for pair in moved]
        unread = [name for name, other in zip(names, others, strict=True) if torch.equal(other, value)]
        raised = [_raised(value, one) for one in scores if one.shape == (ROWS, length)]
        crossed = len(raised) == 2 and torch.equal(raised[0], ends) and torch.equal(raised[1], starts)
        first, last = (rf"(cross_entropy|nll|loss|criterion|gather)\w*\(.*\b{name}\b" for name in names)
        place = self.line_of(last if crossed else first) or self.line_of(first) or self.place()
        return TaughtSpan(names, tuple(unread), crossed, place)

    def _span_parameters(self) -> tuple[str, str]:
        parameters = inspect.signature(self.module.forward).parameters
        data = {one.parameter for one in self.calling.inputs}
        found = [
            next((name for name in parameters if name not in data and pattern.fullmatch(name.lower())), "")
            for pattern in (_START, _END)
        ]
        if not all(found):
            raise NotProvided("its forward is given no starts and ends of spans")
        return found[0], found[1]

    def _loss_of_span(self, given: dict[str, Any]) -> tuple[Tensor, list[Tensor]]:
        """The loss, and the scores beside it. Raises NotProvided where there is no loss."""
        value, result = None, None
        with self.mode(False), torch.enable_grad(), default_dtype(self.torch_dtype), suppress(Exception):
            result = self.module(**given)
            value = loss_in(result)
        if value is None or not value.requires_grad:
            raise NotProvided("its forward gives no loss for starts and ends")
        return value, [one for one in tree_leaves(result) if isinstance(one, Tensor) and one.requires_grad]


def _raised(value: Tensor, scores: Tensor) -> Tensor:
    """Which score of each row the loss raises most; -1 where it raises none."""
    (gradient,) = torch.autograd.grad(value, [scores], allow_unused=True, retain_graph=True)
    if gradient is None or not bool(gradient.any()):
        return torch.full((len(scores),), -1)
    return gradient.argmin(1)
