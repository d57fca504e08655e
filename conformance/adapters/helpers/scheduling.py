"""Helpers that give a learning rate for a step."""

from __future__ import annotations

import inspect
import math
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import wraps
from itertools import pairwise
from types import FunctionType
from typing import Any

import torch

from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, tensor

_TOTAL, _WARM, _PEAK, _FLOOR = 100, 10, 1.0, 0.1
_FEWEST, _NEAR = 4, 0.05
"""A shorter warm-up has no shape. A peak so near to the optimizer's own rate is one."""
_SHARES = re.compile(r"frac|ratio|share|pct|percent|prop|portion")
"""What the name of a parameter says that is a part of all steps."""
OTHER_SHAPES = re.compile(
    r"restart|cycl|plateau|tri_?stage|sawtooth|weight_decay|momentum|temperature|dropout|teacher|beta|noise|d_model|"
    r"model_size",
    re.IGNORECASE,
)
"""Words of code whose rates rise and fall in another way, or that are no rates."""

_FLOORS = r"(min(im(um|al))?|final|end|floor)_?(lr|learning_rate|rate|ratio|factor|fraction)?|eta_min|floor"
"""Names of the rate at the end, or of its share of the peak."""
_STEP = r"step|it(er(ation)?)?|t|epoch|s|i|step_num|current_step|global_step|n"
_SETTINGS = {
    "warmup": r"(n_|num_)?warm_?up(_?(steps?|iters?|iterations|n|epochs))?",
    "total": (
        r"(n_|num_|max_|total_|decay_|training_|lr_decay_)*(steps?|iters?|iterations|epochs|training_steps)|"
        r"(n_|num_)?total|t_max|max_?(it|step|t)"
    ),
    "peak": r"(base|max|peak|init(ial)?)?_?(lr|learning_rate|rate)|base|peak|max|eta_max",
    "floor": _FLOORS,
}
_VALUES = {"warmup": _WARM, "total": _TOTAL, "peak": _PEAK, "floor": _FLOOR}


@helper(
    "schedules-rise-in-warm-up-and-then-fall",
    r"lr|learning_rate|schedule|warm_?up|cosine|anneal|(^|_)rate$|decay",
    {"step": _STEP, **_SETTINGS},
    ("step",),
)
def risen_and_fallen(schedule: Called) -> Iterator[Trouble]:
    """Up to its peak at the end of the warm-up, down from there without a jump, at its floor at the end, and never
    below zero."""
    if OTHER_SHAPES.search(schedule.source):
        raise OtherKind("it has another shape")
    if not (schedule.has("warmup") or schedule.has("total")):
        schedule = _told_its_constants(schedule)
    given: dict[str, Any] = {**_VALUES, "warmup": _warm_up(schedule)}
    steps = range(0, 2 * _TOTAL)
    try:
        first = schedule(step=1, **given)
    except Exception as error:
        raise OtherKind("it cannot be called with a step") from error
    if isinstance(first, bool) or tensor(first).numel() != 1:
        raise OtherKind("it gives no rate")
    rates = [_rate(schedule, step, given) for step in steps]
    floors = schedule.has("floor") and not re.search(
        r"ratio|factor|fraction", schedule.arguments.parameter_of["floor"].lower()
    )
    yield from troubles_of(
        Rates(
            schedule.name,
            schedule.source,
            rates,
            _WARM if schedule.has("warmup") else None,
            _TOTAL if schedule.has("total") else None,
            _PEAK if schedule.has("peak") else None,
            _FLOOR if floors else None,
        )
    )


def _warm_up(schedule: Called) -> float:
    """The steps of the warm-up, or their share of all, as the name of its parameter says."""
    named = schedule.arguments.parameter_of.get("warmup", "").lower()
    return _WARM / _TOTAL if _SHARES.search(named) else _WARM


def _rate(schedule: Called, step: int, given: dict[str, Any]) -> float:
    """The rate of a step; 0 for step 0 where steps are counted from 1, and it divides by them."""
    try:
        return float(tensor(schedule(step=step, **given)))
    except ZeroDivisionError:
        if step:
            raise
        return 0.0


