"""Any nn.Module class as the implementation under test, without code of the user's (``--impl file.py:Class``).

The class is inferred once (`conformance.adapters.inference`): which role it plays, how it is constructed and
called, where its parameters are, what its masks mean. Each fact has its evidence, for the report to print.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch import nn

from conformance.adapters.inference.construct import Constructor
from conformance.adapters.inference.facts import Fact, Unresolved, describe
from conformance.adapters.inference.parts import PartOf, components, is_whole, whole_model
from conformance.adapters.inference.probes import SIZES
from conformance.adapters.inference.resolve import Resolution
from conformance.adapters.torch_subject import TorchSubject
from conformance.protocol import NotProvided

__all__ = ["Fact", "TorchModuleImplementation", "Unresolved"]


class TorchModuleImplementation:
    """A user's class in the role that it plays, or a whole model in the roles of its components.

    Raises Unresolved, with what to write, when no role can be told. role: forces the role (of a whole model: picks
    the component). inference: the facts found; `notes` are their lines, `describe()` their text.
    """

    def __init__(self, cls: type[nn.Module], role: str | None = None) -> None:
        if not isinstance(cls, type):
            raise Unresolved(f"{type(cls).__name__} is an instance; name the class, which is built in many sizes")
        self.name = cls.__name__
        self.unresolved: list[str] = []
        self.resolutions = {found.role: found for found in self._components(cls, role)}
        if not self.resolutions:
            whole = Resolution(cls, role)
            self.resolutions = {whole.role: whole}

    def _components(self, cls: type[nn.Module], role: str | None) -> Iterator[Resolution]:
        """The components of a whole model that play a role, the first of each role; none of a class that is a part."""
        try:
            constructor = Constructor(cls)
            model = whole_model(constructor, {"d_model": SIZES["d_model"], "n_heads": 1, "d_ff": SIZES["d_ff"]})
        except Exception:  # no model by itself; as a component it may have more to say
            return
        if not is_whole(constructor, model):
            return
        found: set[str] = set()
        for path, part in components(model):
            name = f"{path} ({type(part).__name__})"
            try:
                resolution = Resolution(type(part), None, PartOf(constructor, path))
            except Exception as error:
                self.unresolved.append(f"  {name}: {' '.join(str(error).split())}")
                continue
            if not resolution.runs:
                self.unresolved.append(f"  {name}: it cannot be run as {resolution.role}")
            elif resolution.role not in found and role in (None, resolution.role):
                found.add(resolution.role)
                yield resolution

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that it plays."""
        return tuple(self.resolutions)

    @property
    def role(self) -> str:
        """Its role, or the roles of its components."""
        return ", ".join(self.resolutions)

    @property
    def inference(self) -> list[Fact]:
        return [fact for resolution in self.resolutions.values() for fact in resolution.facts]

    def build(self, role: str, config: Mapping[str, Any]) -> TorchSubject:
        """Raises NotProvided for other roles, and for options that the class has not."""
        if role not in self.resolutions:
            raise NotProvided(f"{self.name} plays the role {self.role}")
        return self.resolutions[role].build(config)

    @property
    def notes(self) -> list[str]:
        """The inference, a line a fact, for the report."""
        return self.describe().splitlines()

    def describe(self) -> str:
        """The inference as text, a fact a line, component by component; then the components without a role."""
        told = [describe(f"{r.cls.__name__} as {r.role}", r.facts) for r in self.resolutions.values()]
        return "\n".join([*told, *(["no role was found for"] if self.unresolved else []), *self.unresolved])
