"""What rule an optimizer follows: how its parameters changed, compared with the formulas and with their usual mistakes.

Only optimizers that are not torch's own are compared; torch's are right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer

MOST, LARGEST = 4, 2**16
"""How many parameters are compared, and how large they may be."""


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

    def compared(self) -> list[tuple[Tensor, Tensor, Tensor, Mapping[str, Any]]]:
        """A few small parameters: as they are, as they were, their gradients, their settings."""
        small = [v for v in self._values if v[2] is not None and v[1].numel() <= LARGEST and v[1].dim() > 0]
        small.sort(key=lambda one: one[1].numel())
        return small[-MOST:]  # type: ignore[return-value]


def _copied(gradient: Tensor | None) -> Tensor | None:
    return None if gradient is None or gradient.is_sparse else gradient.detach().clone()


class Moments:
    """The moments of Adam's formula over the gradients that one optimizer has used, by parameter. alike: the second
    moment with the first one's beta; last: the last gradient."""

    def __init__(self) -> None:
        self.first: dict[int, Tensor] = {}
        self.second: dict[int, Tensor] = {}
        self.alike: dict[int, Tensor] = {}
        self.last: dict[int, Tensor] = {}

    def add(self, parameter: Tensor, gradient: Tensor, betas: tuple[float, float]) -> None:
        key, zero = id(parameter), torch.zeros_like(gradient)
        self.first[key] = betas[0] * self.first.get(key, zero) + (1 - betas[0]) * gradient
        self.second[key] = betas[1] * self.second.get(key, zero) + (1 - betas[1]) * gradient**2
        self.alike[key] = betas[0] * self.alike.get(key, zero) + (1 - betas[0]) * gradient**2
        self.last[key] = gradient


class History:
    """What one optimizer did before: its number of steps, and its moments without and with decay in the gradient."""

    def __init__(self) -> None:
        self.steps = 0
        self.plain, self.decayed = Moments(), Moments()


def rule_of(optimizer: Optimizer, before: Before, history: History) -> str:
    """The name of the formula by which every compared parameter changed; "" for torch's own optimizers, and for those
    whose settings are not Adam's."""
    if type(optimizer).__module__.startswith("torch."):
        return ""
    history.steps += 1
    compared = before.compared()
    if not compared or "betas" not in compared[0][3]:
        return ""
    for parameter, value, gradient, group in compared:
        history.plain.add(parameter, gradient, group["betas"])
        history.decayed.add(parameter, gradient + group.get("weight_decay", 0.0) * value, group["betas"])
    for name, formula in ADAM.items():
        if all(
            torch.allclose(parameter.detach(), formula(history, parameter, value, group), rtol=1e-5, atol=1e-7)
            for parameter, value, _, group in compared
        ):
            return name
    return ANOTHER


Formula = Callable[[History, Tensor, Tensor, Mapping[str, Any]], Tensor]


def _adam(
    *, corrected: bool = True, inside: bool = False, decay: str = "apart", kept: bool = True, own_beta: bool = True
) -> Formula:
    """The parameter after a step. decay: "apart" from the gradient, "in the gradient", "without the rate", or "none".
    kept: whether the moments are kept from step to step. own_beta: whether the second moment has its own."""

    def formula(history: History, parameter: Tensor, value: Tensor, group: Mapping[str, Any]) -> Tensor:
        (one, two), rate, eps = group["betas"], group["lr"], group.get("eps", 1e-8)
        moments = history.decayed if decay == "in the gradient" else history.plain
        key, steps = id(parameter), history.steps if kept else 1
        first, second = moments.first[key], moments.second[key] if own_beta else moments.alike[key]
        if not kept:
            first, second = (1 - one) * moments.last[key], (1 - two) * moments.last[key] ** 2
        if corrected:
            first, second = first / (1 - one**steps), second / (1 - (two if own_beta else one) ** steps)
        root = (second + eps).sqrt() if inside else second.sqrt() + eps
        share = {"apart": rate, "without the rate": 1.0}.get(decay, 0.0)
        return value * (1 - share * group.get("weight_decay", 0.0)) - rate * first / root

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
