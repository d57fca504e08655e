"""Checks of weights that parts of a model share."""

from __future__ import annotations

from typing import Any

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, true
from conformance.protocol import NotProvided


@check("tied-weights-belong-to-two-parts", roles=("module",))
def tied_to_a_part(impl: Any, draw: Draw) -> Evidence:
    """A weight that a part takes from a table is the weight of a table of the model."""
    tied, lost = impl.build("module", {}).ties()
    if not tied:
        raise NotProvided("no part of it takes the weight of another")
    return true(
        "the weight is shared", not lost, expected="a table of the model", got="a table that is dropped"
    ).saying(
        diagnosis="A part takes its weight from a new table that nothing else uses: it is tied to nothing.",
        place=lost[0] if lost else "",
        mend="take the weight of the model's own embedding",
    )
