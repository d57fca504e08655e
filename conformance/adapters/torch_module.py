"""Any nn.Module class as the implementation under test, without code of the user's (``--impl file.py:Class``).

The class is inferred once (`conformance.adapters.inference`): which role it plays, how it is constructed and
called, where its parameters are, what its masks mean. Each fact has its evidence, for the report to print.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from conformance.adapters.inference.facts import Fact, Unresolved, describe
from conformance.adapters.inference.resolve import Resolution
from conformance.adapters.torch_subject import TorchSubject
from conformance.protocol import NotProvided

__all__ = ["Fact", "TorchModuleImplementation", "Unresolved"]


class TorchModuleImplementation:
    """A user's class in the role that it plays. Raises Unresolved, with what to write, when that cannot be told.

    role: forces the role. inference: the facts found; `notes` are their lines, `describe()` their text.
    """

    def __init__(self, cls: type[nn.Module], role: str | None = None) -> None:
        if not isinstance(cls, type):
            raise Unresolved(f"{type(cls).__name__} is an instance; name the class, which is built in many sizes")
        self.name = cls.__name__
        self.resolution = Resolution(cls, role)
        self.role = self.resolution.role
        self.inference: list[Fact] = self.resolution.facts

    def build(self, role: str, config: Mapping[str, Any]) -> TorchSubject:
        """Raises NotProvided for other roles, and for options that the class has not."""
        if role != self.role:
            raise NotProvided(f"{self.name} plays the role {self.role}")
        return self.resolution.build(config)

    @property
    def notes(self) -> list[str]:
        """The inference, a line a fact, for the report."""
        return self.describe().splitlines()

    def describe(self) -> str:
        """The inference as text, a fact a line."""
        return describe(f"{self.name} as {self.role}", self.inference)
