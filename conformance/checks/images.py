"""Checks of models that read images of several sizes."""

from __future__ import annotations

from typing import Any

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, true
from conformance.protocol import NotProvided


@check("resized-positions-follow-rows-and-columns", roles=("model",))
def resized_positions(impl: Any, draw: Draw) -> Evidence:
    """The table of positions of a wide or a high image is resized so that each patch has the vector of its own row and
    column."""
    subject = impl.build("model", {})
    runs = subject.resized_positions()
    if not runs:
        raise NotProvided("it resizes no table of positions for images of other sizes")
    parts, exchanged = [], False
    for run in runs:
        for what, told, along in (("row", run.rows, 1), ("column", run.columns, 0)):
            spread = float((told.amax(along) - told.amin(along)).max())
            line = told.select(along, 0)
            name = f"the {what}s that positions tell in an image of {run.size[0]} x {run.size[1]} patches"
            grows = bool(line[-1] - line[0] > 0)
            parts.append(true(name, grows and spread < 1e-3, got=told.numpy().round(2).tolist()))
        exchanged = exchanged or bool((run.rows[0, -1] > run.rows[0, 0] + 1e-3).item())
    words = "rows and columns are exchanged" if exchanged else "a patch gets the position of another place"
    is_brought_back = bool(subject.line_of(r"permute\(0, *2, *3, *1\)"))
    sized = subject.line_of(r"scale_factor *=|size *= *\(") if exchanged and is_brought_back else ""
    return all_of(*parts).saying(
        diagnosis=f"The table of positions is resized, and {words}.",
        place=sized or str(runs[0].place or "") or subject.place(),
        mend="resize to (rows, columns) of patches, in this order"
        if sized
        else "bring (1, D, rows, columns) back by permute(0, 2, 3, 1), then reshape",
    )
