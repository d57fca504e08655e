"""Checks that also run on a model made with its other options, where a mistake may hide from the default."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from conformance.draw import Draw
from conformance.evidence import Evidence
from conformance.protocol import NotProvided


def with_every_option(function: Callable[[Any, Draw], Evidence]) -> Callable[[Any, Draw], Evidence]:
    """The check, and where the default keeps it or has nothing of it, the same of each variant: a failure says which.

    What a variant raises says nothing: its options may not go together.
    """

    @wraps(function)
    def run(impl: Any, draw: Draw) -> Evidence:
        found: Evidence | None = None
        reason: NotProvided | None = None
        try:
            found = function(impl, draw)
        except NotProvided as error:
            reason = error
        if found is None or found.ok:
            for option, other in getattr(impl, "variants", tuple)():
                try:
                    evidence = function(other, draw)
                except Exception:
                    continue
                if not evidence.ok:
                    return evidence.saying(diagnosis=f"With {option}: {evidence.diagnosis}")
        if found is None:
            assert reason is not None
            raise reason
        return found

    return run
