"""Methods that fill in the missing steps of a series: do they follow its level and its scale?

A model that takes level and scale out of its data gives the same for a series in other units. What it fills in is put
back into these units, or it is left in its own.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.whole.calling import default_dtype
from conformance.adapters.whole.names import KEEPS_BY_NAME
from conformance.adapters.whole.place_probes import PlaceProbes
from conformance.adapters.whole.used_functions import line_in
from conformance.protocol import NotProvided

_FILLS = re.compile(r"_?(impute|fill(_?in)?(_?(gaps|missing|holes))?|inpaint)(_\w+)?")
_MISSING = re.compile(r"(is_?)?(missing|masked|hidden|gaps?|holes?|unobserved|absent)(_(mask|steps))?")
_OBSERVED = re.compile(r"(is_?)?(observed|known|seen|present|available)(_(mask|steps))?")
_SCALE, _LEVEL, _EVERY = 1000.0, 500.0, 4


@dataclass(frozen=True)
class Filled:
    """One method. name, place: of it. first, other: what it fills in for a series, and for scale * series + level."""

    name: str
    place: str
    first: Tensor
    other: Tensor

    @property
    def follows(self) -> bool:
        """Whether the filled numbers are scaled and moved as the series is."""
        return _near(self.other, _SCALE * self.first + _LEVEL)

    @property
    def stays(self) -> bool:
        """Whether they are the same in other units."""
        return _near(self.other, self.first)


class ImputeProbes(PlaceProbes):
    """The experiment, of a running model."""

    def filled(self) -> list[Filled]:
        """What its methods fill in whose level and scale the model takes out, and which leave known numbers as they
        are. Raises NotProvided."""
        one = self.calling.main
        if self.calling.two_sided or one.meaning != "x" or len(one.shape) != 2:
            raise NotProvided("it reads no series")
        found: list[Filled] = []
        for name, function in inspect.getmembers(type(self.module), inspect.isfunction):
            if _FILLS.fullmatch(name):
                with suppress(Exception):  # it asks for what nothing here shows
                    found += self._by(name, function)
        if not found:
            raise NotProvided("no method of it that fills in missing steps, in one unit or another, could be run")
        return found

    def _by(self, name: str, function: Callable[..., Any]) -> Iterator[Filled]:
        x = self.tensors(self.example(2, None if self.calling.main.length else 16, seed=97))["x"]
        missing = torch.arange(x.shape[1]) % _EVERY == 1
        runs = []
        for data in (x, _SCALE * x + _LEVEL):
            twin = self.twin()
            given = _arguments(function, data.clone(), missing)
            with twin.mode(False), torch.no_grad(), default_dtype(twin.torch_dtype):
                made = next(t for t in tensors_in(getattr(twin.module, name)(**given)) if t.shape == data.shape)
            if not _near(made[:, ~missing], data[:, ~missing]):
                return
            runs.append(made[:, missing])
        filled = Filled(name, line_in(function, r"where\(|return", r"def "), *runs)
        if filled.follows or filled.stays:
            yield filled


def _arguments(function: Callable[..., Any], x: Tensor, missing: Tensor) -> dict[str, Any]:
    """The series first, then which of its steps are missing, known, and real. Raises NotProvided."""
    given: dict[str, Any] = {}
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        lower, rows = parameter.name.lower(), missing.repeat(len(x), 1)
        if not given:
            given[parameter.name] = x
        elif _MISSING.fullmatch(lower):
            given[parameter.name] = rows
        elif _OBSERVED.fullmatch(lower):
            given[parameter.name] = ~rows
        elif parameter.default is not parameter.empty:
            continue
        elif KEEPS_BY_NAME.search(lower):
            given[parameter.name] = torch.ones_like(rows)
        else:
            raise NotProvided(f"it asks for {parameter.name}")
    if not any(value.dtype is torch.bool for value in given.values()):
        raise NotProvided("it is not told what is missing")
    return given


def _near(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).abs().max() <= 1e-3 * other.abs().max())
