"""Forecasters: models that read series and answer with what comes next, in the same channels.

seen = subject.forecast()                # raises NotProvided for all other models
seen.answer(x)                           # (B, H, C), or (B, H) for one series a row
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from conformance.adapters.inference.calls import tensors_in
from conformance.adapters.torch_subject import to_array
from conformance.adapters.whole.calling import default_dtype, loss_in, quiet_evaluation
from conformance.adapters.whole.copying import copied, in_dtype
from conformance.adapters.whole.flow import RESHAPES
from conformance.adapters.whole.losses import LossProbes, loss_candidates
from conformance.adapters.whole.place_probes import PlaceProbes
from conformance.adapters.whole.record import Op, record
from conformance.adapters.whole.used_functions import line_in
from conformance.protocol import Array, NotProvided

_FORECASTS = re.compile(r"(?i)forecast|horizon|pred_?len|time[_ -]?series|multivariate|out_?len")
_CHANNELS = re.compile(
    r"(?i)channel|vari?a|feat|series|(enc|dec|c)_(in|out)$|(in|out)(put)?_?(dim|size)|n_?dims?$|nvars"
)
_CONTEXT = re.compile(r"(?i)(context|seq|input|in|look_?back|history|window)(_?(len(gth)?|size|steps|window))?")
_LEVELS = re.compile(r"(?i)_?(quantiles?|taus|(quantile_?)?levels|q(uantile)?s)")
_ROLLS = re.compile(r"(?i)^(roll_?out|forecast|predict|extend|unroll|extrapolate|autoregress\w*)$")
_FUTURE = re.compile(r"(?i)(future|targets?|y|tgt|labels?|dec(oder)?_(in(put)?|target))(_(values?|series|y))?")
_FEWEST_STEPS = 4
_READS_ALL = r"(?i)\bkl\b|vae|posterior|diffus|denois|\bnoise|reconstruct|auto_?encod"
"""What is said of models that read what they learn to make: of codes behind it, and of noise that is taken away."""
_FAR = 1e4
"""A forecast so high lies above all points, also of a series that is normalised."""
_STEPS = re.compile(r"(?i)(n_?|num_?)?(steps?|horizon|length|len|ahead|pred_?len|n)(_ahead)?")


@dataclass(frozen=True)
class Forecaster:
    """One forecaster. channels: the axis of its input and its answer, None for one series a row. steps: the axis of
    time of both. shape: of the input without the batch."""

    subject: PlaceProbes
    shape: tuple[int, ...]
    channels: int | None
    steps: int

    def data(self, seed: int = 0, rows: int = 2) -> Array:
        return np.random.default_rng(seed).standard_normal((rows, *self.shape))

    def answer(self, x: Array, module: nn.Module | None = None) -> Array:
        """The forecasts of a module, by default the model's own, as they are."""
        subject = self.subject
        with quiet_evaluation(module or subject.module), default_dtype(subject.torch_dtype):
            given = subject.calling.arguments(subject.tensors({"x": x}))
            return to_array(_answer(self.subject, (module or subject.module)(**given)).double())

    @property
    def count(self) -> int:
        """How many channels there are."""
        return 1 if self.channels is None else self.shape[self.channels - 1]

    def relabelled(self, order: Array) -> nn.Module | None:
        """A copy whose channels are numbered in another order: every axis of its parameters and buffers that is one of
        channels is put into it. None where these axes are not known, or one has channels and something else."""
        copy, wider = self.subject.twin().module, self._wider()
        if wider is None:
            return None
        with torch.no_grad():
            for name, one in [*copy.named_parameters(), *copy.named_buffers()]:
                other, moved = wider.get(name), one.detach().clone()
                if other is None or other.dim() != one.dim():
                    return None
                for axis, size in enumerate(one.shape):
                    if other.shape[axis] == size:
                        continue
                    if size != self.count:
                        return None
                    moved = moved.index_select(axis, torch.tensor(order))
                one.copy_(moved)
        return copy

    def _wider(self) -> dict[str, Tensor] | None:
        """The parameters and buffers of the model made for more channels, or its own where it takes any number; None
        where neither is possible."""
        subject, more = self.subject, self.count + 2
        values = {p.name: p.default for p in inspect.signature(type(subject.module)).parameters.values()}
        values |= subject.made.options
        for config in list(values.values()):
            values |= vars(config) if is_dataclass(config) and not isinstance(config, type) else {}
        names = [n for n, v in values.items() if type(v) is int and v == self.count and _CHANNELS.search(n)]
        shape = tuple(more if axis == (self.channels or 0) - 1 else size for axis, size in enumerate(self.shape))
        with suppress(Exception):
            other = subject.made.otherwise(dict.fromkeys(names, more)) if names else subject.module
            wide = replace(self, shape=shape)
            wide.answer(wide.data(), in_dtype(copied(other), subject.torch_dtype))
            return {**dict(other.named_parameters()), **dict(other.named_buffers())}
        return None

    def reshaped_at(self) -> str:
        """file:line of the first reshape that cuts axes anew, where each new one holds parts of several; "" for none.
        A permute was meant there, or one before it."""
        subject = self.subject
        with subject.mode(False), torch.no_grad():
            run = record(subject.module, lambda: subject.run({"x": self.data()}))
        found = (op for op in run.ops if op.name in RESHAPES and run.computed(op.outputs[0]) and _cuts_anew(op))
        return next((str(op.place) for op in found if op.place is not None), "")


