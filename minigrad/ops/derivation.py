"""How an op's derivative is found: steps in words, then a last line that is evaluated and has to agree.

Notation. L is the loss, y the op's output, g = dL/dy what arrives from above, <u, v> the sum of u v over all elements.
To first order dL = <g, dy>; whoever writes this as <..., dx> has found dL/dx. (Where an input is itself called g or y,
the arriving gradient is h and the output z; a second output is y1, its gradient g1.) `sum` and `mean` run over the
last dimension unless one is named, and keep it with size 1. Last lines are numpy expressions over inputs, outputs,
attributes and the few words of `minigrad.study.notation`. An elementwise op needs none: they follow from its rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Example = Callable[[], tuple[list[np.ndarray], dict[str, Any]]]


@dataclass(frozen=True)
class Derivation:
    """steps in words; `let` names intermediate values; `results` maps an input to its last line; `example` replaces
    the op's own sample: () -> (inputs, attributes)."""

    steps: tuple[str, ...] = ()
    results: Mapping[str, str] = field(default_factory=dict)
    let: Mapping[str, str] = field(default_factory=dict)
    example: Example | None = None


def derive(
    *steps: str, let: Mapping[str, str] | None = None, example: Example | None = None, **results: str
) -> Derivation:
    """The steps, and the last line of each input by its name."""
    return Derivation(steps, results, let or {}, example)


def grid(*shape: int, seed: int = 0) -> np.ndarray:
    """Normal numbers with two decimals."""
    return np.round(np.random.default_rng(seed).standard_normal(shape), 2)


def moving(what: str, example: Example | None = None) -> Derivation:
    """Of an op that moves elements without computing."""
    return derive(
        f"{what}: y_i = x_s(i), where s(i) is found by moving the numbers 0, 1, 2, ... instead of x",
        "dL = sum_i g_i dx_s(i): x_j collects g_i from every i with s(i) = j",
        let={"s": "moved(numbers(x))"},
        example=example,
        x="collect(g, s, x)",
    )


# of ops that put elements into zeros, or in the place of others
BACK = "y = M g with the 0-1 matrix M that puts elements in their places; dL = <h, M dg> = <M^T h, dg>"
THERE = "M^T looks up what has arrived at the place where each element went"
REPLACED = "hit is 1 where the old element was replaced: there the new value takes the gradient, elsewhere the old one"
