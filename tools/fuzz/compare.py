"""One program in every way: torch against minigrad eager, traced, compiled, and its optimised graph in float32."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import minigrad as mg
import minigrad.torch as standin
from minigrad.compiler import optimise, pipeline
from tools.fuzz.programs import Program, arrays, leaves, outcome, shrunk

RELATIVE = 1e-7  # of the largest value of a result or gradient, in float64 through up to 60 steps and two derivatives


@dataclass(frozen=True)
class Difference:
    """way: how it was run; what: where it differs from torch; program: a small one that shows it."""

    way: str
    what: str
    program: Program


@dataclass(frozen=True)
class Refusal:
    """A program that torch runs and minigrad refuses, with the sentence."""

    way: str
    sentence: str


def check(program: Program) -> Difference | Refusal | None:
    """None where every way gives what torch gives, and where torch itself does not run or has no stable answer."""
    found = _check(program)
    if not isinstance(found, Difference):
        return found

    def fails(candidate: Program) -> bool:
        again = _check(candidate)
        return isinstance(again, Difference) and again.way == found.way

    small = shrunk(program, fails)
    again = _check(small)
    return again if isinstance(again, Difference) else found


def _check(program: Program) -> Difference | Refusal | None:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        expected = _on_torch(program)
        if expected is None:
            return None
        for way, run in (("eager", _eager), ("traced", _traced), ("compiled", _compiled), ("optimised", _optimised)):
            try:
                pairs = run(program, expected)
            except (RuntimeError, NotImplementedError) as error:
                return Refusal(way, str(error).splitlines()[0])
            except Exception as error:
                return Difference(way, f"{type(error).__name__}: {error}", program)
            what = next(filter(None, (_differs(*pair) for pair in pairs)), None)
            if what and _stable(program, expected):
                return Difference(way, what, program)
    return None


def _numbers(found: Sequence[Any]) -> list[np.ndarray | None]:
    return [None if x is None else np.array(x.detach().numpy() if hasattr(x, "detach") else x) for x in found]


def _on_torch(program: Program, nudge: float = 0.0) -> list[np.ndarray | None] | None:
    """What torch gives; None where it refuses, or a value is not finite."""
    try:
        found = _numbers(outcome(program, torch, *leaves(program, nudge)))
    except Exception:
        return None
    return found if all(x is None or np.isfinite(x).all() for x in found) else None


def _stable(program: Program, expected: Sequence[np.ndarray | None]) -> bool:
    """Does torch give nearly the same for nearly the same inputs? Else rounding decides (ties, jumps)."""
    for nudge in (1e-13, -1e-13):
        near = _on_torch(program, nudge)
        if near is None or any(_differs(one, other) for one, other in zip(expected, near, strict=True)):
            return False
    return True


def _differs(expected: np.ndarray | None, got: np.ndarray | None, relative: float = RELATIVE) -> str | None:
    """Where two results differ; no gradient is a gradient of zeros."""
    if expected is None or got is None:
        left = expected if got is None else got
        return None if left is None or not left.any() else f"a gradient of {left.ravel()[:4]} on one side only"
    if expected.shape != got.shape:
        return f"shape {expected.shape}, {got.shape} here"
    bound = relative * (float(np.abs(expected).max(initial=0.0)) + 1.0)
    wrong = ~(np.abs(expected - got) <= bound)
    if not wrong.any():
        return None
    place = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(wrong)))
    return f"{np.atleast_1d(expected)[place]:.9g} on torch, {np.atleast_1d(got)[place]:.9g} here at {list(place)}"


def _tensors(program: Program, dtype: str = "float64") -> tuple[list[mg.Tensor], list[mg.Tensor]]:
    inputs, captured = arrays(program, dtype)
    tensors = [mg.from_numpy(array) for array in (*inputs, *captured)]
    for i, tensor in enumerate(tensors):
        tensor.requires_grad_(i != len(inputs) - 1)
    return tensors[: len(inputs)], tensors[len(inputs) :]


Pairs = list[tuple[Any, ...]]


def _paired(expected: Sequence[Any], found: Sequence[Any], relative: float = RELATIVE) -> Pairs:
    """Gradients are missing at the end where no derivative is left: they are none."""
    got = [*_numbers(found), *[None] * (len(expected) - len(found))]
    wanted = [*expected, *[None] * (len(got) - len(expected))]
    return [(one, other, relative) for one, other in zip(wanted, got, strict=True)]


def _eager(program: Program, expected: Sequence[Any]) -> Pairs:
    return _paired(expected, outcome(program, standin, *_tensors(program)))


def _function(program: Program, captured: Sequence[mg.Tensor]) -> Any:
    return lambda *inputs: outcome(program, standin, inputs, captured)


def _traced(program: Program, expected: Sequence[Any]) -> Pairs:
    inputs, captured = _tensors(program)
    graph = mg.trace(_function(program, captured))(*inputs)
    if graph.by_layout:  # it says itself that its values may be others: a plan runs such a function eagerly
        return []
    return _paired(expected, graph.run(*_tensors(program)[0]))


def _compiled(program: Program, expected: Sequence[Any]) -> Pairs:
    """Three calls of a plan, the last after a captured parameter has changed."""
    _, captured = _tensors(program)
    plan = mg.compile(_function(program, captured))
    plan(*_tensors(program)[0])
    _set(captured, _tensors(program)[1], 1.0)  # a program may have changed them
    pairs = _paired(expected, plan(*_tensors(program)[0]))
    if captured:
        _set(captured, _tensors(program)[1], 0.75)
        inputs, after = _tensors(program)
        _set(after, after, 0.75)
        pairs += _paired(_numbers(outcome(program, standin, inputs, after)), plan(*_tensors(program)[0]))
    return pairs


def _set(parameters: Sequence[mg.Tensor], values: Sequence[mg.Tensor], factor: float) -> None:
    with mg.no_grad():
        for parameter, value in zip(parameters, values, strict=True):
            parameter.copy_(value * factor)


def _optimised(program: Program, expected: Sequence[Any]) -> Pairs:
    """The graph behind all passes, fused groups among them, beside the trace, both with the reference kernels. Every
    stage on the way is looked at."""
    inputs, captured = _tensors(program, "float32")
    graph = mg.trace(_function(program, captured))(*inputs)
    stages = optimise(graph)
    pipeline.check(stages)
    given = _tensors(program, "float32")[0]
    return _paired(_numbers(graph.run(*given)), stages[-1][1].run(*given), 1e-4)
