"""What the taps on parameters of every library share: clearing, clipping, and which optimizer was made where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from conformance.watch.events import Backward, Clear, Clip
from conformance.watch.lines import At
from conformance.watch.record import Group
from conformance.watch.rules import History
from conformance.watch.watcher import Watcher, stack

ROUNDING = 1e-6
"""A gradient below this share of the norm of all is rounding, as of a bias before a norm over the batch."""


class Updates:
    """The base of a library's taps. spent: the parameters whose gradients a step has used and nobody has cleared, by
    optimizer. histories: what each optimizer did before. made: where each was made. began: those that have stepped."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.spent: dict[int, set[int]] = {}
        self.histories: dict[int, History] = {}
        self.made: dict[int, tuple[At, ...]] = {}
        self.began: set[int] = set()

    def clear_module(self, original: Any, module: Any, *rest: Any, **keywords: Any) -> None:
        original(module, *rest, **keywords)
        self._cleared(module.parameters())

    def clear_optimizer(self, original: Any, optimizer: Any, *rest: Any, **keywords: Any) -> None:
        original(optimizer, *rest, **keywords)
        self._cleared(parameters_of(optimizer))

    def _cleared(self, parameters: Iterable[Any]) -> None:
        numbers = frozenset(map(self.watcher.parameter, parameters))
        for spent in self.spent.values():
            spent -= numbers
        self.watcher.add(Clear(parameters=numbers))

    def clip_norm(self, original: Any, parameters: Any, max_norm: float, *rest: Any, **keywords: Any) -> Any:
        given = _several(parameters)
        result = original(given, max_norm, *rest, **keywords)
        self._clipped(given, float(max_norm), "norm", float(result.item()))
        return result

    def clip_value(self, original: Any, parameters: Any, clip_value: float, *rest: Any, **keywords: Any) -> Any:
        given = _several(parameters)
        result = original(given, clip_value, *rest, **keywords)
        self._clipped(given, float(clip_value), "value", 0.0)
        return result

    def _clipped(self, given: Sequence[Any], limit: float, by: str, norm: float) -> None:
        numbers = frozenset(map(self.watcher.parameter, given))
        held = sum(parameter.grad is not None for parameter in given)
        self.watcher.add(Clip(limit=limit, by=by, parameters=numbers, norm=norm, gradients=held))

    def make_optimizer(self, original: Any, optimizer: Any, *rest: Any, **keywords: Any) -> None:
        original(optimizer, *rest, **keywords)
        self.made[self.watcher.number("optimizer", optimizer)] = stack(optimizer)

    def known(self, optimizer: Any) -> int:
        """The number of an optimizer. The first time its groups are written down."""
        number = self.watcher.number("optimizer", optimizer)
        if number not in self.watcher.run.optimizers:
            self.watcher.look_closely()
            self.watcher.trains_anew()
            groups = tuple(tuple(map(self.watcher.parameter, group["params"])) for group in optimizer.param_groups)
            settings = tuple(
                {k: v for k, v in group.items() if isinstance(v, (bool, int, float, str, tuple))}
                for group in optimizer.param_groups
            )
            made, cls = self.made.get(number) or stack(), type(optimizer)
            line = made[0].place if made else ""
            self.watcher.run.optimizers[number] = Group(cls.__name__, line, groups, settings, cls, made)
        return number

    def missing(self, optimizer: Any) -> frozenset[int]:
        """The trainable parameters of an optimizer without a gradient."""
        given = parameters_of(optimizer)
        return frozenset(self.watcher.parameter(p) for p in given if p.grad is None and p.requires_grad)

    def spend(self, number: int, optimizer: Any) -> None:
        """A step has used the gradients of an optimizer."""
        self.spent[number] = {self.watcher.parameter(p) for p in parameters_of(optimizer) if p.grad is not None}

    def make_scheduler(self, scheduler: Any, functions: Iterable[Any]) -> None:
        """Write down where a scheduler was made, and which functions it was given."""
        number, made = self.watcher.number("scheduler", scheduler), stack(scheduler)
        self.watcher.run.schedulers.setdefault(number, made[0].place if made else "")
        self.watcher.run.planned.setdefault(number, made)
        functions = [one for one in functions if callable(one)]
        self.watcher.endings.append(lambda: self._ask(number, functions))
        codes = (getattr(one, "__code__", None) for one in functions)
        self.watcher.run.rate_functions[number] = [code for code in codes if code is not None]

    def _ask(self, number: int, functions: Iterable[Any]) -> None:
        """Write down after how many steps the functions of a schedule have come down, when the run is over."""
        last = 2 * max(len(self.watcher.run.of(Backward)), self.watcher.run.steps)
        with self.watcher.looking():
            ends = {end for one in functions if (end := comes_down_at(one, last)) is not None}
            if len(ends) == 1:
                self.watcher.run.descents[number] = ends.pop()
            peaks = {peak for one in functions if (peak := peaks_beyond(one, self.watcher.run.steps)) is not None}
            if len(peaks) == 1:
                self.watcher.run.peaks[number] = peaks.pop()


def comes_down_at(function: Callable[[int], float], last: int) -> int | None:
    """After how many steps the factor of a rate has come down to its least, from where it stays there or rises: at most
    a tenth of its largest. None where it does not, falls on to the last step, or knows no such steps."""
    places = sorted({last * part // 400 for part in range(401)})
    try:
        factors = [float(function(place)) for place in places]
    except Exception:  # it is the user's, and may be a list of as many rates as there are steps
        return None
    least, largest = min(factors[1:]), max(factors)
    peak = factors.index(largest)
    down = next((n for n in range(peak, len(places)) if factors[n] <= least + 1e-4 * (largest - least)), None)
    if down is None or down >= len(places) - 4 or least > 0.1 * largest:
        return None
    return places[down]


_FAR = 50
"""So many times the steps of a run a schedule is asked for its peak."""


def peaks_beyond(function: Callable[[int], float], steps: int) -> int | None:
    """After about how many steps the factor of a rate is largest, where it rises to the very end of a run, and comes
    down to a tenth later: the schedule knows how many steps it is planned for."""
    within = sorted({steps * part // 40 for part in range(41)})
    beyond = sorted({_FAR * steps * part // 400 for part in range(401)})
    try:
        seen, factors = ([float(function(place)) for place in places] for places in (within, beyond))
    except Exception:  # it is the user's, as above
        return None
    rises = all(one < two for one, two in pairwise(seen))
    return beyond[factors.index(max(factors))] if rises and comes_down_at(function, _FAR * steps) is not None else None


def _several(parameters: Any) -> list[Any]:
    """The parameters that clipping is given: one, or several."""
    return [parameters] if hasattr(parameters, "grad") else list(parameters)


def parameters_of(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def rate_of(group: Mapping[str, Any]) -> float:
    return float(group.get("lr", 0.0))


def rates_of(optimizer: Any) -> tuple[float, ...]:
    return tuple(map(rate_of, optimizer.param_groups))
