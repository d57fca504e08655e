"""Mutants: deliberately wrong implementations, the proof that checks can fail.

A mutant of a component is a small class whose docstring is its defect. It derives from the reference subject of its
role and overrides what it gets wrong. (One of a whole model is a changed source: `conformance.mutants.source`.)
`breaks` names the claims that it violates; their checks must catch it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from conformance.adapters.reference.base import ReferenceImplementation, ReferenceSubject


class AnyMutant(Protocol):
    """What is known of every mutant. defect: in a sentence; breaks: the claims that it violates; roles: those that it
    plays; topic: what it stands among in tables; needs: the package that must be installed for it, beside numpy."""

    @property
    def name(self) -> str: ...
    @property
    def defect(self) -> str: ...
    @property
    def breaks(self) -> tuple[str, ...]: ...
    @property
    def known_as(self) -> str: ...
    @property
    def roles(self) -> tuple[str, ...]: ...
    @property
    def topic(self) -> str: ...
    @property
    def needs(self) -> str: ...


@dataclass(frozen=True)
class Mutant:
    """name: the class's; known_as: its number in a published list of mutants, if any ("A01"). usual: where authors
    choose it on purpose, if they do: it breaks what was asked for, and is no mistake where nothing was."""

    cls: type[ReferenceSubject]
    breaks: tuple[str, ...]
    known_as: str
    usual: str = ""
    needs: ClassVar[str] = ""
    """The package that must be installed for it, beside numpy."""

    @property
    def name(self) -> str:
        return self.cls.__name__

    @property
    def defect(self) -> str:
        return (self.cls.__doc__ or "").strip()

    @property
    def role(self) -> str:
        return self.cls.role

    @property
    def roles(self) -> tuple[str, ...]:
        return (self.role,)

    @property
    def topic(self) -> str:
        """The module of the zoo that it stands in."""
        return self.cls.__module__.rpartition(".")[2]

    def implementation(self) -> ReferenceImplementation:
        return ReferenceImplementation({self.role: self.cls}, name=f"mutant:{self.name}")


MUTANTS: dict[str, AnyMutant] = {}


def mutant(*, breaks: tuple[str, ...], known_as: str = "", usual: str = "") -> Any:
    """Register a wrong subject class. Raises ValueError when it has no docstring or its name is taken."""

    def register(cls: type[ReferenceSubject]) -> type[ReferenceSubject]:
        entry = Mutant(cls, tuple(breaks), known_as, usual)
        if not cls.__doc__:
            raise ValueError(f"mutant {cls.__name__} needs a docstring that states its defect")
        if entry.name in MUTANTS:
            raise ValueError(f"two mutants are called {entry.name}")
        MUTANTS[entry.name] = entry
        return cls

    return register
