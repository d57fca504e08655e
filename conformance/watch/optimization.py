"""Taps on what changes parameters: backward passes, clearing, clipping, optimizers, schedulers, gradient scalers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler, SequentialLR
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from conformance.watch.copies import Copies
from conformance.watch.ending import equal_values
from conformance.watch.events import Backward, Schedule, Skip, Step, Unscale
from conformance.watch.followers import Followers
from conformance.watch.losses import array
from conformance.watch.outside import Outside
from conformance.watch.overlooked import overlooked
from conformance.watch.resuming import moment
from conformance.watch.rules import LARGEST, Change, History, rule_of
from conformance.watch.updates import ROUNDING, Updates, parameters_of, rates_of
from conformance.watch.watcher import Seen, Watcher, classes_with


def tap(watcher: Watcher) -> None:
    taps = _Optimization(watcher)
    watcher.on_close(register_optimizer_step_pre_hook(taps.before_step).remove)
    watcher.on_close(register_optimizer_step_post_hook(taps.after_step).remove)
    watcher.around(Tensor, "backward", taps.backward)
    watcher.around(torch.autograd, "backward", taps.backward)
    watcher.around(nn.Module, "zero_grad", taps.clear_module)
    for cls in classes_with("zero_grad", Optimizer):
        watcher.around(cls, "zero_grad", taps.clear_optimizer)
    for owner in (nn.utils, nn.utils.clip_grad):
        watcher.around(owner, "clip_grad_norm_", taps.clip_norm)
        watcher.around(owner, "clip_grad_value_", taps.clip_value)
    watcher.around(Optimizer, "__init__", taps.make_optimizer)
    for cls in classes_with("__init__", LRScheduler):  # one of several (SequentialLR) does not call the base's
        watcher.around(cls, "__init__", taps.begin_scheduler)
    for cls in classes_with("step", LRScheduler):
        watcher.around(cls, "step", taps.step_scheduler)
    scaler = torch.amp.GradScaler
    for name in ("scale", "unscale_", "step"):
        watcher.around(scaler, name, getattr(taps, f"scaler_{name.rstrip('_')}"))


class _Optimization(Updates):
    """The taps. given: the rate that each optimizer was made with. before: an optimizer before its step. starts: the
    first event in it. unscaled: the optimizers whose gradients have no factor of a scaler any more. scaled: losses
    that a scaler made. nested: how deep in a scheduler we are."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(watcher)
        self.scaled: WeakSet[Tensor] = WeakSet()
        self.before: dict[int, Before] = {}
        self.starts: dict[int, int] = {}
        self.nested, self.in_scaler, self.scaling = 0, False, False
        self.unscaled: set[int] = set()
        self.copies, self.followers, self.outside = Copies(watcher), Followers(watcher), Outside(watcher)
        self.given: dict[int, float] = {}
        watcher.endings.append(lambda: overlooked(watcher, self.given))

    def make_optimizer(self, original: Any, optimizer: Any, *rest: Any, **keywords: Any) -> None:
        super().make_optimizer(original, optimizer, *rest, **keywords)
        self.outside.given.append(optimizer)
        rates = {*rates_of(optimizer)}
        if len(rates) == 1:
            self.given[self.watcher.number("optimizer", optimizer)] = rates.pop()

    # --- gradients --------------------------------------------------------------------------------

    def backward(self, original: Any, tensors: Any, *rest: Any, **keywords: Any) -> Any:
        if self.watcher.in_backward:
            return original(tensors, *rest, **keywords)
        first = tensors if isinstance(tensors, Tensor) else next(iter(tensors))
        value, stale = float("nan"), dict[int, tuple[int, int]]()
        with self.watcher.looking():
            value = float(first.detach().float().sum()) if isinstance(first, Tensor) else 0.0
            stale = {number: self._mark(number) for number in self._stale()}
        scaled = any(first is one for one in self.scaled)
        event = self.watcher.add(
            Backward(
                value=value,
                scaled=scaled,
                factor=self.watcher.scale if scaled else 1.0,
                autocast=torch.is_autocast_enabled("cpu"),
            )
        )
        self.watcher.in_backward = True
        self.watcher.learned_loader = self.watcher.loader
        try:
            return original(tensors, *rest, **keywords)
        finally:
            self.watcher.in_backward = False
            self.watcher.seen, self.watcher.direct = Seen(), None
            event.stale = tuple(sorted(number for number, mark in stale.items() if mark != self._mark(number)))

    def _mark(self, number: int) -> tuple[int, int]:
        """What differs when a pass has added to a gradient."""
        gradient = self.watcher.parameters[number].grad
        return id(gradient), gradient._version

    def _stale(self) -> set[int]:
        """The parameters that still hold a gradient that a step has used."""
        stale: set[int] = set()
        for numbers in self.spent.values():
            for number in [*numbers]:
                gradient = self.watcher.parameters[number].grad
                if gradient is None or not bool(gradient.any()):
                    numbers.discard(number)
            stale |= numbers
        return stale

    # --- optimizers -------------------------------------------------------------------------------

    def before_step(self, optimizer: Optimizer, *_: Any) -> None:
        if self.watcher.is_blind() or wrapped(optimizer) is not optimizer:
            return
        number = self.known(optimizer)
        if number not in self.began:
            with self.watcher.looking():
                if not self.began:
                    equal_values(self.watcher, _are_copies)
                self.copies.begin(optimizer)
            self.began.add(number)
        with self.watcher.looking():
            self.copies.look()
            self.followers.look(optimizer)
        self.starts[number] = len(self.watcher.run.events)
        if self.watcher.keeps_moments:
            with self.watcher.looking():
                self.watcher.run.moments.append(moment(self.watcher, optimizer, rates_of(optimizer)))
        if self.watcher.is_close:
            with self.watcher.looking():
                self.before[number] = Before(optimizer)
                self.outside.look(optimizer)

    def after_step(self, optimizer: Optimizer, *_: Any) -> None:
        watcher = self.watcher
        if watcher.is_blind() or wrapped(optimizer) is not optimizer:
            return
        number = self.known(wrapped(optimizer))
        began = self.starts.get(number, len(watcher.run.events))
        step = Step(optimizer=number, rates=rates_of(optimizer), began=began, scaler=self.in_scaler)
        with watcher.looking():
            self._look(optimizer, number, step)
            self.copies.stepped()
        watcher.add(step)
        self.unscaled.discard(number)
        self.spend(number, optimizer)
        watcher.stepped()

    def _look(self, optimizer: Optimizer, number: int, step: Step) -> None:
        watcher, before = self.watcher, self.before.pop(number, None)
        parameters = {watcher.parameter(p): p for p in parameters_of(optimizer)}
        gradients = {number: p.grad for number, p in parameters.items() if p.grad is not None}
        step.missing = self.missing(optimizer)
        history = self.histories.setdefault(number, History())
        if before is None:
            history.is_whole = False
            return
        step.closely = True
        dense = {number: g.coalesce().values() if g.is_sparse else g for number, g in gradients.items()}
        norms = {number: float(g.float().norm()) for number, g in dense.items()}
        step.zero = frozenset(number for number, norm in norms.items() if norm == 0)
        step.infinite = frozenset(n for n, norm in norms.items() if not norm < float("inf"))
        step.norms = norms
        step.norm = sum(norm**2 for norm in norms.values()) ** 0.5
        moved = before.moved()
        step.still = frozenset(
            n for p, has in moved if not has and norms.get(n := watcher.parameter(p), 0.0) > ROUNDING * step.norm
        )
        step.scaled = self.scaling and number not in self.unscaled and not self.in_scaler
        if not type(optimizer).__module__.startswith("torch."):
            step.rule = rule_of(before.changes(), history)

    # --- schedulers -------------------------------------------------------------------------------

    def begin_scheduler(self, original: Any, scheduler: LRScheduler, *rest: Any, **keywords: Any) -> None:
        self.nested += 1
        try:
            original(scheduler, *rest, **keywords)
        finally:
            self.nested -= 1
        self.make_scheduler(scheduler, getattr(scheduler, "lr_lambdas", []))

    def step_scheduler(self, original: Any, scheduler: LRScheduler, *rest: Any, **keywords: Any) -> Any:
        self.nested += 1
        try:
            result = original(scheduler, *rest, **keywords)
        finally:
            self.nested -= 1
        if not self.nested and isinstance(getattr(scheduler, "optimizer", None), Optimizer):
            event = self.watcher.add(self._schedule(scheduler))
            if isinstance(scheduler, SequentialLR):
                at = bisect_right(scheduler._milestones, scheduler.last_epoch)
                acting = self._schedule(scheduler._schedulers[at])
                event.acting = replace(acting, place=event.place, stack=event.stack, step=event.step, order=event.order)
        return result

    def _schedule(self, scheduler: LRScheduler) -> Schedule:
        optimizer = scheduler.optimizer
        return Schedule(
            scheduler=self.watcher.number("scheduler", scheduler),
            optimizer=self.known(wrapped(optimizer)),
            kind=type(scheduler).__name__,
            rates=rates_of(optimizer),
            count=int(getattr(scheduler, "last_epoch", 0)),
            mode=str(getattr(scheduler, "mode", "")),
            period=int(getattr(scheduler, "T_max", 0) or getattr(scheduler, "total_steps", 0) or 0),
        )

    # --- scalers ----------------------------------------------------------------------------------

    def scaler_scale(self, original: Any, scaler: Any, outputs: Any) -> Any:
        result = original(scaler, outputs)
        if scaler.is_enabled() and isinstance(result, Tensor):
            self.scaled.add(result)
            self.scaling, self.watcher.scale = True, float(scaler.get_scale())
        return result

    def scaler_unscale(self, original: Any, scaler: Any, optimizer: Optimizer) -> None:
        original(scaler, optimizer)
        if scaler.is_enabled():
            number = self.known(wrapped(optimizer))
            self.unscaled.add(number)
            if not self.in_scaler:
                self.watcher.add(Unscale(optimizer=number))

    def scaler_step(self, original: Any, scaler: Any, optimizer: Optimizer, *rest: Any, **keywords: Any) -> Any:
        self.in_scaler = scaler.is_enabled()
        before = self.watcher.run.steps
        try:
            return original(scaler, optimizer, *rest, **keywords)
        finally:
            if self.in_scaler and self.watcher.run.steps == before and not self.watcher.is_blind():
                self.watcher.add(Skip(optimizer=self.known(wrapped(optimizer))))
            self.in_scaler = False


