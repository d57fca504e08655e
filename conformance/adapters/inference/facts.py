"""What an inference finds: `Fact`, and `Unresolved` for what nobody could guess."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from conformance.adapters import SpecificationError


class Unresolved(SpecificationError):
    """Something that cannot be inferred. The message says what, and what to write instead."""

    def __str__(self) -> str:
        return f"UNRESOLVED: {super().__str__()}"


class NoRole(Unresolved):
    """A class that plays none of the roles."""


class CannotRun(Unresolved):
    """A module whose role is known cannot compute it: perhaps by another convention, perhaps by a mistake in it."""


@dataclass(frozen=True)
class Fact:
    """One inferred property: `subject` is what it is about, `evidence` how it was found.

    doubtful: it is no convention of correct modules, and may be the mistake itself.
    """

    subject: str
    value: Any
    evidence: str
    doubtful: bool = False

    def __str__(self) -> str:
        return f"{DOUBT if self.doubtful else '  '}{self.subject}: {self.value}   ({self.evidence})"


DOUBT = "! "
"""How the line of a doubtful fact begins."""


RUNNING = "module"
"""What a component is that is tested as it runs, beside the roles that it may play."""


def describe(name: str, role: str, facts: Iterable[Fact]) -> str:
    """The facts of a class in a role as text: a line each, ``subject: value   (evidence)``, doubtful ones marked."""
    return "\n".join([f"{name} as {role}", *map(str, facts)])


def roles_in(notes: Iterable[str]) -> tuple[str, ...]:
    """The roles that `describe` was called with, from its lines; that a module runs is none."""
    said = (line.rpartition(" as ")[2] for line in notes if " as " in line and line[0] not in " !")
    return tuple(role for role in said if role != RUNNING)
