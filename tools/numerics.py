"""`python -m tools.numerics [--markdown FILE]`: errors of float32 results against float64, beside torch's.

An error is the largest difference to the float64 result of the same inputs, in units in the last place of the result's
largest value; of a sum at least of the size that its terms have under random signs, for one that cancels has no digits
of its own. minigrad is measured eager and compiled, with
its kernels at every size. Over inputs of magnitudes 1e-30 to 1e30, offsets to 1e5 and lengths to 100,000, a result may
have twice torch's error, or 4 units where that is more, and must be finite where torch's is. Exit code 1 where one is
not. Each kind of input is drawn SEEDS times; the largest error counts, on both sides.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import minigrad as mg
import minigrad.torch as standin
from minigrad import kernels

SEEDS = 4
UNITS, TIMES = 4.0, 2.0  # what an error may be: units in the last place, or times torch's
EPSILON = float(np.finfo(np.float32).eps) / 2
MAGNITUDES = (1e-30, 1e-10, 1.0, 1e10, 1e30)
OFFSETS = (1.0, 1e3, 1e5)
LENGTHS = (7, 1000, 8193, 100_000)

Function = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """A function of torch's names on inputs ``(rows, length)``; `gradient`: its gradient for the inputs instead."""

    name: str
    function: Function
    inputs: Callable[[np.random.Generator, int, float, float], list[np.ndarray]]
    gradient: bool = False
    magnitudes: tuple[float, ...] = MAGNITUDES
    offsets: tuple[float, ...] = OFFSETS
    lengths: tuple[int, ...] = LENGTHS
    terms: float | None = None  # of sums: their number goes into the result's scale with this power


@dataclass(frozen=True)
class Row:
    """The errors of one case on one kind of input, in units in the last place."""

    name: str
    length: int
    magnitude: float
    offset: float
    torch: float
    eager: float
    compiled: float

    @property
    def over(self) -> bool:
        """Is an error of minigrad's above what it may be?"""
        return max(self.eager, self.compiled) > max(UNITS, TIMES * self.torch)


