"""Series with gaps: whether what stands where nothing was observed changes an answer.

A model that is told which points were observed, and leaves the others out somewhere, leaves them out everywhere.
"""

from __future__ import annotations

import inspect
import re
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.whole.calling import default_dtype
from conformance.adapters.whole.place_probes import PlaceProbes
from conformance.protocol import NotProvided

_OBSERVED = re.compile(r"(is_?)?(observed|obs|known|seen|present|available)(_?(mask|steps|flags?|points))?|obs_?mask")
_EVERY, _OTHER = 4, 3.0
_STATISTIC = re.compile(
    r"^\s*(\w+_)?(mean|mu|loc|center|level|var|variance|std|scale|spread)\w* = "
    r".*(\.(sum|mean|var|std)\(|, .(sum|mean).\))"
)
"""A line that makes a mean or a spread."""


@dataclass(frozen=True)
class Gaps:
    """name: of the parameter that says what was observed. read: whether other numbers in the gaps change an answer.
    counted: whether forecasts follow the level of a series without gaps, and not that of one with some. place:
    file:line that is likely to read them."""

    name: str
    read: bool
    counted: bool
    place: str


@dataclass(frozen=True)
class Missing:
    """learns_nothing: the parameters whose gradients are NaN where some numbers are. place: file:line that is likely to
    choose."""

    learns_nothing: list[str]
    place: str


class GapProbes(PlaceProbes):
    """The experiment, of a running model."""

    def gaps(self) -> Gaps:
        """What its forward makes of gaps. Raises NotProvided where it reads no series, is not told which points were
        observed, or leaves none out."""
        one, data = self.calling.main, {x.parameter for x in self.calling.inputs}
        names = [n for n in inspect.signature(self.module.forward).parameters if n not in data]
        names = [n for n in names if _OBSERVED.fullmatch(n.lower()) and n not in self.calling.fixed]
        if one.vocab or not names:
            raise NotProvided("it reads no series that may have gaps")
        name = names[0]
        held = [name, *self._other_names(name)]
        hides = r"|".join(rf"\*\s*{x}\b|\b{x}\s*\*|(masked_fill|where)\([^,]*\b{x}\b" for x in held)
        if not self.line_of(hides):
            raise NotProvided(f"it leaves no points out by {name}")
        twin = self.twin()
        given = twin.tensors(twin.example(4, None if one.length else 16, seed=94))
        x = given[one.meaning]
        steps = torch.arange(x.shape[1])[None, :] + torch.arange(len(x))[:, None]
        scattered = steps.reshape(*steps.shape, *(1,) * (x.dim() - 2)) + torch.arange(x.shape[-1] if x.dim() > 2 else 1)
        for mask in (steps % _EVERY == 1, scattered.expand(x.shape) % _EVERY == 1):  # whole steps, numbers of them
            over = mask.reshape(*mask.shape, *(1,) * (x.dim() - mask.dim())).expand(x.shape)
            hidden, shown = (x + _OTHER * part.to(x.dtype) for part in (over, ~over))
            for dtype in (x.dtype, torch.bool):
                with suppress(Exception):  # it wants it in another form
                    base, moved, other = (twin._answers(given, v, name, (~mask).to(dtype)) for v in (x, hidden, shown))
                    if _near(base, other):
                        continue  # what was observed changes nothing
                    moves = [
                        twin._follows_level(given, x, name, one.to(dtype)) for one in (torch.ones_like(mask), ~mask)
                    ]
                    return Gaps(name, not _near(base, moved), moves == [True, False], self._read_at(held))
        raise NotProvided(f"it could not be told by {name} what was observed")

    def missing(self) -> Missing:
        """Which gradients a series with numbers that are missing (NaN) makes NaN. Raises NotProvided where the code
        asks for none, or the answer to such a series is no number."""
        one = self.calling.main
        asks = self.line_of(r"\bisnan\(")
        if one.vocab or not asks:
            raise NotProvided("it reads no numbers of which some may be missing")
        twin = self.twin()
        given = twin.tensors(twin.example(4, None if one.length else 16, seed=95))
        given[one.meaning].view(-1)[::_EVERY] = torch.nan
        with twin.mode(False), default_dtype(self.torch_dtype):
            try:
                made = twin.module(**self.calling.arguments(given))
            except (RuntimeError, ValueError, ArithmeticError, AssertionError) as error:
                raise NotProvided("it refuses a series with missing numbers") from error
            answers = [x for x in tensors_in(made) if x.is_floating_point() and x.requires_grad]
            if not answers or not all(bool(x.isfinite().all()) for x in answers):
                raise NotProvided("its answers to a series with missing numbers are no numbers")
            named = dict(twin.module.named_parameters())
            grads = torch.autograd.grad(sum(x.square().sum() for x in answers), [*named.values()], allow_unused=True)
        bad = [name for name, grad in zip(named, grads, strict=True) if grad is not None and bool(grad.isnan().any())]
        chooses = r"torch\.where\(|masked_fill\("
        of_these = [self.line_of(rf"({chooses}).*\b{name.rpartition('.')[2]}\b") for name in bad]
        return Missing(bad, next(filter(None, of_these), self.line_of(chooses) or asks))

    def _other_names(self, name: str) -> list[str]:
        """What the code calls the same in another type, or beside what else is missing: `w = observed.to(x.dtype)`,
        `present = present & observed`."""
        texts = "\n".join(source for _, source, _, _ in self.sources())
        found = [name]
        for one in found:
            same = rf"\b(\w+) = (?:~?\w+ & )?{one}\b(?=\.(?:to|float|type_as|double|bool)\(|\n| & )"
            found += [other for other in dict.fromkeys(re.findall(same, texts)) if other not in found]
        return found[1:]

    def _answers(self, beside: dict[str, Tensor], x: Tensor, name: str, observed: Tensor) -> list[Tensor]:
        values = {"pad_id": 0, **beside, self.calling.main.meaning: x}
        with self.mode(False), torch.no_grad(), default_dtype(self.torch_dtype):
            given = self.calling.arguments(values) | {name: observed}
            return [one for one in tensors_in(self.module(**given)) if one.is_floating_point()]

    def _follows_level(self, beside: dict[str, Tensor], x: Tensor, name: str, observed: Tensor) -> bool:
        """Whether the first answer to a series that lies higher is as much higher."""
        base, moved = (self._answers(beside, one, name, observed)[:1] for one in (x, x + _OTHER))
        return _near([one + _OTHER for one in base], moved)

    def _read_at(self, names: list[str]) -> str:
        """The line of a mean or a spread that takes no account of what was observed, or divides by all steps, where
        there is one; else the first of them, and the first line that reads what was observed."""
        told = rf"\b({'|'.join(names)})\b"
        lines = [
            (f"{file}:{start + number}", line)
            for _, source, file, start in self.sources()
            for number, line in enumerate(source.splitlines())
            if _STATISTIC.search(line)
        ]
        counting = [
            place for place, line in lines if not re.search(told, line) or re.search(r"shape|size\(|len\(", line)
        ]
        return next(iter([*counting, *(place for place, _ in lines)]), None) or self.line_of(told)


def _near(one: list[Tensor], other: list[Tensor]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(torch.allclose(a, b, rtol=1e-6, atol=1e-6 * float(a.abs().max())) for a, b in pairs)