def _told_its_constants(schedule: Called) -> Called:
    """The schedule of a script whose settings are constants of its file, as a function that takes them. Raises
    OtherKind where they are not there."""
    function = schedule.function
    if not isinstance(function, FunctionType) or function.__closure__:
        raise OtherKind("it takes no number of steps")
    numbers = [name for name in function.__code__.co_names if type(function.__globals__.get(name)) in (int, float)]
    meant = {name: what for name in numbers for what, named in _SETTINGS.items() if re.fullmatch(named, name.lower())}
    if not {"warmup", "total"} <= set(meant.values()):
        raise OtherKind("it takes no number of steps")

    @wraps(function)
    def call(*first: Any, **given: Any) -> Any:
        constants = {name: given[what] for name, what in meant.items()}
        told = FunctionType(function.__code__, {**function.__globals__, **constants}, None, function.__defaults__)
        told.__kwdefaults__ = function.__kwdefaults__
        return told(*first, **{name: value for name, value in given.items() if name not in _SETTINGS})

    takes = {**schedule.arguments.parameter_of, **{what: what for what in meant.values()}}
    return replace(schedule, function=call, arguments=replace(schedule.arguments, parameter_of=takes))


@helper(
    "schedules-rise-in-warm-up-and-then-fall",
    r"sched|warm_?up|cosine|(^|_)lr(_|$)",
    {
        "optimizer": r"opt(im(izer)?)?",
        "warmup": _SETTINGS["warmup"],
        "total": rf"(n_|num_)?(train_)?({_SETTINGS['total']})",
        "floor": _FLOORS,
    },
    ("optimizer", "warmup"),
)
def made_for_an_optimizer(schedule: Called) -> Iterator[Trouble]:
    """What a function makes for an optimizer rises and falls so, too."""
    cycles = inspect.signature(schedule.function).parameters.get("num_cycles")
    half = cycles is not None and cycles.default == 0.5  # half of a cosine is a fall
    if OTHER_SHAPES.search(schedule.source.replace("num_cycles", "") if half else schedule.source):
        raise OtherKind("it has another shape")
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=_PEAK)
    # the peak is 1, so that the floor is also a share of it
    given = {"optimizer": optimizer, "warmup": _warm_up(schedule), "total": _TOTAL, "floor": _FLOOR}
    made = schedule.arguments.call(schedule.function, **given)
    if not isinstance(made, torch.optim.lr_scheduler.LRScheduler):
        raise OtherKind("it gives no schedule")
    total = _TOTAL if schedule.has("total") else None
    steps = 2 * _TOTAL if isinstance(made, torch.optim.lr_scheduler.LambdaLR) else _TOTAL + 1  # torch's own turn back
    rates = rates_of(made, steps)
    of_itself = any(re.search(r"lr|rate", name.lower()) for name in inspect.signature(schedule.function).parameters)
    whole = None if of_itself or abs(max(rates) - 1) < _NEAR else 1.0  # it reaches the optimizer's own rate
    yield from troubles_of(Rates(schedule.name, schedule.source, rates, _WARM, total, whole))


def rates_of(schedule: torch.optim.lr_scheduler.LRScheduler, steps: int) -> list[float]:
    """The rates of the first group in so many steps, in parts of its first rate."""
    group = schedule.optimizer.param_groups[0]
    start = float(group["initial_lr"])
    if isinstance(schedule, torch.optim.lr_scheduler.LambdaLR):
        return [float(schedule.lr_lambdas[0](step)) for step in range(steps)]
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(steps):
            found.append(float(group["lr"]) / start)
            schedule.step()
    return found


@dataclass(frozen=True)
class Rates:
    """The rates that a schedule gives in its steps. name, source: of what gives them. warmup, total: its numbers of
    steps; asked: its peak; floor: where it ends; each None where nothing tells it."""

    name: str
    source: str
    rates: list[float]
    warmup: int | None = None
    total: int | None = None
    asked: float | None = None
    floor: float | None = None


