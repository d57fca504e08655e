"""Checks of a training run: how its script writes, as its text says."""

from __future__ import annotations

from typing import Any

from conformance.check import check
from conformance.checks.watched_gradients import told_by_text
from conformance.checks.watched_labels import RUN, broken
from conformance.draw import Draw
from conformance.evidence import Evidence


@check("run-writing-goes-on-from-the-newest", roles=RUN)
def goes_on_from_the_newest(impl: Any, draw: Draw) -> Evidence:
    """Where a text that is written is too long for the model, it is handed the newest tokens."""
    from conformance.watch import writing

    step, found = told_by_text(
        impl, writing.oldest_kept, "no loop was seen that hands the first tokens of what it writes to the model"
    )
    return broken(
        step,
        "which tokens of a long text the model is handed",
        "the newest",
        f"the first: {found.what}",
        at=lambda lines: lines.first(found.place),
        diagnosis=f"{found.what} keeps the first tokens of a text that grows at its end: once it is full, every next "
        "token is written after the same ones.",
        mend="ids[:, -block_size:]",
    )


@check("run-writing-stops-when-all-have-ended", roles=RUN)
def stops_when_all_have_ended(impl: Any, draw: Draw) -> Evidence:
    """A batch is written until all of its rows have come to their ends."""
    from conformance.watch import writing

    step, found = told_by_text(
        impl, writing.stopped_by_one, "no loop was seen that stops with the first row that has ended"
    )
    return broken(
        step,
        "when a batch is written",
        "when all rows have ended",
        f"when one has: {found.what}",
        at=lambda lines: lines.first(found.place),
        diagnosis="Writing stops when the first row of the batch has come to its end: the others are cut off there.",
        mend="if done.all(): break",
    )


@check("run-masks-of-writing-are-read", roles=RUN)
def masks_are_read(impl: Any, draw: Draw) -> Evidence:
    """A mask that a loop extends by what it writes is handed to the model."""
    from conformance.watch import writing

    step, found = told_by_text(impl, writing.unread_masks, "no mask was seen that a loop extends and nothing reads")
    return broken(
        step,
        f"who reads {found.what}",
        "the model",
        "nobody",
        at=lambda lines: lines.first(found.place),
        diagnosis=f"{found.what} is made longer with each token and handed to nothing: the model sees the padding in "
        "front of short texts.",
        mend=f"hand {found.what} to the model",
    )
