"""How a model of noise is trained and how it samples: which noise its losses add, and whether the data that its sampler
hands over at each step hold the noise of that step.

A sampler is run with an answer that is right for one known picture. Then what it hands over is that picture and noise,
and how much noise is told exactly.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from conformance.adapters.whole.calling import default_dtype, loss_in
from conformance.adapters.whole.diffusing import TIME, DiffusionProbes, Draws
from conformance.adapters.whole.losses import LossProbes, loss_candidates, partial_of
from conformance.adapters.whole.used_functions import line_in
from conformance.protocol import NotProvided
from conformance.seeds import seed_torch

_SAMPLES = re.compile(
    r"_?((ddim|ddpm|p|reverse)_)?(sampl(e|er|ing)(_loop|_images)?|generate|denoise_loop)|_?(ddim|ddpm)"
)
_STEPS = re.compile(r"((n|num|inference|sampling|ddim|sample)_?)*(time)?steps?")
_COUNT = re.compile(r"n|b|bs|num|batch(_size)?|(n|num)_?(samples|images)|size")
_START = re.compile(r"x_?t|x_?T|noise|z|latents?|x_?init|img")
_SURE = 0.7
"""A cosine above which the slope of a loss points along a target, also where it is the sign of the error."""
ROWS = 4


@dataclass(frozen=True)
class DrawnNoise:
    """What a loss adds to the data. is_normal: whether the numbers are normal, else uniform."""

    name: str
    place: str
    is_normal: bool


@dataclass(frozen=True)
class Sampling:
    """What a sampler handed over. steps: the numbers of the steps; shares: how much noise the data of each held, as a
    multiple of what the model's own method adds at that step."""

    name: str
    place: str
    steps: tuple[int, ...]
    shares: tuple[float, ...]


@dataclass(frozen=True)
class _Lesson:
    """One run of a loss. drawn: the noise; data, noised: what it was given, and what the model was; asked: what the
    answer is pulled towards."""

    name: str
    function: Callable[..., Any]
    drawn: Tensor
    is_normal: bool
    data: Tensor
    asked: Tensor
    factors: tuple[float, float]


class DenoisingProbes(DiffusionProbes, LossProbes):
    """The experiments, of a running model."""

    def drawn_noise(self) -> list[DrawnNoise]:
        """Which noise its losses add to the data. Raises NotProvided."""
        found = [
            DrawnNoise(one.name, line_in(one.function, r"\brand(_like)?\(", r"def "), one.is_normal)
            for one in self._lessons()
        ]
        if not found:
            raise NotProvided("no loss that adds noise to data could be run")
        return found

    def samplings(self) -> list[Sampling]:
        """What its samplers hand over. Raises NotProvided."""
        targets = {_target(one) for one in self._lessons()}
        if len(targets) != 1 or None in targets:
            raise NotProvided("what its answer is, noise or data, is not told by a loss that could be run")
        found = []
        for name, function in inspect.getmembers(type(self.module), inspect.isfunction):
            if _SAMPLES.fullmatch(name) and not function.__module__.startswith("torch"):
                with suppress(Exception):  # it asks for what nothing here shows
                    found.append(self._sampling(name, function, next(iter(targets)) or ""))
        if not found:
            raise NotProvided("no sampler that could be run hands over whole steps")
        return found

    def _lessons(self) -> Iterator[_Lesson]:
        for name, function, method in loss_candidates(self):
            with suppress(Exception):  # it asks for what nothing here shows
                yield self._lesson(name, function, method)

    def _lesson(self, name: str, function: Callable[..., Any], method: bool) -> _Lesson:
        twin = self.twin()
        known = self._known(ROWS)
        parameters = list(inspect.signature(function).parameters.values())[1:]
        data = known[self.calling.main.parameter]
        given = {parameters[0].name: data}
        for one in parameters[1:]:
            if one.name in known:
                given[one.name] = known[one.name]
            elif one.default is one.empty:
                raise NotProvided(f"{name} wants {one.name}")
        noised: list[Tensor] = []
        answer = torch.zeros_like(data).requires_grad_()

        def answered(*args: Any, **kwargs: Any) -> Tensor:
            noised.append(self._bound(args, kwargs)[self.calling.main.parameter])
            return answer

        seed_torch(11)
        with twin.mode(True), default_dtype(data.dtype), torch.enable_grad(), Draws() as draws:
            vars(twin.module)["forward"] = answered
            loss = loss_in(partial_of(function, twin.module, method)(**given))
        if loss is None or len(noised) != 1:
            raise NotProvided(f"{name} does not ask once for the noise")
        (slope,) = torch.autograd.grad(loss, answer)
        for is_normal, all_drawn in ((True, draws.normal), (False, draws.uniform)):
            for drawn in all_drawn:
                factors = _mixed(noised[0], data, drawn) if drawn.shape == data.shape else None
                if factors is not None:
                    return _Lesson(name, function, drawn, is_normal, data, -slope, factors)
        raise NotProvided(f"{name} adds no noise that it draws")

    def _known(self, rows: int) -> dict[str, Any]:
        return self.calling.arguments(self.tensors(self.example(rows, seed=99)))

    def _bound(self, args: Any, kwargs: Any) -> dict[str, Any]:
        """The arguments of a call of forward by their names."""
        return dict(inspect.signature(type(self.module).forward).bind(self.module, *args, **kwargs).arguments)

    def _sampling(self, name: str, function: Callable[..., Any], target: str) -> Sampling:
        twin = self.twin()
        known, main = self._known(ROWS), self.calling.main.parameter
        data = 0.5 * known[main][:1].clamp(-1, 1)
        time = next(one for one in inspect.signature(type(self.module).forward).parameters if TIME.fullmatch(one))
        seen: list[tuple[int, float]] = []

        def answered(*args: Any, **kwargs: Any) -> Tensor:
            bound = self._bound(args, kwargs)
            noised, step = bound[main], int(bound[time].reshape(-1)[0])
            if bound[time].is_floating_point() or noised.shape[1:] != data.shape[1:]:
                raise NotProvided("its steps are no whole numbers")
            of_data, of_noise = self.share_at(step)
            noise = (noised - of_data * data) / of_noise
            seen.append((step, float(noise.square().mean().sqrt())))
            return {"noise": noise, "data": data.expand_as(noise)}.get(target, of_data * noise - of_noise * data)

        seed_torch(12)
        with twin.mode(False), torch.no_grad(), default_dtype(data.dtype), Draws() as draws:
            vars(twin.module)["forward"] = answered
            getattr(twin.module, name)(**_of_sampler(function, known, main))
        steps, shares = zip(*seen, strict=True)
        if len(seen) < 3 or steps[0] <= steps[-1]:
            raise NotProvided(f"{name} does not go down step by step")
        draws_more = sum(one.shape == known[main].shape for one in draws.normal) > 1
        if draws_more and any(step - later != 1 for step, later in pairwise(steps)):
            raise NotProvided(f"{name} leaves out steps, and how much noise it adds then is its own choice")
        return Sampling(name, line_in(function, r"next|prev", r"\bfor ", r"def "), steps, shares)


