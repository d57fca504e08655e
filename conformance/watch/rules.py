"""What rule an optimizer follows: how its parameters changed, compared with the formulas and with their usual mistakes.

The optimizers of PyTorch are right, and are not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

MOST, LARGEST = 4, 2**16
"""How many parameters are compared, and how large they may be."""


@dataclass(frozen=True)
class Change:
    """A parameter that a step changed: its key, its values after and before, its gradient, and its group's settings."""

    key: int
    after: Array
    before: Array
    gradient: Array
    group: Mapping[str, Any]


class Moments:
    """The moments of Adam's formula over the gradients that one optimizer has used, by parameter. alike: the second
    moment with the first one's beta; last: the last gradient."""

    def __init__(self) -> None:
        self.first: dict[int, Array] = {}
        self.second: dict[int, Array] = {}
        self.alike: dict[int, Array] = {}
        self.last: dict[int, Array] = {}

    def add(self, key: int, gradient: Array, betas: tuple[float, float]) -> None:
        zero = np.zeros_like(gradient)
        self.first[key] = betas[0] * self.first.get(key, zero) + (1 - betas[0]) * gradient
        self.second[key] = betas[1] * self.second.get(key, zero) + (1 - betas[1]) * gradient**2
        self.alike[key] = betas[0] * self.alike.get(key, zero) + (1 - betas[0]) * gradient**2
        self.last[key] = gradient


class History:
    """What one optimizer did before: its number of steps, and its moments without and with decay in the gradient.
    is_whole: whether each of its steps is in it."""

    def __init__(self) -> None:
        self.steps, self.is_whole = 0, True
        self.plain, self.decayed = Moments(), Moments()


def rule_of(changes: Sequence[Change], history: History) -> str:
    """The name of the formula by which every parameter changed; "" where the settings are not Adam's,
    or a step is missing in the history."""
    history.steps += 1
    compared = sorted(changes, key=lambda one: one.before.size)[-MOST:]
    if not history.is_whole or not compared or "betas" not in compared[0].group:
        return ""
    for one in compared:
        history.plain.add(one.key, one.gradient, one.group["betas"])
        history.decayed.add(one.key, one.gradient + one.group.get("weight_decay", 0.0) * one.before, one.group["betas"])
    for name, formula in ADAM.items():
        if all(np.allclose(one.after, formula(history, one), rtol=1e-5, atol=1e-7) for one in compared):
            return name
    return ANOTHER


Formula = Callable[[History, Change], Array]


def _adam(
    *, corrected: bool = True, inside: bool = False, decay: str = "apart", kept: bool = True, own_beta: bool = True
) -> Formula:
    """The parameter after a step. decay: "apart" from the gradient, "in the gradient", "without the rate", or "none".
    kept: whether the moments are kept from step to step. own_beta: whether the second moment has its own."""

    def formula(history: History, change: Change) -> Array:
        group, key = change.group, change.key
        (one, two), rate, eps = group["betas"], float(group["lr"]), group.get("eps", 1e-8)
        moments = history.decayed if decay == "in the gradient" else history.plain
        steps = history.steps if kept else 1
        first, second = moments.first[key], moments.second[key] if own_beta else moments.alike[key]
        if not kept:
            first, second = (1 - one) * moments.last[key], (1 - two) * moments.last[key] ** 2
        if corrected:
            first, second = first / (1 - one**steps), second / (1 - (two if own_beta else one) ** steps)
        root = np.sqrt(second + eps) if inside else np.sqrt(second) + eps
        share = {"apart": rate, "without the rate": 1.0}.get(decay, 0.0)
        moved: Array = change.before * (1 - share * group.get("weight_decay", 0.0)) - rate * first / root
        return moved

    return formula


ANOTHER = "another rule"
UNSCALED = "AdamW with a decay that the rate does not scale"
COUPLED = "Adam with the decay in the gradient"
ADAM: dict[str, Formula] = {
    "AdamW": _adam(),
    COUPLED: _adam(decay="in the gradient"),
    "Adam without the decay that it was given": _adam(decay="none"),
    "Adam without bias correction": _adam(corrected=False),
    "Adam with eps inside the root": _adam(inside=True),
    "Adam without bias correction, with the decay in the gradient": _adam(corrected=False, decay="in the gradient"),
    "Adam with eps inside the root and the decay in the gradient": _adam(inside=True, decay="in the gradient"),
    UNSCALED: _adam(decay="without the rate"),
    "Adam that forgets its moments from step to step": _adam(kept=False),
    "Adam with the first moment's beta in the second": _adam(own_beta=False),
}
"""Name -> the formula. Without decay the first is Adam."""
