"""An implementation that is a whole model alone, without its components, so that a claim about it is asked quickly.

`told` asks a claim of a specimen with changes in its text; `pointed` is a class as `--impl` points at it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import conformance.checks  # noqa: F401
from conformance.adapters import Specification
from conformance.adapters.whole.implementation import PointedImplementation
from conformance.adapters.whole.model import WholeModel, whole_model
from conformance.check import CHECKS
from conformance.mutants.source import Specimen
from conformance.protocol import NotProvided
from conformance.runner import run_check


class Whole:
    """The model as it is; what is asked works on a copy."""

    def __init__(self, model: WholeModel) -> None:
        self.model = model

    def build(self, role: str, config: Mapping[str, Any]) -> WholeModel:
        if role not in ("module", "model", self.model.kind):
            raise NotProvided(role)
        return self.model.twin()


def told(made: Callable[..., Any], specimen: Specimen, claim: str, changes: Mapping[str, str]) -> str:
    """The verdict of a claim about a specimen in whose text each key is replaced by its value. made: the fixture."""
    text = specimen.source
    for old, new in changes.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    return run_check(CHECKS[claim], Whole(whole_model(made(specimen.name, text))), "quick").verdict.name


def pointed(cls: type) -> PointedImplementation:
    """A class of a test's file, as the suite is pointed at it."""
    return PointedImplementation(cls, Specification("", cls.__module__, cls.__name__))
