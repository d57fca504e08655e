"""What `--impl file.py:function` gives: a plain function, or a loss or schedule written as a class, in its roles."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from conformance.adapters import Specification, SpecificationError
from conformance.adapters.functions import (
    attention,
    decoding,
    losses,
    masks,
    models,
    positions,
    sampling,
    schedules,
    tensors,
)
from conformance.adapters.functions.roles import proposed
from conformance.adapters.functions.subjects import FunctionSubject, Served
from conformance.adapters.inference.facts import Unresolved, describe
from conformance.adapters.inference.roles import SUPPORTED
from conformance.protocol import NotProvided

RESOLVERS: dict[str, Callable[[Any], list[Served]]] = {
    "attention": attention.resolve,
    "causal_mask": masks.resolve,
    "padding_mask": masks.resolve,
    "cross_entropy": losses.resolve,
    "lr_schedule": schedules.resolve,
    "training_loss": models.resolve,
    "greedy_decode": decoding.resolve,
    "beam_search": decoding.resolve,
    "sampling_filter": sampling.resolve,
    "shift_targets": tensors.shift,
    "masked_tokens": tensors.masked_tokens,
    "clip_grad_norm": tensors.clip,
    "activation": tensors.activation,
    "softmax": tensors.softmax,
    "rope": positions.rope,
    "sinusoidal_positions": positions.sinusoids,
}
"""Role -> what finds a function's conventions in it. Each raises Unresolved, in one sentence."""


def plays(found: Any, role: str = "") -> bool:
    """Whether a function or class is to be tested as a function: its name and parameters propose a role."""
    return bool(roles_of(found, role))


def roles_of(found: Any, role: str = "") -> tuple[str, ...]:
    if role:
        is_component = isinstance(found, type) and role in SUPPORTED
        return (role,) if role in RESOLVERS and not is_component else ()
    return tuple(name for name in proposed(found) if name in RESOLVERS)


def of_class(cls: type, name: str) -> FunctionImplementation | None:
    """A class of positions whose forward is no function of vectors, or an activation without options, as a function.

    None where its name speaks of neither, or where it is no formula of theirs.
    """
    said = cls.__name__.lower()
    served: list[Served] = []
    if re.fullmatch(r"(new|tanh)?_?(gelu|silu|swish|relu)_?(new|tanh)?", said):
        with suppress(Exception):  # it takes options, or something else
            served = tensors.activation(tensors.as_function(cls))
    elif re.search(r"pos|rope|rotary|sinus|^pe$", said):
        served = positions.of_class(cls)
    return FunctionImplementation(cls, Specification(name, "", name), served) if served else None


class FunctionImplementation:
    """A function in the roles that it plays. served: what was found of it, if that is known.

    Raises Unresolved, in one sentence, when it plays none or does not run in the one that its name proposes.
    """

    kind = None

    def __init__(self, found: Any, spec: Specification, served: list[Served] | None = None) -> None:
        self.name = spec.name or found.__name__
        self.found = found
        self.untested: list[str] = []
        self.served = {one.role: one for one in served or ()}
        if not self.served:
            self.served = self._resolved(spec)

    def _resolved(self, spec: Specification) -> dict[str, Served]:
        found = self.found
        proposed_roles = roles_of(found, spec.role)
        if not proposed_roles:
            raise Unresolved(f"{self.name} plays no role that its name or parameters tell")
        role = proposed_roles[0]
        try:
            return {served.role: served for served in RESOLVERS[role](found)}
        except SpecificationError:
            raise
        except Exception as error:
            raise Unresolved(
                f"{self.name} as {role} raises {type(error).__name__}: {' '.join(str(error).split())}"
            ) from error

    def build(self, role: str, config: Mapping[str, Any]) -> FunctionSubject:
        """Raises NotProvided for another role, and for settings that the function has not."""
        if role not in self.served:
            raise NotProvided(f"{self.name} is no {role.replace('_', ' ')}")
        return FunctionSubject(self.served[role], config, self.found)

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that it plays."""
        return tuple(self.served)

    @property
    def notes(self) -> list[str]:
        """What was inferred, a line a fact."""
        lines: list[str] = []
        for served in self.served.values():
            lines += describe(self.name, served.role, served.facts).splitlines()
        return lines

    def describe(self) -> str:
        return "\n".join(self.notes)
