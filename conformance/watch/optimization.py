"""Taps on what changes parameters: backward passes, clearing, clipping, optimizers, schedulers, gradient scalers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from conformance.watch.ending import equal_values
from conformance.watch.lines import At
from conformance.watch.losses import array
from conformance.watch.record import Backward, Clear, Clip, Group, Schedule, Step, Unscale
from conformance.watch.resuming import moment
from conformance.watch.rules import LARGEST, Change, History, rule_of
from conformance.watch.watcher import Seen, Watcher, classes_with, stack


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
        watcher.around(cls, "__init__", taps.make_scheduler)
    for cls in classes_with("step", LRScheduler):
        watcher.around(cls, "step", taps.step_scheduler)
    scaler = torch.amp.GradScaler
    for name in ("scale", "unscale_", "step"):
        watcher.around(scaler, name, getattr(taps, f"scaler_{name.rstrip('_')}"))


class _Optimization:
    """What the taps share. spent: the parameters whose gradients a step has used and nobody has cleared, by optimizer.
    scaled: losses that a scaler made. nested: how deep in a scheduler we are; making: whether one is being made."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.spent: dict[int, set[int]] = {}
        self.scaled: WeakSet[Tensor] = WeakSet()
        self.before: dict[int, Before] = {}
        self.histories: dict[int, History] = {}
        self.starts: dict[int, int] = {}
        self.began = False
        self.nested, self.in_scaler, self.scaling = 0, False, False
        self.unscaled: set[int] = set()
        self.made: dict[int, tuple[At, ...]] = {}
        self.in_backward = False

    # --- gradients --------------------------------------------------------------------------------

    def backward(self, original: Any, tensors: Any, *rest: Any, **keywords: Any) -> Any:
        if self.in_backward:
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
        self.in_backward = True
        self.watcher.learned_loader = self.watcher.loader
        try:
            return original(tensors, *rest, **keywords)
        finally:
            self.in_backward = False
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

    def clear_module(self, original: Any, module: nn.Module, *rest: Any, **keywords: Any) -> None:
        original(module, *rest, **keywords)
        self._cleared(module.parameters())

    def clear_optimizer(self, original: Any, optimizer: Optimizer, *rest: Any, **keywords: Any) -> None:
        original(optimizer, *rest, **keywords)
        self._cleared(_parameters(optimizer))

    def _cleared(self, parameters: Iterable[Tensor]) -> None:
        numbers = frozenset(map(self.watcher.parameter, parameters))
        for spent in self.spent.values():
            spent -= numbers
        self.watcher.add(Clear(parameters=numbers))

    def clip_norm(self, original: Any, parameters: Any, max_norm: float, *rest: Any, **keywords: Any) -> Any:
        given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        result = original(given, max_norm, *rest, **keywords)
        self._clipped(given, float(max_norm), "norm", float(result))
        return result

    def clip_value(self, original: Any, parameters: Any, clip_value: float, *rest: Any, **keywords: Any) -> Any:
        given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        result = original(given, clip_value, *rest, **keywords)
        self._clipped(given, float(clip_value), "value", 0.0)
        return result

    def _clipped(self, given: Sequence[Tensor], limit: float, by: str, norm: float) -> None:
        numbers = frozenset(map(self.watcher.parameter, given))
        held = sum(parameter.grad is not None for parameter in given)
        self.watcher.add(Clip(limit=limit, by=by, parameters=numbers, norm=norm, gradients=held))

    # --- optimizers -------------------------------------------------------------------------------

    def make_optimizer(self, original: Any, optimizer: Optimizer, *rest: Any, **keywords: Any) -> None:
        original(optimizer, *rest, **keywords)
        self.made[self.watcher.number("optimizer", optimizer)] = stack(optimizer)

    def before_step(self, optimizer: Optimizer, *_: Any) -> None:
        if self.watcher.is_blind() or wrapped(optimizer) is not optimizer:
            return
        number = self._known(optimizer)
        if not self.began:
            self.began = True
            with torch.no_grad():
                equal_values(self.watcher, _are_copies)
        self.starts[number] = len(self.watcher.run.events)
        if self.watcher.keeps_moments:
            with self.watcher.looking():
                self.watcher.run.moments.append(moment(self.watcher, optimizer, _rates(optimizer)))
        if self.watcher.is_close:
            with self.watcher.looking():
                self.before[number] = Before(optimizer)

    def after_step(self, optimizer: Optimizer, *_: Any) -> None:
        watcher = self.watcher
        if watcher.is_blind() or wrapped(optimizer) is not optimizer:
            return
        number = self._known(optimizer)
        began = self.starts.get(number, len(watcher.run.events))
        step = Step(optimizer=number, rates=_rates(optimizer), began=began, scaler=self.in_scaler)
        with watcher.looking():
            self._look(optimizer, number, step)
        watcher.add(step)
        self.unscaled.discard(number)
        held = {watcher.parameter(p) for p in _parameters(optimizer) if p.grad is not None}
        self.spent[number] = held
        watcher.stepped()

    def _look(self, optimizer: Optimizer, number: int, step: Step) -> None:
        watcher, before = self.watcher, self.before.pop(number, None)
        parameters = {watcher.parameter(p): p for p in _parameters(optimizer)}
        gradients = {number: p.grad for number, p in parameters.items() if p.grad is not None}
        step.missing = frozenset(n for n, p in parameters.items() if p.grad is None and p.requires_grad)
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
            watcher.parameter(p) for p, has in moved if not has and norms.get(watcher.parameter(p), 0.0) > 0
        )
        step.scaled = self.scaling and number not in self.unscaled and not self.in_scaler
        if not type(optimizer).__module__.startswith("torch."):
            step.rule = rule_of(before.changes(), history)

    def _known(self, optimizer: Optimizer) -> int:
        optimizer = wrapped(optimizer)
        number = self.watcher.number("optimizer", optimizer)
        if number not in self.watcher.run.optimizers:
            self.watcher.look_closely()
            groups = tuple(tuple(map(self.watcher.parameter, group["params"])) for group in optimizer.param_groups)
            settings = tuple(
                {k: v for k, v in group.items() if isinstance(v, (bool, int, float, str))}
                for group in optimizer.param_groups
            )
            made = self.made.get(number) or stack()
            line = made[0].place if made else ""
            cls = type(optimizer)
            self.watcher.run.optimizers[number] = Group(cls.__name__, line, groups, settings, cls, made)
        return number

    # --- schedulers -------------------------------------------------------------------------------

    def make_scheduler(self, original: Any, scheduler: LRScheduler, *rest: Any, **keywords: Any) -> None:
        self.nested += 1
        try:
            original(scheduler, *rest, **keywords)
        finally:
            self.nested -= 1
        number = self.watcher.number("scheduler", scheduler)
        made = stack(scheduler)
        self.watcher.run.schedulers.setdefault(number, made[0].place if made else "")
        functions = [getattr(one, "__code__", None) for one in getattr(scheduler, "lr_lambdas", [])]
        self.watcher.run.rate_functions[number] = [code for code in functions if code is not None]

    def step_scheduler(self, original: Any, scheduler: LRScheduler, *rest: Any, **keywords: Any) -> Any:
        self.nested += 1
        try:
            result = original(scheduler, *rest, **keywords)
        finally:
            self.nested -= 1
        optimizer = getattr(scheduler, "optimizer", None)
        if not self.nested and isinstance(optimizer, Optimizer):
            self.watcher.add(
                Schedule(
                    scheduler=self.watcher.number("scheduler", scheduler),
                    optimizer=self._known(optimizer),
                    kind=type(scheduler).__name__,
                    rates=_rates(optimizer),
                    count=int(getattr(scheduler, "last_epoch", 0)),
                )
            )
        return result

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
            number = self._known(optimizer)
            self.unscaled.add(number)
            if not self.in_scaler:
                self.watcher.add(Unscale(optimizer=number))

    def scaler_step(self, original: Any, scaler: Any, optimizer: Optimizer, *rest: Any, **keywords: Any) -> Any:
        self.in_scaler = scaler.is_enabled()
        try:
            return original(scaler, optimizer, *rest, **keywords)
        finally:
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


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _rates(optimizer: Optimizer) -> tuple[float, ...]:
    return tuple(float(group.get("lr", 0.0)) for group in optimizer.param_groups)
