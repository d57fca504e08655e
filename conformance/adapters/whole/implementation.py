"""What `--impl` gives for PyTorch code: the whole model as it runs, and its components in the roles that they play.

`kind` is what the model is (a key of the whole models' roles), None for a component by itself. `untested` says, in one
sentence each, what of the thing that was pointed at could not be tested, and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.adapters import Specification, SpecificationError
from conformance.adapters.inference.facts import Unresolved, describe
from conformance.adapters.torch_module import TorchModuleImplementation
from conformance.adapters.whole.making import Made, made_of
from conformance.adapters.whole.model import WholeModel, whole_model
from conformance.protocol import WHOLE_MODELS, NotProvided


class PointedImplementation:
    """A class, a function, an expression or an instance of PyTorch code.

    Raises Unresolved, in one sentence, when neither a whole model nor a component can be run.
    """

    def __init__(self, found: Any, spec: Specification) -> None:
        self.name = spec.name.partition("(")[0] or spec.text
        self.untested: list[str] = []
        self.whole: WholeModel | None = None
        self.parts: TorchModuleImplementation | None = None
        role = spec.role or None
        reasons: list[SpecificationError] = []
        made: Made | None = None
        try:
            made = made_of(found, spec)
        except SpecificationError as error:
            reasons.append(error)
        if made is not None and role in (None, *WHOLE_MODELS):
            try:
                self.whole = whole_model(made, role or "")
            except SpecificationError as error:
                reasons.append(error)
        if role is None or role not in WHOLE_MODELS:
            try:
                self.parts = TorchModuleImplementation(made.cls if made and isinstance(found, type) else found, role)
            except Exception as error:
                told = error if isinstance(error, SpecificationError) else Unresolved(" ".join(str(error).split()))
                reasons.append(told)
        self.running = self.whole
        if self.whole is not None and not self._is_whole(self.whole):
            self.whole = None
        if self.running is None and self.parts is None:
            asked_for_a_part = role is not None and role not in WHOLE_MODELS
            raise reasons[-1 if asked_for_a_part else 0]  # what comes later follows from the first
        if self.whole is not None and not self.whole.kind:
            self.untested.append(
                f"{self.name} is a whole model, and what it shall be is open: {self.whole.facts[-1].evidence}"
            )
        if self.whole is None and self.parts is not None:
            self.untested += [
                f"{r.cls.__name__} as {r.role}: it is not the formula in any layout that is known"
                for r in self.parts.resolutions.values()
                if not r.runs or not r.fits
            ]

    def _is_whole(self, whole: WholeModel) -> bool:
        """Whether it is a model and no component: it reads tokens through a table, or images, or plays no role."""
        main = whole.calling.main
        if main.vocab or len(main.shape) == 3:
            return len(list(whole.module.modules())) > 3
        return self.parts is None

    @property
    def kind(self) -> str | None:
        return (self.whole.kind or None) if self.whole else None

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles that it plays, a whole model's first."""
        whole = ("module", *(("model", self.kind) if self.kind else ())) if self.running else ()
        return (*whole, *(self.parts.roles if self.parts else ()))

    def build(self, role: str, config: Mapping[str, Any]) -> Any:
        """A subject: of a whole model a copy, whose experiments leave the others alone. Raises NotProvided."""
        if role == "module" and self.running is not None:
            return self.running.twin()
        if role in WHOLE_MODELS:
            if self.whole is None or role not in ("model", self.whole.kind):
                raise NotProvided(f"{self.name} is no {role.replace('_', ' ')}")
            return self.whole.twin()
        if self.parts is None:
            raise NotProvided(f"{self.name} has no component that plays the role {role}")
        return self.parts.build(role, config)

    @property
    def notes(self) -> list[str]:
        """What was inferred, a line a fact."""
        lines: list[str] = []
        if self.whole is not None:
            lines += describe(self.name, self.whole.kind or "model", self.whole.facts).splitlines()
        return lines + (self.parts.notes if self.parts else [])

    def describe(self) -> str:
        return "\n".join(self.notes)
