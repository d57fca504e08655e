"""Losses of models that compare pairs of samples: whether they teach both sides, and scale all false partners alike."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from conformance.adapters.whole.calling import default_dtype, loss_in
from conformance.adapters.whole.embedding import EmbeddingProbes, Similarities, Widened
from conformance.adapters.whole.followers import FollowerProbes
from conformance.adapters.whole.loss_texts import Texts
from conformance.adapters.whole.losses import loss_candidates, partial_of
from conformance.adapters.whole.used_functions import line_in
from conformance.protocol import NotProvided
from conformance.seeds import seed_torch

_HELD = re.compile(r"(?i)frozen|freez|locked|momentum|stop[-_ ]?grad|no gradient|teacher|(^|_|\b)ema(_|\b)|alternat")
"""Words of a code that leaves a side without a gradient on purpose."""
_FALSE = re.compile(r"(?i)(^|_)neg(ative)?s?(_|$)")


@dataclass(frozen=True)
class Untaught:
    """A side of a model of pairs that a loss depends on, and gives no gradient. loss: its name; place: the line that
    cuts the gradient off, else the loss."""

    side: str
    loss: str
    place: str


class PairLossProbes(EmbeddingProbes, FollowerProbes):
    """The experiments, of a running model."""

    def sides_untaught(self) -> list[Untaught]:
        """The sides that forward's scores teach, and none of its losses does, though one depends on them. Raises
        NotProvided where that cannot be told, or may be meant so."""
        scores = self.tables_of_pairs()[0]
        if self.line_of(_HELD.pattern) or self._moves_a_copy():
            raise NotProvided("one of its sides is held on purpose")
        weight = torch.randn(scores.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
        sides = _reached((scores * weight.to(scores.dtype)).sum(), self.module)
        taught: set[str] = set()
        reads: dict[str, Untaught] = {}
        losses = list(self._losses())
        for name, function, method, given in losses:
            twin = self.as_written()
            value = _value(twin, partial_of(function, twin.module, method), given)
            if value is None or not value.requires_grad:
                continue  # it is for reading only
            taught |= _reached(value, twin.module)
            for side in sides - taught:
                other = _value(twin, partial_of(function, _moved(twin.module, side), method), given)
                if other is not None and float((other - value).detach().abs()) > 1e-6 * float(value.detach().abs()):
                    place = line_in(function, r"detach\(|no_grad|\.data\b", r"def ")
                    reads.setdefault(side, Untaught(side, name, place))
        if not losses:
            raise NotProvided("it has no loss of pairs that could be run")
        return [found for side, found in reads.items() if side not in taught]

    def false_partners(self) -> list[Widened]:
        """The cross-entropies of its losses over the pairs of a batch and further false partners. Raises
        NotProvided."""
        seen = Similarities()
        for _, function, method in loss_candidates(self):
            names = [name for name in inspect.signature(function).parameters if _FALSE.search(name)]
            if names:
                twin = self.as_written()
                with suppress(Exception), seen:  # it takes them in another form
                    given = Texts(twin, False, False, 0, also=names).arguments(function, True)
                    _value(twin, partial_of(function, twin.module, method), given)
        if not seen.widened:
            raise NotProvided("none of its losses takes further false partners")
        return seen.widened

    def _moves_a_copy(self) -> bool:
        with suppress(NotProvided):
            return bool(self.followers())
        return False

    def _losses(self) -> Iterator[tuple[str, Callable[..., Any], bool, dict[str, Any]]]:
        """Name, function, whether it is a method, and its arguments. Raises NotProvided for one that asks for
        what nothing here shows: it may teach what the others do not."""
        pairs = self.arguments_of_pairs()
        for name, function, method in loss_candidates(self):
            wanted = list(inspect.signature(function).parameters.values())[1:]
            known = {one.name: pairs[one.name] for one in wanted if one.name in pairs}
            if not all(one.name in known for one in wanted if one.default is one.empty):
                known = Texts(self, False, False, 0).arguments(function, True)
            yield name, function, method, known


def _value(subject: EmbeddingProbes, call: Callable[..., Any], given: dict[str, Any]) -> Tensor | None:
    """The loss in evaluation mode. Raises NotProvided where it cannot be run."""
    seed_torch(5)
    with subject.mode(False), torch.enable_grad(), default_dtype(subject.torch_dtype):
        try:
            return loss_in(call(**given))
        except Exception as error:
            raise NotProvided(f"a loss asks for what nothing here shows: {error}") from error


def _reached(value: Tensor, module: nn.Module) -> set[str]:
    """The direct parts of a model with parameters that are trained, one of which a number has a gradient of."""
    named = [(name.partition(".")[0], p) for name, p in module.named_parameters() if p.requires_grad and "." in name]
    slopes = torch.autograd.grad(value, [p for _, p in named], allow_unused=True)
    return {part for (part, _), slope in zip(named, slopes, strict=True) if slope is not None and bool(slope.any())}


def _moved(module: nn.Module, part: str) -> nn.Module:
    """The module with other weights in one of its direct parts."""
    generator = torch.Generator().manual_seed(8)
    with torch.no_grad():
        for parameter in module.get_submodule(part).parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator).to(parameter.dtype))
    return module