def troubles_of(schedule: Rates) -> Iterator[Trouble]:
    """What is wrong with a schedule that has a warm-up. Raises OtherKind where it gives no rates."""
    rates, name, warm, total = schedule.rates, schedule.name, schedule.warmup, schedule.total
    peak = max(rates)
    if not all(map(math.isfinite, rates)) or peak <= 0:
        raise OtherKind("it gives no rates")
    if min(rates) < -1e-9:
        yield Trouble(
            f"{name} gives a rate below zero at step {rates.index(min(rates))}.", "0 or more", f"{min(rates):.4g}"
        )
        return
    if warm and total is None and warm >= _FEWEST and (trouble := _of_the_rise(schedule, warm, peak)):
        yield trouble  # a rate that falls with the square root of the steps has no last one
    asked = schedule.asked or peak
    if not (warm and total) or total <= warm + 1:
        return
    if warm >= _FEWEST and (trouble := _of_the_rise(schedule, warm, asked)):
        yield trouble
        return
    fall = rates[warm : total + 1]
    steepest = 0.12 * asked * min(1.0, (_TOTAL - _WARM) / (total - warm))
    if any(b > a + 1e-9 for a, b in pairwise(fall)):
        worst = next(i for i, (a, b) in enumerate(pairwise(fall)) if b > a + 1e-9)
        yield Trouble(
            f"{name} rises again after the warm-up, at step {warm + worst + 1}.",
            f"at most {fall[worst]:.4g}",
            f"{fall[worst + 1]:.4g}",
        )
    elif max(a - b for a, b in pairwise(fall)) > steepest and re.search(
        r"cos|linear|\bt\b|progress|ratio", schedule.source
    ):
        worst = max(range(len(fall) - 1), key=lambda i: fall[i] - fall[i + 1])
        yield Trouble(
            f"{name} jumps from {fall[worst]:.4g} to {fall[worst + 1]:.4g} at step {warm + worst + 1}.",
            "a smooth fall",
            f"{fall[worst + 1]:.4g}",
        )
    else:
        yield from _end(schedule, warm, total, asked)


def _of_the_rise(schedule: Rates, warm: int, asked: float) -> Trouble | None:
    """What is wrong with the warm-up; None for nothing."""
    name, rise = schedule.name, schedule.rates[: warm + 1]
    if abs(max(rise) - asked) > 1e-6 * asked or any(b < a - 1e-9 for a, b in pairwise(rise[:-1])):
        shape = f"{rise[0]:.4g}, {rise[1]:.4g}, ..., {rise[-1]:.4g}"
        return Trouble(f"{name} does not rise to {asked:g} in its {warm} steps of warm-up.", f"0 to {asked:g}", shape)
    if rise[0] > 0.5 * asked:
        return Trouble(f"{name} begins its warm-up with {rise[0]:.4g} of {asked:g}.", "a small rate", f"{rise[0]:.4g}")
    if rise[warm - 2] <= 0:
        return Trouble(
            f"{name} stays at 0 in its warm-up, and then jumps to {asked:.4g}: it does not rise.",
            f"about {asked / 2:.4g} half-way",
            0.0,
        )
    steps = [b - a for a, b in pairwise(rise[:-1])]
    top = rise[-2] + (steps[0] if rise[0] < steps[0] / 2 else 0.0)  # step / warmup, or (step + 1) / warmup
    if max(steps) - min(steps) < 1e-9 * asked and rise[-1] < 0.95 * top:
        said = f"{name} goes up to {top:.4g} in its warm-up, and begins its fall at {rise[-1]:.4g}: it jumps."
        return Trouble(said, f"{top:.4g}", f"{rise[-1]:.4g}")
    if rise[-1] - rise[-2] > max(3 * max(steps), asked / 3):
        said = f"{name} goes up to {rise[-2]:.4g} in its warm-up, and then jumps to {rise[-1]:.4g}."
        return Trouble(said, f"about {asked * (warm - 1) / warm:.4g}", f"{rise[-2]:.4g}")
    return None


def _end(schedule: Rates, warm: int, total: int, asked: float) -> Iterator[Trouble]:
    """Where it falls along a cosine or a line, it is half-way in the middle, and at its floor in the end."""
    cosine = re.search(r"\bcos\(|\.cos\(", schedule.source)
    rates, name = schedule.rates, schedule.name
    floor = min(rates[warm:]) if schedule.floor is None else schedule.floor
    middle, half = rates[(warm + total) // 2], (asked + floor) / 2
    if cosine and abs(rates[total] - floor) > 0.02 * asked:
        yield Trouble(f"{name} is {rates[total]:.4g} at its last step.", f"{floor:.4g}", f"{rates[total]:.4g}")
    elif cosine and abs(middle - half) > 0.02 * asked:
        yield Trouble(f"{name} is {middle:.4g} half-way down a cosine.", f"{half:.4g}", f"{middle:.4g}")
    elif any(b > a + 1e-9 for a, b in pairwise(rates[total:])):
        said = f"{name} rises again after its last step."  # where none comes, nothing is wrong
        yield Trouble(said, f"{rates[total]:.4g}", f"{max(rates[total:]):.4g}", certain=False)