@dataclass(frozen=True)
class Levels:
    """said: the levels of its quantiles, as the model keeps them. taught: of each, which share of the errors its loss
    wants to lie below."""

    name: str
    place: str
    said: tuple[float, ...]
    taught: tuple[float, ...]


class ForecastProbes(LossProbes):
    """The experiments with forecasters, of a running model."""

    def levels(self) -> list[Levels]:
        """Which levels its losses teach its quantiles. Raises NotProvided."""
        found = []
        for name, function, _ in loss_candidates(self):
            with suppress(Exception):  # it asks for what nothing here shows
                wanted = list(inspect.signature(function).parameters.values())[1:]
                needed = [one.name for one in wanted if one.default is one.empty]
                series, *others = self.calling.arguments(self.tensors(self.example(2, seed=93))).items()
                known = {needed[0]: series[1], **dict(others)}
                futures = [one for one in needed if one not in known]
                if len(futures) == 1:
                    known = {one: value for one, value in known.items() if one in needed}
                    said, taught = self._taught(partial(function, **known), futures[0])
                    found.append(Levels(name, line_in(function, r"max(imum)?\(|where\(", r"def "), said, taught))
        if not found:
            raise NotProvided("it has no loss of quantiles that could be run")
        return found

    def _taught(self, loss: Callable[..., Any], future_name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The levels that the model keeps, and those that a loss of series and their future teaches: of forecasts below
        all points it has the slope -level, and above all 1 - level."""
        module = self.twin().module
        given = self.calling.arguments(self.tensors(self.example(2, seed=93)))
        with torch.no_grad(), self.mode(False), default_dtype(self.torch_dtype):
            result = module(**given)
            answer, *rest = tensors_in(result)
        for said in _said_levels(module):
            for axis in range(answer.dim() - 1, 0, -1):
                if answer.shape[axis] != len(said):
                    continue
                future = torch.zeros_like(answer.select(axis, 0))
                slopes = []
                for height in (-_FAR, _FAR):
                    forecast = torch.full_like(answer, height).requires_grad_()
                    other = (forecast, *rest) if isinstance(result, tuple) else forecast
                    vars(module)["forward"] = lambda *_, other=other, **__: other
                    with torch.enable_grad(), default_dtype(self.torch_dtype):
                        value = loss_in(loss(module, **{future_name: future}))
                    (slope,) = torch.autograd.grad(value, forecast)
                    slopes.append(slope.movedim(axis, -1).flatten(0, -2).double())
                shares = -slopes[0] / (slopes[1] - slopes[0])
                if bool((shares - shares[:1]).abs().max() < 1e-5):
                    return said, tuple(shares[0].tolist())
        raise NotProvided("its loss is none of quantiles")

    def forecast(self) -> Forecaster:
        """How it forecasts. Raises NotProvided where it reads no series, or gives no numbers of the same channels."""
        one = self.calling.main
        if self.calling.two_sided or not one.shape or len(one.shape) > 2 or not self.calling.batch_first:
            raise NotProvided("it reads no series")
        if not self.line_of(_FORECASTS.pattern) and not _FORECASTS.search(type(self.module).__name__):
            raise NotProvided("nothing says that it forecasts")
        if not any(parameter.dim() > 1 for parameter in self.module.parameters()):
            raise NotProvided("it has no map, and is part of what forecasts")
        for length in [*self._said_lengths(), one.length or 32]:
            shape = tuple(length if size is None else size for size in one.shape)
            with suppress(Exception), quiet_evaluation(self.module):
                result = self.run({"x": np.random.default_rng(0).standard_normal((2, *shape))})["result"]
                break
        else:
            raise NotProvided("how many steps it reads is not known")
        answer = _answer(self, result)
        if answer.dim() != len(shape) + 1 or len(answer) != 2:
            raise NotProvided("it answers with no series")
        if len(shape) == 1:
            return Forecaster(self, shape, None, 1)
        same = [axis for axis in (1, 2) if shape[axis - 1] == answer.shape[axis]]
        said = [axis for axis in same if shape[axis - 1] < shape[2 - axis] or len(same) == 1]
        if len(said) != 1 or shape[said[0] - 1] < 2:
            raise NotProvided("which axis of its input holds the channels is not known")
        return Forecaster(self, shape, said[0], 3 - said[0])

    def put_back(self) -> list[tuple[str, str, bool]]:
        """Methods that put forecasts back into the units of a series, which forward gives for a normalised one: name,
        line, and whether they are those of a series that is scaled and moved. Raises NotProvided where forward's are
        not normalised, or no such method could be run."""
        one, twin = self.calling.main, self.twin()
        if len(self.calling.inputs) > 1 or one.meaning != "x" or one.vocab:
            raise NotProvided("it reads no series")
        steps = None if one.length else min(16, self.longest or 16)
        x = twin.tensors(twin.example(2, steps, seed=96))["x"] * 1e3
        with twin.mode(False), torch.no_grad(), default_dtype(self.torch_dtype):
            given = [twin.calling.arguments({"x": series, "pad_id": 0}) for series in (x, 3 * x + 500)]
            plain = [next(t for t in tensors_in(twin.module(**said)) if t.is_floating_point()) for said in given]
            found = []
            for name, function in inspect.getmembers(type(self.module), inspect.isfunction):
                wanted = list(inspect.signature(function).parameters.values())[1:]
                needed = [p.name for p in wanted if p.default is p.empty]
                if _ROLLS.search(name) and needed[:1] == [one.parameter] and {*needed} <= given[0].keys():
                    with suppress(Exception):  # it wants more
                        calls = [{n: v for n, v in arguments.items() if n in needed} for arguments in given]
                        base, moved = (next(iter(tensors_in(function(twin.module, **c)))) for c in calls)
                        if not _alike(base, moved):
                            found.append(
                                (name, line_in(function, r"\*.*\+|\+.*\*", r"def "), _alike(3 * base + 500, moved))
                            )
        if not found or not _alike(*plain):
            raise NotProvided("no method of its puts the forecasts of forward back into the units of the series")
        return found

    def values_ahead(self) -> tuple[str, str, bool]:
        """What forward is given of the future and its loss compares forecasts with: its name, a line that reads it, and
        whether the forecast of a step depends on its own value or a later one. Raises NotProvided where there is no
        such input, or no forecast depends on it."""
        if self.line_of(_READS_ALL):
            raise NotProvided("it may read the whole future to learn what is behind it")
        twin = self.twin()
        with quiet_evaluation(twin.module), default_dtype(self.torch_dtype), torch.enable_grad():
            given = twin.calling.arguments(twin.tensors(twin.example(2, seed=95)))
            for name, value in given.items():
                is_series = isinstance(value, Tensor) and value.dim() == 3 and value.shape[1] >= _FEWEST_STEPS
                if not _FUTURE.fullmatch(name) or not is_series:
                    continue
                future = torch.randn(value.shape, generator=torch.Generator().manual_seed(94), dtype=self.torch_dtype)
                try:
                    result = twin.module(**{**given, name: future.requires_grad_()})
                except Exception:  # it takes whole numbers
                    continue
                loss, steps = loss_in(result), future.shape[1]
                answers = [t for t in tensors_in(result) if t.is_floating_point() and t.dim() > 2]
                forecast = next((t for t in answers if t.shape[:2] == (len(future), steps) and t.requires_grad), None)
                if loss is None or forecast is None or not loss.requires_grad:
                    continue
                step = forecast[:, steps // 2].sum()
                (read,) = torch.autograd.grad(step, future, retain_graph=True, allow_unused=True)
                (compared,) = torch.autograd.grad(loss, future, allow_unused=True)
                if read is not None and read.any() and compared is not None and compared.any():
                    line = self.line_of(rf"\bcat\(.*\b{name}\b") or self.line_of(rf"= .*\b{name}\b")
                    return name, line, bool(read[:, steps // 2 :].any())
        raise NotProvided("it is given no future that its loss compares forecasts with")

    def _said_lengths(self) -> list[int]:
        """How many steps it reads, as it calls that itself."""
        return [v for n, v in vars(self.module).items() if _CONTEXT.fullmatch(n) and type(v) is int and v > 1]

    def rollouts(self) -> Iterator[tuple[str, str, Callable[[Array, int], Array]]]:
        """Its methods that forecast as many steps as are asked for: name, line, and the forecasts of series."""
        for name, function in inspect.getmembers(type(self.module), inspect.isfunction):
            names = list(inspect.signature(function).parameters.values())[1:]
            needed = [one.name for one in names if one.default is one.empty]
            steps = next((one.name for one in names[1:] if _STEPS.fullmatch(one.name)), "")
            if not _ROLLS.search(name) or not steps or not {*needed} <= {names[0].name, steps}:
                continue

            def rolled(x: Array, count: int, function: Any = function, steps: str = steps) -> Array:
                twin = self.twin()
                with quiet_evaluation(twin.module), default_dtype(twin.torch_dtype):
                    made = function(twin.module, twin.tensors({"x": x})["x"], **{steps: count})
                return to_array(next(iter(tensors_in(made))).double())

            axes = 0
            with suppress(Exception):
                axes = rolled(np.zeros((2, *self.forecast().shape)), 2).ndim
            if axes < 4:  # quantiles may be put in order, and are no forecasts of forward then
                yield name, self.line_of(rf"def {name}\b"), rolled


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-4, atol=1e-4 * float(one.abs().max()))


def _answer(subject: PlaceProbes, result: Any) -> Tensor:
    """The first tensor of numbers of the result that has as many of them as the answer."""
    found = [one for one in tensors_in(result) if one.is_floating_point() and one.dim() > 1]
    if not found:
        raise NotProvided("it answers with no series")
    answer = found[min(subject.calling.answer_at, len(found) - 1)]
    return answer[..., answer.shape[-1] // 2] if _has_quantiles(subject, answer) else answer


def _has_quantiles(subject: PlaceProbes, answer: Tensor) -> bool:
    """Whether each number of a forecast of channels stands for several quantiles, which are the last axis."""
    return answer.dim() == 4 and answer.shape[-1] < 16 and bool(subject.line_of(r"(?i)quantile"))


def _said_levels(module: nn.Module) -> Iterator[tuple[float, ...]]:
    """What a module or its settings call the levels of its quantiles."""
    held = dict(module.named_buffers()) | vars(module)
    for config in [one for one in vars(module).values() if is_dataclass(one)]:
        held |= vars(config)
    for name, value in held.items():
        listed = value.tolist() if isinstance(value, Tensor) and value.dim() == 1 else value
        several = _LEVELS.fullmatch(name) and isinstance(listed, list | tuple) and len(listed) > 1
        if several and all(isinstance(one, float) and 0 < one < 1 for one in listed):
            yield tuple(listed)


def _cuts_anew(op: Op) -> bool:
    """Does a reshape neither join nor split whole axes?"""
    before, after = (_ends(shape) for shape in (op.inputs[0].shape, op.outputs[0].shape))
    return not (before <= after or after <= before)


def _ends(shape: tuple[int, ...]) -> set[int]:
    """After how many numbers each axis ends, from the last axis on."""
    ends, count = set(), 1
    for size in reversed(shape):
        count *= size
        ends.add(count)
    return ends