def _of_sampler(function: Callable[..., Any], known: dict[str, Any], main: str) -> dict[str, Any]:
    """The arguments of a sampler by their names. Raises NotProvided."""
    given: dict[str, Any] = {}
    shape = known[main].shape
    for one in list(inspect.signature(function).parameters.values())[1:]:
        if one.name == main or _START.fullmatch(one.name):
            given[one.name] = torch.randn(shape)
        elif one.name in known:
            given[one.name] = known[one.name]
        elif one.default is not one.empty:
            continue
        elif _STEPS.fullmatch(one.name):
            given[one.name] = 10
        elif _COUNT.fullmatch(one.name):
            given[one.name] = len(known[main])
        elif one.name == "shape":
            given[one.name] = tuple(shape)
        else:
            raise NotProvided(f"it wants {one.name}")
    return given


def _mixed(noised: Tensor, data: Tensor, drawn: Tensor) -> tuple[float, float] | None:
    """By what the data and the noise are multiplied in the first sample; None where it is no mixture of both, or hardly
    holds noise."""
    for row in range(len(data)):
        columns = [one[row].flatten().double() for one in (data, drawn)]
        basis = torch.stack([*columns, torch.ones_like(columns[0])], 1)
        asked = noised[row].flatten().double()
        found = torch.linalg.lstsq(basis, asked[:, None]).solution
        if bool((basis @ found - asked[:, None]).abs().max() > 1e-4):
            return None
        if row == 0:
            first = (float(found[0]), float(found[1]))
    return first if abs(first[1]) > 0.02 else None


def _target(lesson: _Lesson) -> str | None:
    """What the answer is pulled towards in the first sample: "noise", "data", or "velocity" between both."""
    of_data, of_noise = lesson.factors
    data, drawn, asked = (one[0].flatten().double() for one in (lesson.data, lesson.drawn, lesson.asked))
    sides = {"noise": drawn, "data": data, "velocity": of_data * drawn - of_noise * data}
    alike = {name: float(torch.cosine_similarity(side, asked, 0)) for name, side in sides.items()}
    best = max(alike, key=lambda name: alike[name])
    return best if alike[best] > _SURE else None