def _one(rng: np.random.Generator, length: int, magnitude: float, offset: float) -> list[np.ndarray]:
    rows = max(1, min(4, 100_000 // length))
    return [(rng.standard_normal((rows, length)) * magnitude + offset * magnitude).astype(np.float32)]


def _flat(rng: np.random.Generator, length: int, magnitude: float, offset: float) -> list[np.ndarray]:
    return [array[0] for array in _one(rng, length, magnitude, offset)]


def _column(rng: np.random.Generator, length: int, magnitude: float, offset: float) -> list[np.ndarray]:
    return [np.ascontiguousarray(array.T) for array in _one(rng, length, magnitude, offset)]


def _heads(rng: np.random.Generator, length: int, magnitude: float, offset: float) -> list[np.ndarray]:
    """Query, key and value ``(1, 2, T, 16)``, at most 512 steps."""
    steps = min(length, 512)
    made = [rng.standard_normal((1, 2, steps, 16)) * magnitude + offset for _ in range(3)]
    return [array.astype(np.float32) for array in made]


def _targets(t: Any, x: Any) -> Any:
    return t.arange(x.shape[0]) * 3 % x.shape[1]


def _losses(t: Any, x: Any) -> Any:
    return t.nn.functional.cross_entropy(x, _targets(t, x))


def _bce(t: Any, x: Any) -> Any:
    return t.nn.functional.binary_cross_entropy_with_logits(x, (x > 0).to(x.dtype) * 0.75)


def _attention(t: Any, q: Any, k: Any, v: Any) -> Any:
    return t.nn.functional.scaled_dot_product_attention(q, k, v)


def _norm_of_rows(name: str) -> Function:
    return lambda t, x: getattr(t.nn.functional, name)(x, (x.shape[-1],), eps=1e-12)


SCORES = (1e-30, 1.0, 30.0)  # of logits: beyond, softmax is a choice
ELEMENTS: dict[str, tuple[Function, Any]] = {
    "sum": (lambda t, x: x.sum(), _flat),
    "sum over rows": (lambda t, x: x.sum(-1), _one),
    "sum over columns": (lambda t, x: x.sum(0), _column),
    "mean": (lambda t, x: x.mean(-1), _one),
    "cumsum": (lambda t, x: x.cumsum(-1), _one),
    "norm": (lambda t, x: x.norm(dim=-1), _one),
    "layer_norm": (_norm_of_rows("layer_norm"), _one),
    "rms_norm": (_norm_of_rows("rms_norm"), _one),
}


def cases() -> Iterator[Case]:
    for name, (function, inputs) in ELEMENTS.items():
        limits: dict[str, Any] = {}
        if name.endswith("_norm"):
            limits["magnitudes"] = (1e-10, 1.0, 1e10)  # squares beyond are not float32
        if name.startswith(("sum", "mean")):
            limits["terms"] = 0.5 if name.startswith("sum") else -0.5
        yield Case(name, function, inputs, **limits)
        if name.endswith("norm"):
            yield Case(f"gradient of {name}", function, inputs, True, (1.0,), OFFSETS)
    yield Case("var", lambda t, x: x.var(-1), _one, magnitudes=(1e-10, 1.0, 1e10))
    yield Case("std", lambda t, x: x.std(-1), _one)
    for name, function in (
        ("softmax", lambda t, x: x.softmax(-1)),
        ("log_softmax", lambda t, x: x.log_softmax(-1)),
        ("logsumexp", lambda t, x: x.logsumexp(-1)),
        ("cross_entropy", _losses),
        ("binary cross_entropy", _bce),
    ):
        yield Case(name, function, _one, magnitudes=SCORES)
        yield Case(f"gradient of {name}", function, _one, True, SCORES)
    for gradient in (False, True):
        title = "gradient of attention" if gradient else "attention"
        yield Case(title, _attention, _heads, gradient, (1e-10, 1.0, 3.0), (1.0, 10.0), (7, 512))


def _run(case: Case, t: Any, inputs: Sequence[Any]) -> Any:
    result = case.function(t, *inputs)
    if not case.gradient:
        return result
    weights = t.cos(t.arange(result.numel()).to(result.dtype)).reshape(result.shape)
    return t.autograd.grad((result * weights).sum(), list(inputs))


def _arrays(result: Any) -> list[np.ndarray]:
    several = result if isinstance(result, tuple | list) else [result]
    return [value.detach().numpy().astype(np.float64) for value in several]


def units(got: Sequence[np.ndarray], exact: Sequence[np.ndarray], least: float = 0.0) -> float:
    """The largest error in units in the last place of each result's largest value, which counts as `least` at least;
    infinite for what is not finite."""
    worst = 0.0
    for one, other in zip(got, exact, strict=True):
        scale = max(float(np.max(np.abs(other), initial=0.0)), least)
        if not np.isfinite(one).all():
            return float("inf")
        if scale:
            worst = max(worst, float(np.max(np.abs(one - other))) / scale / EPSILON / 2)
    return worst


def measure(case: Case, length: int, magnitude: float, offset: float) -> Row | None:
    """None where a float64 result is no float32."""
    drawn = [_measure(case, length, magnitude, offset, seed) for seed in range(SEEDS)]
    if any(errors is None for errors in drawn):
        return None
    return Row(case.name, length, magnitude, offset, *(max(found) for found in zip(*filter(None, drawn), strict=True)))


def _measure(case: Case, length: int, magnitude: float, offset: float, seed: int) -> list[float] | None:
    """The errors of torch, eager and compiled."""
    inputs = case.inputs(np.random.default_rng(seed), length, magnitude, offset)
    largest = float(np.finfo(np.float32).max)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        exact = _arrays(_run(case, torch, [torch.from_numpy(x.astype(np.float64)).requires_grad_() for x in inputs]))
        if not all(np.isfinite(x).all() and np.abs(x).max(initial=0.0) < largest for x in exact):
            return None
        theirs = _arrays(_run(case, torch, [torch.from_numpy(x.copy()).requires_grad_() for x in inputs]))

        def mine(*tensors: mg.Tensor) -> Any:
            return _run(case, standin, tensors)

        with kernels.use("always"):
            given = [mg.from_numpy(x.copy()).requires_grad_() for x in inputs]
            eager = _arrays(mine(*given))
            plan = mg.compile(mine)
            plan(*given)
            compiled = _arrays(plan(*given))
    size = float(np.sqrt(np.mean(np.square(inputs[0], dtype=np.float64))))
    least = 0.0 if case.terms is None else size * float(length) ** case.terms
    return [units(found, exact, least) for found in (theirs, eager, compiled)]


def rows(chosen: Sequence[str] = (), share: bool = False) -> Iterator[Row]:
    """Every case on every kind of input: magnitudes without offset, offsets at magnitude 1; a few if `share`."""
    for case in cases():
        if chosen and case.name not in chosen:
            continue
        for length in case.lengths[1:3] if share else case.lengths:
            kinds = [(magnitude, 0.0) for magnitude in case.magnitudes] + [(1.0, offset) for offset in case.offsets]
            for magnitude, offset in kinds[-2:] if share else kinds:
                row = measure(case, length, magnitude, offset)
                if row is not None:
                    yield row


def table(found: Sequence[Row]) -> str:
    """For each case the largest errors, and the input of the one that comes nearest to what it may be."""
    lines = ["| result | inputs | torch | eager | compiled | worst input |", "|---|---|---|---|---|---|"]
    for name in dict.fromkeys(row.name for row in found):
        own = [row for row in found if row.name == name]
        worst = max(own, key=lambda row: max(row.eager, row.compiled) / max(UNITS, TIMES * row.torch))
        kind = f"length {worst.length}, magnitude {worst.magnitude:g}, offset {worst.offset:g}"
        errors = " | ".join(f"{value:.1f}" for value in (worst.torch, worst.eager, worst.compiled))
        lines.append(f"| {name} | {len(own)} | {errors} | {kind}{' (over)' if worst.over else ''} |")
    return "\n".join(lines)


def page(found: Sequence[Row]) -> str:
    return (
        "# Numerics: errors beside torch's\n\n"
        "This page says how exact minigrad's results are, beside torch's.\n\n"
        "Each result in float32 is compared with the result in float64 of the same inputs. The error is counted in\n"
        "units in the last place of the largest value of the result. torch runs on the CPU. minigrad runs eager and\n"
        "compiled, with its kernels at every size.\n\n"
        f"An error may be {TIMES:g} times torch's, or {UNITS:g} units where that is more. A result must be finite\n"
        "where torch's is.\n\n"
        "Inputs have magnitudes from 1e-30 to 1e30, offsets up to 1e5 (in units of the magnitude) and lengths up to\n"
        "100,000. The column *inputs* counts the kinds of input. A row shows the errors on the input that comes\n"
        "nearest to what is allowed.\n\n"
        "`python -m tools.numerics --markdown docs/numerics.md` makes this page.\n\n"
        f"{table(found)}\n"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.numerics", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="results, by name (default: all)")
    parser.add_argument("--markdown", type=Path, help="write the table to this file, too")
    parser.add_argument("--all", action="store_true", help="print every input that is over, not only the worst")
    options = parser.parse_args(arguments)
    unknown = set(options.names) - {case.name for case in cases()}
    if unknown:
        parser.error(f"no result {', '.join(sorted(unknown))}")
    torch.set_num_threads(1)
    found = list(rows(options.names))
    print(table(found))
    if options.all:
        for row in found:
            if row.over:
                print(row)
    if options.markdown:
        options.markdown.write_text(page(found), encoding="utf-8")
    over = sum(row.over for row in found)
    print(f"{len(found)} results measured, {over} over")
    return int(over > 0)


if __name__ == "__main__":
    sys.exit(main())
