"""What stands between a check and the implementation under test: `Observed`.

It completes configurations from the role table, hands a subject copies of its inputs (one that overwrites them
cannot spoil what the check compares with), turns whatever an implementation leaves out into `NotProvided`, and
notes the conventions (`attributes`) and the code (`places`) of each subject for the report.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from conformance.check import Check
from conformance.draw import Draw
from conformance.evidence import Evidence
from conformance.places import code_of
from conformance.protocol import AS_THEY_ARE, ROLES, WHOLE_MODELS, Array, Arrays, DrawsAnew, NotProvided


class Observed:
    """An implementation seen through the protocol. `attributes` and `places` collect those of the subjects, by role."""

    def __init__(self, impl: Any) -> None:
        self.impl = impl
        self.name = str(getattr(impl, "name", type(impl).__name__))
        self.infers = bool(getattr(impl, "infers", False))
        """Whether nobody said what its parts shall be: the roles that they play were told by looking."""
        self.is_large = bool(getattr(impl, "is_large", False))
        """Whether it has so many parameters that the memory may be too small for a claim about it."""
        self.attributes: dict[str, dict[str, Any]] = {}
        self.places: dict[str, str] = {}

    def asked(self, check: Check, draw: Draw) -> Evidence:
        """What a check finds, in the surroundings that the implementation asks for: of random answers, where only a
        dropout draws in evaluation mode, as if it dropped nothing."""
        surroundings = getattr(self.impl, "while_asked", None)
        around: AbstractContextManager[Any] = surroundings(check.roles) if surroundings else nullcontext()
        with around:
            try:
                return self._asked(check, draw)
            except DrawsAnew:
                undropped = getattr(self.impl, "undropped", None)
                if undropped is None:
                    raise
                with undropped():
                    return self._asked(check, draw)

    def _asked(self, check: Check, draw: Draw) -> Evidence:
        evidence = check.function(self, draw)
        if isinstance(evidence, Evidence) and not evidence.ok and self._draws_anew(check):
            raise DrawsAnew
        return evidence

    def _draws_anew(self, check: Check) -> bool:
        """Whether a check of a component would speak of numbers that are drawn anew in each call."""
        is_of_the_whole = not {"module", *WHOLE_MODELS}.isdisjoint(check.roles)
        return not is_of_the_whole and bool(getattr(self.impl, "draws_anew", False))

    def variants(self) -> Iterator[tuple[str, Observed]]:
        """The same thing with its other options: each as it would be written, and what it gives."""
        for option, other in getattr(self.impl, "variants", tuple)():
            yield option, Observed(other)

    def build(self, role: str, config: Mapping[str, Any]) -> Any:
        """A subject for `role`; `config` reaches the implementation complete. A whole model and a training
        run come as they are: there is far more to them than outputs. Raises NotProvided."""
        subject = self.impl.build(role, ROLES[role].settings(config))
        if subject is None:
            raise NotProvided(f"{self.name} has no {role}")
        said = getattr(subject, "attributes", {})
        attributes = dict(said or {})
        if said is not None:
            self.attributes.setdefault(role, {}).update(attributes)
        if role in AS_THEY_ARE:
            return subject
        self.places.setdefault(role, code_of(subject))
        return ObservedSubject(role, subject, attributes)


class ObservedSubject:
    """A subject whose missing methods and outputs raise NotProvided. `dtype` is float32 where it names none."""

    def __init__(self, role: str, subject: Any, attributes: Mapping[str, Any]) -> None:
        self.role = role
        self.subject = subject
        self.attributes = attributes
        self.dtype = np.dtype(getattr(subject, "dtype", None) or np.float32)

    def __call__(self, **inputs: Any) -> Arrays:
        if not callable(self.subject):
            raise NotProvided(f"the {self.role} cannot be called")
        outputs = self.subject(**{name: _copied(value) for name, value in inputs.items()})
        return Outputs(self.role, outputs if isinstance(outputs, Mapping) else {_first_output(self.role): outputs})

    def params(self) -> Arrays:
        return dict(self._method("params")())

    def load(self, params: Mapping[str, Array]) -> None:
        self._method("load")({name: np.array(value) for name, value in params.items()})

    def vjp(self, inputs: Mapping[str, Any], cotangent: Array) -> tuple[Arrays, Arrays]:
        copies = {name: _copied(value) for name, value in inputs.items()}
        of_inputs, of_params = self._method("vjp")(copies, np.array(cotangent))
        return Outputs(self.role, of_inputs), Outputs(self.role, of_params)

    def train(self, mode: bool = True) -> None:
        self._method("train")(mode)

    def _method(self, name: str) -> Any:
        method = getattr(self.subject, name, None)
        if method is None:
            raise NotProvided(f"the {self.role} has no {name}()")
        return method


class Outputs(dict[str, Any]):
    """Arrays by name. An optional output that is absent (or None) raises NotProvided when it is read."""

    def __init__(self, role: str, values: Mapping[str, Any]) -> None:
        super().__init__({name: value for name, value in values.items() if value is not None})
        self.role = role

    def __missing__(self, name: str) -> Any:
        if name == _first_output(self.role):
            raise KeyError(f"the {self.role} returned no {name!r}, only {', '.join(self) or 'nothing'}")
        raise NotProvided(f"the {self.role} returns no {name!r}")


def _first_output(role: str) -> str:
    return next(iter(ROLES[role].outputs))


def _copied(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value
