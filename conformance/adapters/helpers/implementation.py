"""What stands beside a model, behind the protocol: its file's helpers, and its file's functions in their roles."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from conformance.adapters import Specification
from conformance.adapters.functions.implementation import FunctionImplementation, roles_of
from conformance.adapters.helpers.acting import acts
from conformance.adapters.helpers.evaluating import evaluated, is_evaluator
from conformance.adapters.helpers.examining import Examined, examine
from conformance.adapters.helpers.handed import names_of
from conformance.adapters.helpers.neighbours import compared, takes_texts
from conformance.adapters.helpers.stopping import is_stopper, stopped
from conformance.adapters.helpers.tokenizing import ended, is_tokenizer
from conformance.adapters.helpers.training import is_trainer, trained
from conformance.adapters.helpers.trial import HELPERS
from conformance.adapters.whole.model import WholeModel
from conformance.protocol import NotProvided

ROLE = "helpers"
BESIDE = ("cross_entropy", "lr_schedule", "sampling_filter", "clip_grad_norm")
"""The roles of functions and classes that are tested where a model is pointed at: those that need no model. Masks are
not among them: what they do shows in the model that takes them."""


def is_helper(function: Any) -> bool:
    """Whether the name of a function, or what it is handed to, is that of a kind of helper."""
    names = names_of(function)
    return any(kind.fits(*names) for kind in HELPERS)


class HelpersImplementation:
    """Functions and classes of a file: the roles that they play, and the claims about helpers. They are called when
    first asked.

    subject: the model beside which they stand, which those that train are given; None where there is none."""

    kind = None

    def __init__(self, functions: Sequence[Callable[..., Any]], name: str, subject: WholeModel | None = None) -> None:
        self.name, self.subject = name, subject
        self.untested: list[str] = []
        plain = [one for one in functions if not isinstance(one, type)]
        self.trainers = [
            one for one in plain if subject is not None and is_trainer(one) and not acts(one, "torch.save")
        ]
        self.of_texts = [one for one in plain if subject is not None and takes_texts(one) and not acts(one)]
        self.evaluators = [
            one for one in plain if subject is not None and is_evaluator(one) and not acts(one, "torch.save")
        ]
        self.stoppers = [one for one in functions if is_stopper(one)]
        self.tokenizers = [one for one in functions if is_tokenizer(one)]
        beside_it = [*self.trainers, *self.of_texts, *self.evaluators]
        self.functions = [one for one in plain if is_helper(one) or one in beside_it]
        self.served: dict[str, list[FunctionImplementation]] = {}
        for function in functions:
            proposed = roles_of(function)
            if not proposed or proposed[0] not in BESIDE:
                continue
            with suppress(Exception):  # it does not run in the role that its name proposes
                text = f"{function.__module__}:{function.__name__}"
                one = FunctionImplementation(function, Specification(text, function.__module__, function.__name__))
                for role in one.roles:
                    self.served.setdefault(role, []).append(one)
        self._examined: Examined | None = None

    @property
    def roles(self) -> tuple[str, ...]:
        return (*((ROLE,) if self.functions or self.stoppers or self.tokenizers else ()), *self.served)

    @property
    def says_something(self) -> bool:
        """Whether one of them plays a role, or was held to a claim: a name alone makes no helper."""
        return bool(self.served or self.examined.tested)

    @property
    def examined(self) -> Examined:
        """What the claims about helpers found; each function is called once only."""
        if self._examined is None:
            self._examined = examine(self.functions)
            self._examined.add(stopped(self.stoppers))
            kind = None if self.subject is None else self.subject.kind or ""
            self._examined.add(ended(self.tokenizers, kind))
            if self.subject is not None:
                self._examined.add(trained(self.trainers, self.subject))
                self._examined.add(evaluated(self.evaluators, self.subject))
                self._examined.add(compared(self.of_texts, self.subject))
        return self._examined

    def build(self, role: str, config: Mapping[str, Any]) -> Any:
        """The first function in the role that has the settings; of helpers what was found. Raises NotProvided."""
        if role == ROLE and ROLE in self.roles:
            return self.examined
        reason = NotProvided(f"no function beside {self.name} plays the role {role}")
        for one in self.served.get(role, ()):
            try:
                return one.build(role, config)
            except NotProvided as error:
                reason = error
        raise reason

    @property
    def notes(self) -> list[str]:
        """Which function plays which role."""
        shown = {one.name: one for ones in self.served.values() for one in ones}
        lines = [line for one in shown.values() for line in one.notes]
        if helping := dict.fromkeys(one.__name__ for one in (*self.functions, *self.stoppers, *self.tokenizers)):
            lines.append(f"helpers beside it: {', '.join(helping)}")
        return lines

    def describe(self) -> str:
        return "\n".join(self.notes)
