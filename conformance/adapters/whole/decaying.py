"""The optimizer that a model makes for itself: which parameters does it let decay?"""

from __future__ import annotations

import inspect
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from conformance.adapters.whole.place_probes import PlaceProbes
from conformance.protocol import NotProvided

DECAY = 0.37
_VALUES: dict[str, Any] = {
    "weight_decay": DECAY,
    "wd": DECAY,
    "learning_rate": 1e-3,
    "lr": 1e-3,
    "max_lr": 1e-3,
    "betas": (0.9, 0.95),
    "device_type": "cpu",
    "device": "cpu",
}


@dataclass(frozen=True)
class Decays:
    """How much vectors (norms, biases) and matrices decay, where an optimizer has a group that holds matrices only."""

    vectors: float
    matrices: float
    place: str


class DecayProbes(PlaceProbes):
    """The experiment, of a running model."""

    def decays(self) -> Decays:
        """What its own optimizer does. Raises NotProvided where it makes none, or does not keep vectors apart."""
        module = self.twin().module
        name = next((n for n in ("configure_optimizers", "configure_optimizer") if hasattr(module, n)), "")
        if not name:
            raise NotProvided("it makes no optimizer")
        function = getattr(module, name)
        given = {}
        for parameter in inspect.signature(function).parameters.values():
            if parameter.name in _VALUES:
                given[parameter.name] = _VALUES[parameter.name]
            elif parameter.default is parameter.empty:
                raise NotProvided(f"{name} asks for {parameter.name}, whose meaning is not known")
        made: Any = None
        with suppress(Exception):
            made = function(**given)
        made = made.get("optimizer") if isinstance(made, dict) else made[0] if isinstance(made, (tuple, list)) else made
        made = made[0] if isinstance(made, list) else made
        if not isinstance(made, torch.optim.Optimizer):
            raise NotProvided(f"{name} gives no optimizer")
        found: dict[bool, set[float]] = {True: set(), False: set()}
        for group in made.param_groups:
            has_vectors = any(parameter.dim() < 2 for parameter in group["params"])
            found[has_vectors].add(group.get("weight_decay", 0.0))
        if not found[True] or not found[False]:
            raise NotProvided(f"{name} does not keep norms and biases apart")
        return Decays(max(found[True]), max(found[False]), self.line_of(rf"def {name}\b"))
