"""Learning rates: functions of a step, and classes that count the steps."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import torch

from conformance.adapters.functions.arguments import Arguments, read
from conformance.adapters.functions.roles import WARMUP, WIDTH
from conformance.adapters.functions.subjects import Served
from conformance.adapters.inference.facts import Fact, Unresolved
from conformance.protocol import NotProvided
from conformance.reference.training import warmup_rate

WORDS = {
    "warmup": WARMUP,
    "d_model": WIDTH,
    "step": r"(global_|current_|cur_|n_)?(step|steps|step_num|iteration|iter|it|t|epoch|i)|num_steps|step_n",
    "factor": r"factor|lr_mul|scale|multiplier|(init_|base_|peak_)?lr|k|coefficient|mult",
    "optimizer": r"opt(im(izer)?)?",
    "model": r"model|net(work)?|module",
}
_WIDTHS = ("d_model", "model_size", "model_dim", "hidden_size", "hidden_dim", "hidden", "dim", "n_embd", "embed_dim")
RATES = r"_?rate|_?get_?(last_)?(lr|rate).*|lr|lr_(at|lambda|scale)|learning_rate|compute.*|calc.*|__call__"
STEPS = r"step(_and_update(_lr)?)?|update(_lr|_learning_rate)?"
_GRID = [(512, 4000), (64, 100), (256, 10)]
_AT = [2, 9, 10, 57, 100, 500, 4000, 9000]

Rate = Callable[[int, int, int], float]
"""The rate of (step, d_model, warmup)."""


def resolve(found: Any) -> list[Served]:
    """A schedule as the role lr_schedule. Raises Unresolved when it gives no rate of a step."""
    after_counting = False
    if isinstance(found, type):
        rate, how, after_counting = _of_class(found)
    else:
        arguments = read(found, WORDS)
        if arguments.has("step"):
            rate, how = partial(_function, found, arguments), "a function of the step"
        else:
            rate, how = partial(_made, found, arguments), "it makes a function of the step"
    facts = [Fact("schedule", how, "its parameters")]
    values = {(s, d, w): rate(s, d, w) for d, w in _GRID for s in _AT}
    later = {key: warmup_rate(key[0] + 1, *key[1:]) for key in values}
    exact = {key: warmup_rate(*key) for key in values}
    first = 0 if _equal(values, later) else 1
    if first == 0:
        facts.append(Fact("steps", "counted from 0", "at step s it gives the rate of step s + 1"))

    def make(config: Mapping[str, Any]) -> Callable[..., dict[str, Any]]:
        def compute(training: bool, step: int) -> dict[str, Any]:
            if step + first < 1:
                raise NotProvided("its first step is 0: nothing comes before it")
            if step < 1 and after_counting:
                raise NotProvided("it counts a step before it asks for the rate")
            return {
                "out": torch.tensor(
                    rate(int(step) - 1 + first, config["d_model"], config["warmup"]), dtype=torch.float64
                )
            }

        return compute

    return [Served("lr_schedule", make, facts, first == 0 or _equal(values, exact))]


def _equal(values: Mapping[Any, float], expected: Mapping[Any, float]) -> bool:
    return all(abs(value / expected[key] - 1) < 1e-5 for key, value in values.items())


def _function(function: Callable[..., Any], arguments: Arguments, step: int, d_model: int, warmup: int) -> float:
    return float(arguments.call(function, step=step, d_model=d_model, warmup=warmup, factor=1.0))


def _made(function: Callable[..., Any], arguments: Arguments, step: int, d_model: int, warmup: int) -> float:
    made = arguments.call(function, d_model=d_model, warmup=warmup, factor=1.0, optimizer=_optimizer())
    if isinstance(made, torch.optim.lr_scheduler.LambdaLR):
        return float(made.lr_lambdas[0](step))
    if not callable(made):
        raise Unresolved(f"{arguments.name} returns a {type(made).__name__}, which is no function of a step")
    return float(made(step))


def _model(d_model: int) -> torch.nn.Module:
    """Something with parameters that says its width."""
    model = torch.nn.Linear(1, 1)
    vars(model).update(dict.fromkeys(_WIDTHS, d_model))
    return model


def _optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)


# --- classes --------------------------------------------------------------------------------------


def _of_class(cls: type) -> tuple[Rate, str, bool]:
    """How a class gives the rate of a step: a method of the step; else what it has set once it has counted so far. And
    whether its first step sets the rate of step 1."""
    arguments = read(cls, WORDS)

    def new(d_model: int, warmup: int) -> tuple[Any, torch.optim.Optimizer]:
        optimizer = _optimizer()
        model = _model(d_model)
        made = arguments.call(cls, d_model=d_model, warmup=warmup, factor=1.0, optimizer=optimizer, model=model)
        return made, optimizer

    made, _ = new(512, 4000)
    methods = [
        name for name, f in inspect.getmembers(made, callable) if not name.startswith("__") or name == "__call__"
    ]
    own = [name for name in methods if any(name in vars(c) for c in type(made).__mro__[:-1] if _is_own(c))]
    step = next((name for name in own if re.fullmatch(STEPS, name)), None)
    for name in own:
        if not re.fullmatch(RATES, name):
            continue
        parameters = inspect.signature(getattr(made, name)).parameters
        if len(parameters) == 1:
            rate_of = partial(_asked, new, name)
            counting = step is not None and not isinstance(made, torch.optim.lr_scheduler.LRScheduler)
            after = counting and _sets_the_first(*new(64, 100), str(step), rate_of(1, 64, 100))
            return rate_of, f"its method {name}(step)", after
    if step is None and isinstance(made, torch.optim.lr_scheduler.LRScheduler):
        step = "step"
    if step is None:
        raise Unresolved(f"{cls.__name__} has no method that gives the rate of a step, and none that makes a step")
    counter = _counter(made, step)

    def rate(at: int, d_model: int, warmup: int) -> float:
        made, optimizer = new(d_model, warmup)
        setattr(made, counter, at - 1)
        _step(made, step, optimizer)
        return float(optimizer.param_groups[0]["lr"])

    return rate, f"what {step}() sets, {counter} being the step before", False


def _asked(new: Callable[[int, int], tuple[Any, Any]], name: str, step: int, d_model: int, warmup: int) -> float:
    return _number(getattr(new(d_model, warmup)[0], name)(step))


def _sets_the_first(made: Any, optimizer: torch.optim.Optimizer, step: str, first: float) -> bool:
    """Whether the first step of a schedule sets the rate of step 1, of its own optimizer if it has one."""
    own = [value for value in vars(made).values() if isinstance(value, torch.optim.Optimizer)]
    with suppress(Exception):  # it steps with what nothing here shows
        _step(made, step, optimizer)
        return any(abs(float(one.param_groups[0]["lr"]) / first - 1) < 1e-5 for one in (*own, optimizer))
    return False


def _is_own(cls: type) -> bool:
    return not cls.__module__.startswith("torch.")


def _number(value: Any) -> float:
    return float(value[0] if isinstance(value, (list, tuple)) else value)


def _step(made: Any, name: str, optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    getattr(made, name)()


def _counter(made: Any, step: str) -> str:
    """The attribute that counts the steps. Raises Unresolved when none does."""

    def numbers() -> dict[str, int]:
        return {name: v for name, v in vars(made).items() if isinstance(v, int) and not isinstance(v, bool)}

    before = numbers()
    optimizer = next((v for v in vars(made).values() if isinstance(v, torch.optim.Optimizer)), _optimizer())
    _step(made, step, optimizer)
    counted = [name for name, value in numbers().items() if value == before.get(name, value) + 1]
    told = sorted(counted, key=lambda name: (name == "_step_count", name))
    if not told:
        raise Unresolved(f"no attribute of {type(made).__name__} counts the calls of {step}()")
    return told[0]
