"""What `--impl` gives for PyTorch code: the whole model as it runs, and its components in the roles that they play.

`kind` is what the model is (a key of the whole models' roles), None for a component by itself. `untested` says, in one
sentence each, what of the thing that was pointed at could not be tested, and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.adapters import Specification, SpecificationError
from conformance.adapters.inference.facts import DOUBT, Unresolved, describe
from conformance.adapters.stated import Stated, StatedError
from conformance.adapters.torch_module import TorchModuleImplementation
from conformance.adapters.whole.making import Made, made_of
from conformance.adapters.whole.model import WholeModel, whole_model
from conformance.adapters.whole.reference import Difference, first_difference
from conformance.protocol import WHOLE_MODELS, NotProvided


class PointedImplementation:
    """A class, a function, an expression or an instance of PyTorch code.

    stated: what the user says of it. reference: a second one to compare it with, and its specification; `difference`
    is the first module whose output differs. Raises Unresolved, in one sentence, when neither a whole model nor a
    component can be run, and StatedError when what is stated cannot be so.
    """

    def __init__(
        self,
        found: Any,
        spec: Specification,
        stated: Stated | None = None,
        reference: tuple[Any, Specification] | None = None,
    ) -> None:
        stated = stated or Stated()
        self.name = spec.name.partition("(")[0] or spec.text
        self.untested: list[str] = []
        self.whole: WholeModel | None = None
        self.parts: TorchModuleImplementation | None = None
        role = spec.role or None
        reasons: list[str] = []
        made: Made | None = None
        try:
            made = made_of(found, spec)
        except SpecificationError as error:
            reasons.append(str(error))
        whole_error: SpecificationError | None = None
        if made is not None and role in (None, *WHOLE_MODELS):
            try:
                self.whole = whole_model(made, role or "", stated)
            except StatedError:
                raise
            except SpecificationError as error:
                whole_error = error
        if whole_error is not None and stated.options:  # what is stated speaks of the whole
            raise whole_error
        if role is None or role not in WHOLE_MODELS:
            try:
                self.parts = TorchModuleImplementation(made.cls if made and isinstance(found, type) else found, role)
            except Exception as error:
                reasons.append(" ".join(str(error).split()))
        self.running = self.whole
        self.reference = reference[1].text or reference[1].name if reference else ""
        self.difference = self._difference_from(*reference, role or "", stated) if reference else None
        if self.whole is not None and not self._is_whole(self.whole):
            self.whole = None
        if self.running is None and self.parts is None:
            raise whole_error or Unresolved(reasons[-1] if reasons else f"{self.name} plays no role")
        if self.whole is not None and not self.whole.kind:
            self.untested.append(f"{self.name} is a whole model, and what it shall be is open: {self.whole.facts[-1].evidence}")
        if self.whole is None and self.parts is not None:
            self.untested += [
                f"{r.cls.__name__} as {r.role}: it is not the formula in any layout that is known"
                for r in self.parts.resolutions.values()
                if not r.runs or not r.fits
            ]

    def _difference_from(self, found: Any, spec: Specification, role: str, stated: Stated) -> Difference | None:
        if self.running is None:
            raise StatedError(f"--claims-reference: {self.name} is no model that could be run, so nothing is compared")
        theirs = whole_model(made_of(found, spec), role, Stated(input=stated.input, device=stated.device))
        return first_difference(self.running, theirs)

    def _is_whole(self, whole: WholeModel) -> bool:
        """Whether it is a model and no component: it reads tokens through a table, or images, or plays no role."""
        main = whole.calling.main
        if main.vocab or len(main.shape) == 3:
            return len(list(whole.module.modules())) > 3
        return self.parts is None

    @property
    def kind(self) -> str | None:
        return (self.whole.kind or None) if self.whole else None

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
        if self.difference is not None:
            lines.append(f"{DOUBT}{self.difference}")
        elif self.reference:
            lines.append(f"every module gives what it gives in the reference {self.reference}")
        if self.whole is not None:
            lines += describe(self.name, self.whole.kind or "model", self.whole.facts).splitlines()
        return lines + (self.parts.notes if self.parts else [])

    def describe(self) -> str:
        return "\n".join(self.notes)
