"""The numpy reference implementation: base class, registry, and vector-Jacobian products by differences.

A reference subject is a formula: `forward(p, **inputs)` with `p` its parameters. It computes in float64
unless told otherwise. It is what the mutants are made from, and the plainest example of the protocol.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np

from conformance.differences import differences
from conformance.protocol import ROLES, Array, Arrays, NotProvided

REFERENCE: dict[str, type[ReferenceSubject]] = {}


class ReferenceSubject:
    """One role by its formula. Subclasses write `forward`; a randomised one (dropout) reads `self.training`."""

    role: ClassVar[str]
    attributes: Mapping[str, Any] = {}

    def __init__(self, config: Mapping[str, Any], dtype: Any = np.float64) -> None:
        self.config = ROLES[self.role].settings(config)
        self.dtype = np.dtype(dtype)
        self.training = False
        self.rng = np.random.default_rng(0)
        self.weights = self.initialise()

    def initialise(self) -> Arrays:
        """Fresh parameters: Xavier-uniform matrices, zero biases, unit norm weights."""
        weights = {}
        for name, shape in ROLES[self.role].params(self.config).items():
            if len(shape) > 1:
                limit = (6.0 / sum(shape)) ** 0.5
                rng = np.random.default_rng(zlib.crc32(name.encode()))
                weights[name] = rng.uniform(-limit, limit, shape).astype(self.dtype)
            else:
                weights[name] = np.full(shape, float(name.endswith("weight")), self.dtype)
        return weights

    def forward(self, p: Arrays, **inputs: Any) -> Arrays:
        raise NotImplementedError(f"{type(self).__name__} has no formula")

    def __call__(self, **inputs: Any) -> Arrays:
        return self.forward(self.weights, **{name: self._cast(value) for name, value in inputs.items()})

    def _cast(self, value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.dtype.kind == "f":
            return value.astype(self.dtype)
        if isinstance(value, list):
            return [self._cast(item) for item in value]
        return value

    def params(self) -> Arrays:
        return {name: value.copy() for name, value in self.weights.items()}

    def load(self, params: Mapping[str, Array]) -> None:
        if set(params) != set(self.weights):
            raise ValueError(f"{self.role}: expected parameters {sorted(self.weights)}, got {sorted(params)}")
        self.weights = {name: np.asarray(value, self.dtype) for name, value in params.items()}

    def train(self, mode: bool = True) -> None:
        self.training = mode

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        """Central differences of ``sum(out * cotangent)`` in float64: slow, independent of any engine."""
        floating = {k: np.array(v, np.float64) for k, v in inputs.items() if _is_float(v)}
        rest = {k: v for k, v in inputs.items() if k not in floating}
        weights = {k: v.astype(np.float64) for k, v in self.weights.items()}

        def value() -> float:
            return float(np.sum(self.forward(weights, **floating, **rest)["out"] * cotangent))

        return (
            {k: differences(value, v) for k, v in floating.items()},
            {k: differences(value, v) for k, v in weights.items()},
        )


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


S = TypeVar("S", bound=type[ReferenceSubject])


def reference(role: str) -> Any:
    """Register a class as the reference of `role`."""

    def register(cls: S) -> S:
        cls.role = role
        REFERENCE[role] = cls
        return cls

    return register


class ReferenceImplementation:
    """Every role that has a formula; `overrides` replaces some classes (a mutant)."""

    def __init__(self, overrides: Mapping[str, type[ReferenceSubject]] | None = None, name: str = "reference") -> None:
        self.name = name
        self.classes = {**REFERENCE, **(overrides or {})}

    def build(self, role: str, config: Mapping[str, Any]) -> ReferenceSubject:
        if role not in self.classes:
            raise NotProvided(f"the numpy reference has no {role}")
        return self.classes[role](config)
