"""Losses of forecasters: whether they are taught the level of what follows."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.whole.calling import default_dtype, loss_in
from conformance.adapters.whole.forecasting import ForecastProbes
from conformance.adapters.whole.losses import loss_candidates
from conformance.adapters.whole.used_functions import line_in, text_of
from conformance.protocol import NotProvided

_FUTURE = re.compile(r"(future|target|label|truth|y)s?(_?(values?|true|series|window))?")
_OF_SHAPE = re.compile(r"(?i)corr|pearson|cosine|dtw|diff\(")
"""What a loss says that is meant to see no level."""
_OWN = (
    r"(mean|std|fit|norm\w*|stats)\(\s*(future|target|label|truth|y)s?\b|\b(future|target|label|truth|y)s?\.(mean|std)"
)
"""What takes numbers of what follows, and not of the series."""
_UP = 3.0


class FutureLossProbes(ForecastProbes):
    """The experiment, of a running model."""

    def taught_levels(self) -> list[tuple[str, str, bool]]:
        """Of each loss that is given what follows a series: its name, its line, and whether it is another one where all
        that follows lies higher. Raises NotProvided where there is none."""
        one, twin = self.calling.main, self.twin()
        if len(self.calling.inputs) > 1 or one.meaning != "x" or one.vocab or len(one.shape) > 2:
            raise NotProvided("it reads no series")
        given, answer = {}, None
        with torch.no_grad(), twin.mode(False), default_dtype(self.torch_dtype), suppress(Exception):
            given = twin.calling.arguments(twin.tensors(twin.example(4, None if one.length else 16, seed=97)))
            answer = next((t for t in tensors_in(twin.module(**given)) if t.is_floating_point() and t.dim() > 1), None)
        if answer is None:
            raise NotProvided("it answers with no series")
        found = []
        for name, function, loss, future in self._losses_of_futures(given):
            if _OF_SHAPE.search(text_of(function)):
                continue
            for shape in (answer.shape, answer.shape[:-1]):
                with suppress(Exception):  # what follows has another shape
                    sees = self._sees_level(loss, future, shape)
                    place = line_in(function, _OWN, rf"\b{future}\b.*(mean|std|fit|norm)", r"return .*loss", r"def ")
                    found.append((name, place, sees))
                    break
        if not found:
            raise NotProvided("it has no loss of what follows a series that could be run")
        return found

    def _losses_of_futures(self, given: dict[str, Any]) -> Iterator[tuple[str, Any, Callable[..., Any], str]]:
        """name, function, the function with all but what follows, and how it calls that."""
        forward = type(self.module).forward
        if labels := [n for n in inspect.signature(forward).parameters if n not in given and _FUTURE.fullmatch(n)]:
            yield "forward", forward, partial(self.twin().module, **given), labels[0]
        for name, function, _ in loss_candidates(self):
            wanted = [p.name for p in list(inspect.signature(function).parameters.values())[1:] if p.default is p.empty]
            series, *others = given.items()
            known = {wanted[0]: series[1], **dict(others)} if wanted else {}
            futures = [one for one in wanted if one not in known]
            if name != "forward" and len(futures) == 1:
                known = {one: value for one, value in known.items() if one in wanted}
                yield name, function, partial(function, self.twin().module, **known), futures[0]

    def _sees_level(self, loss: Callable[..., Any], future: str, shape: torch.Size) -> bool:
        """Whether a loss is another one where what follows lies higher. Raises ValueError where it is the same for all
        that may follow."""
        draw = torch.Generator().manual_seed(98)
        values = torch.randn(shape, generator=draw, dtype=self.torch_dtype)
        others = torch.randn(shape, generator=draw, dtype=self.torch_dtype)
        first, higher, other = (self._number(loss, {future: one}) for one in (values, values + _UP, others))
        if not torch.isfinite(first) or torch.allclose(first, other, rtol=1e-6):
            raise ValueError("it does not depend on what follows")
        return not torch.allclose(first, higher, rtol=1e-6)

    def _number(self, loss: Callable[..., Any], future: dict[str, Tensor]) -> Tensor:
        with torch.no_grad(), self.mode(False), default_dtype(self.torch_dtype):
            value = loss_in(loss(**future))
        if value is None:
            raise ValueError("it gives no loss")
        return value.double()