def _are_copies(first: Tensor, second: Tensor) -> bool:
    return first.data_ptr() != second.data_ptr() and torch.equal(first, second)


class Before:
    """Parameters, gradients and settings of an optimizer before a step."""

    def __init__(self, optimizer: Optimizer) -> None:
        self._values = [
            (p, p.detach().clone(), _copied(p.grad), dict(group))
            for group in optimizer.param_groups
            for p in group["params"]
        ]

    def moved(self) -> Iterator[tuple[Tensor, bool]]:
        """Each parameter, and whether it changed."""
        return ((p, not torch.equal(p.detach(), value)) for p, value, _, _ in self._values)

    def changes(self) -> list[Change]:
        """How the small parameters with a gradient changed."""
        return [
            Change(id(p), array(p.double()), array(value.double()), array(gradient.double()), group)
            for p, value, gradient, group in self._values
            if gradient is not None and value.numel() <= LARGEST and value.dim() > 0
        ]


def _copied(gradient: Tensor | None) -> Tensor | None:
    return None if gradient is None or gradient.is_sparse else gradient.detach().clone()


def wrapped(optimizer: Optimizer) -> Optimizer:
    """The optimizer in a wrapper, as accelerate puts around one: it holds the same parameters."""
    inner = getattr(optimizer, "optimizer", None)
    is_wrapper = isinstance(inner, Optimizer) and inner.param_groups is optimizer.param_groups
    return wrapped(inner) if is_wrapper else optimizer
