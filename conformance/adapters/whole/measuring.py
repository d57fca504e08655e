"""The methods with which a model measures itself: its perplexity, its probabilities, its error at observed points."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.torch_subject import to_array
from conformance.adapters.whole.calling import default_dtype
from conformance.adapters.whole.pads import PadProbes
from conformance.adapters.whole.used_functions import line_in, text_of
from conformance.protocol import Array, NotProvided

_MEASURES = re.compile(r"(?i)perplexity|(?<![a-z])ppl(?![a-z])")
_PROBABILITIES = re.compile(r"(?i)(predict|get|class)?_?(proba|probs|probabilit(y|ies))(_of\w*)?")
_ERRORS = re.compile(r"(?i)loss|error|objective")
_TRUTH = re.compile(r"(?i)future|targets?|y(_true)?|labels?|true|truth|actual")
_OBSERVED = re.compile(r"(?i)observed\w*|(valid|target|future|loss|y)?_?mask|valid|present|available")
_OF_OBSERVED = re.compile(
    r"(?i)\b(over|of|on|at|for|from) (the |all )?(observed|valid|unmasked|present|known|non-?missing)"
)
_LONG = 53
"""How many tokens it reads: more than a usual segment, and no multiple of one."""


@dataclass(frozen=True)
class Observed:
    """What a loss with one error at all points gives: whole, of all points, of twice as many samples, and of a share of
    the points only. says: whether its text says that it is one of observed points."""

    name: str
    place: str
    whole: float
    twice: float
    part: float
    share: float
    says: bool


class MeasureProbes(PadProbes):
    """The experiments, of a running model."""

    def probabilities(self) -> Iterator[tuple[str, str, Array]]:
        """What its methods that give probabilities of several classes give, (B, C): name, line and numbers."""
        for name, function in inspect.getmembers(type(self.module), inspect.isfunction):
            parameters = list(inspect.signature(function).parameters.values())[1:]
            needed = [one for one in parameters if one.default is one.empty]
            if not _PROBABILITIES.fullmatch(name) or len(needed) != 1 or function.__module__.startswith("torch."):
                continue
            with suppress(Exception):  # it asks for what nothing here shows
                twin = self.twin()
                given = twin.calling.arguments(twin.tensors(twin.example(3, seed=66)))
                with torch.no_grad(), twin.mode(False), default_dtype(twin.torch_dtype):
                    made = function(twin.module, given[twin.calling.main.parameter])
                if isinstance(made, Tensor) and made.shape == (3, self.calling.outputs) and made.shape[1] > 1:
                    yield name, line_in(function, r"softmax\(|exp\(", r"def "), to_array(made.double())

    def errors_of_observed(self) -> Iterator[Observed]:
        """What its losses that are told which points were observed give where the error is one at all points."""
        for name, function in inspect.getmembers(type(self.module), inspect.isfunction):
            names = list(inspect.signature(function).parameters)[1:]
            truth = next((one for one in names[1:] if _TRUTH.fullmatch(one)), "")
            told = next((one for one in names[2:] if _OBSERVED.fullmatch(one)), "")
            if not (_ERRORS.search(name) and truth and told) or function.__module__.startswith("torch."):
                continue
            with suppress(Exception):  # it asks for what nothing here shows
                asked = (names[0], truth, told)
                (whole, _), (twice, _), (part, share) = (
                    self._with_one_error(function, asked, rows, most) for rows, most in ((2, 1.0), (4, 1.0), (2, 0.6))
                )
                says, place = (
                    bool(_OF_OBSERVED.search(text_of(function))),
                    line_in(function, r"observed.*mean\(|/", r"def "),
                )
                yield Observed(name, place, whole, twice, part, share, says)

    def _with_one_error(
        self, function: Callable[..., Any], names: Sequence[str], rows: int, most: float
    ) -> tuple[float, float]:
        """The loss, and the share of the points that were observed."""
        twin = self.twin()
        given = twin.calling.arguments(twin.tensors(twin.example(rows, seed=67)))
        with torch.no_grad(), twin.mode(False), default_dtype(twin.torch_dtype):
            answer = next(iter(tensors_in(twin.module(**given))))
            observed = torch.ones(answer.shape, dtype=torch.bool)
            observed[:, int(most * answer.shape[1]) :] = False
            values = (given[twin.calling.main.parameter], answer + 1, observed)
            made = function(twin.module, **dict(zip(names, values, strict=True)))
        return float(made), float(observed.double().mean())

    def perplexities(self) -> Iterator[tuple[str, str, float]]:
        """What each of its methods that say that they give a perplexity gives if all tokens are equally likely: name,
        line and number. It is the number of tokens there are, however many are read and in whatever pieces."""
        for name, function in inspect.getmembers(type(self.module), inspect.isfunction):
            parameters = list(inspect.signature(function).parameters.values())[1:]
            needed = [one.name for one in parameters if one.default is one.empty]
            said = _MEASURES.search(f"{name} {inspect.getdoc(function) or ''}")
            if not said or len(needed) != 1 or function.__module__.startswith("torch."):
                continue
            for length in (_LONG, self.longest or 6):
                with suppress(Exception):
                    yield name, self.line_of(rf"def {name}\b"), self._measured(function, length)
                    break

    def _measured(self, function: object, length: int) -> float:
        twin = self.twin()
        ids = torch.tensor(self.example(2, length, 65)[self.calling.main.meaning])
        with torch.no_grad(), twin.mode(False), default_dtype(twin.torch_dtype):
            for parameter in twin.module.parameters():
                parameter.zero_()
            made = function(twin.module, twin.calling.turned(ids))  # type: ignore[operator]
        if isinstance(made, Tensor) and made.numel() == 1:
            made = float(made)
        if not isinstance(made, float) or not np.isfinite(made):
            raise NotProvided("it gives no number")
        return made
