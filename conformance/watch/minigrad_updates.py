"""Taps on what changes minigrad's parameters, and on the files that it writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

import minigrad.autograd
import minigrad.io
from conformance.watch.ending import equal_values
from conformance.watch.events import Backward, Save, Schedule, Step
from conformance.watch.rules import LARGEST, Change, History, rule_of
from conformance.watch.targets import Array
from conformance.watch.updates import ROUNDING, Updates, rate_of, rates_of
from conformance.watch.watcher import Seen, Watcher, classes_with
from minigrad import Tensor, nn
from minigrad.optim import LRScheduler, Optimizer
from minigrad.random import default_generator


def values(tensor: Tensor) -> Array:
    """The values of a tensor; half precision as float32, which holds them."""
    found = np.asarray(tensor.detach().cpu())
    return found.astype(np.float32) if tensor.is_floating_point() and found.dtype.itemsize < 4 else found


def tensors(value: Any, depth: int = 3) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif depth and isinstance(value, (list, tuple, Mapping)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from tensors(item, depth - 1)


class Before(NamedTuple):
    """A parameter with a gradient before a step: its values, its gradient and its group's settings, copied."""

    parameter: Tensor
    value: Array
    gradient: Array
    group: Mapping[str, Any]

    def change(self) -> Change:
        after, before, gradient = (x.astype(np.float64) for x in (values(self.parameter), self.value, self.gradient))
        return Change(id(self.parameter), after, before, gradient, self.group)


class Optimization(Updates):
    """Backward passes, clearing, clipping, optimizers and schedules. stepping: the optimizers that stepped."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self.stepping: list[Optimizer] = []
        watcher.around(minigrad.autograd, "backward_from", self.backward)
        watcher.around(nn.Module, "zero_grad", self.clear_module)
        watcher.around(Optimizer, "zero_grad", self.clear_optimizer)
        watcher.around(nn.utils, "clip_grad_norm_", self.clip_norm)
        watcher.around(nn.utils, "clip_grad_value_", self.clip_value)
        watcher.around(Optimizer, "__init__", self.make_optimizer)
        for cls in classes_with("step", Optimizer):
            watcher.around(cls, "step", self.step)
        watcher.around(LRScheduler, "__init__", self.begin_scheduler)
        for cls in classes_with("step", LRScheduler):
            watcher.around(cls, "step", self.step_scheduler)

    def backward(self, original: Any, roots: list[Tensor], *rest: Any) -> None:
        watcher = self.watcher
        event = watcher.add(Backward(value=float(values(roots[0]).sum())))
        held = {number: _mark(watcher.parameters[number].grad) for numbers in self.spent.values() for number in numbers}
        original(roots, *rest)
        added = {number for number, mark in held.items() if mark != _mark(watcher.parameters[number].grad)}
        event.stale = tuple(sorted(number for number in added if held[number] is not None))
        watcher.seen = Seen()

    def step(self, original: Any, optimizer: Optimizer, *rest: Any, **keywords: Any) -> Any:
        watcher, number = self.watcher, self.known(optimizer)
        if all(optimizer is not one for one in self.stepping):
            self.stepping.append(optimizer)
        if not self.began:
            self.began.add(number)
            equal_values(watcher, lambda first, second: np.array_equal(values(first), values(second)))
        began, is_close = len(watcher.run.events), watcher.is_close
        before = [
            Before(p, values(p).copy(), values(p.grad).copy(), {**group, "lr": rate_of(group)})
            for group in optimizer.param_groups
            for p in group["params"]
            if is_close and p.grad is not None
        ]
        result = original(optimizer, *rest, **keywords)
        event = Step(optimizer=number, rates=rates_of(optimizer), began=began, closely=is_close)
        event.missing = self.missing(optimizer)
        history = self.histories.setdefault(number, History())
        if is_close:
            with watcher.looking():
                self._look(event, before, history)
        else:
            history.is_whole = False
        watcher.add(event)
        self.spend(number, optimizer)
        watcher.stepped()
        return result

    def _look(self, event: Step, before: Sequence[Before], history: History) -> None:
        number = self.watcher.parameter
        norms = {number(one.parameter): float(np.linalg.norm(one.gradient.astype(np.float64))) for one in before}
        event.zero = frozenset(n for n, norm in norms.items() if norm == 0)
        event.infinite = frozenset(n for n, norm in norms.items() if not np.isfinite(norm))
        event.norms = norms
        event.norm = sum(norm**2 for norm in norms.values()) ** 0.5
        still = (number(one.parameter) for one in before if np.array_equal(values(one.parameter), one.value))
        event.still = frozenset(n for n in still if norms[n] > ROUNDING * event.norm)
        event.rule = rule_of([one.change() for one in before if 1 < one.value.size <= LARGEST], history)

    def begin_scheduler(self, original: Any, scheduler: LRScheduler, *rest: Any, **keywords: Any) -> None:
        original(scheduler, *rest, **keywords)
        self.make_scheduler(scheduler, [getattr(scheduler, "lr_lambda", None)])

    def step_scheduler(self, original: Any, scheduler: LRScheduler) -> None:
        original(scheduler)
        self.watcher.add(
            Schedule(
                scheduler=self.watcher.number("scheduler", scheduler),
                optimizer=self.known(scheduler.optimizer),
                kind=type(scheduler).__name__,
                rates=rates_of(scheduler.optimizer),
                count=scheduler.last_epoch,
            )
        )


def _mark(gradient: Tensor | None) -> tuple[int, int] | None:
    """What differs when something was added to a gradient that is not zero."""
    if gradient is None or not values(gradient).any():
        return None
    return id(gradient), gradient.storage.version


class Files:
    """What of a run is in a file that is saved: told by its memory, not by names."""

    def __init__(self, watcher: Watcher, optimization: Optimization) -> None:
        self.watcher, self.optimization = watcher, optimization
        watcher.around(minigrad.io, "save_file", self.save)

    def save(self, original: Any, saved: Mapping[str, Any], path: Any, metadata: Any = None, *rest: Any) -> Any:
        result = original(saved, path, metadata, *rest)
        with self.watcher.looking():
            self.watcher.add(Save(holds=frozenset(self._holds(saved, metadata or {}))))
        return result

    def _holds(self, saved: Mapping[str, Any], metadata: Mapping[str, str]) -> Iterator[str]:
        run, kept = self.watcher.run, [values(one) for one in saved.values() if isinstance(one, Tensor)]
        own = [values(one) for one in self.watcher.parameters.values() if isinstance(one, Tensor)]
        if _share(kept, own):
            yield "model"
        if any(np.array_equal(one, values(default_generator.get_state())) for one in kept if one.dtype == np.int64):
            yield "random state"
        states = [values(x) for o in self.optimization.stepping for one in o.state.values() for x in one.values()]
        if _share(kept, states):
            yield "optimizer"
        schedules = run.of(Schedule)
        numbers = {value for text in metadata.values() for value in _numbers(text)}
        if schedules and schedules[-1].count in numbers:
            yield "scheduler"


def _share(some: Sequence[Array], others: Sequence[Array]) -> bool:
    """Whether an array of some lies where one of the others does."""
    places = {one.ctypes.data for one in others if one.size}
    return any(one.ctypes.data in places for one in some if one.size)


def _numbers(text: str) -> Iterator[int]:
    """The whole numbers of a JSON object."""
    try:
        found = json.loads(text)
    except ValueError:
        return
    if isinstance(found, dict):
        yield from (value for value in found.values() if type(value) is int)
