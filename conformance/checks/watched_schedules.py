"""Checks of a training run: whether what a schedule plans comes true before the run is over."""

from __future__ import annotations

from typing import Any

from conformance.check import check
from conformance.checks.watched_labels import RUN, broken, kept, run_of
from conformance.draw import Draw
from conformance.evidence import Evidence
from conformance.protocol import NotProvided


@check("run-schedule-comes-down", roles=RUN)
def comes_down(impl: Any, draw: Draw) -> Evidence:
    """A cosine schedule, or one cycle, is planned for the steps that the run makes: its rate has come down at the
    end."""
    from conformance.watch import descents

    run = run_of(impl)
    seen, found = descents.unfinished(run)
    if not seen:
        raise NotProvided("no run was seen to its end whose schedule comes down by a cosine or in one cycle")
    if found is None:
        return kept("schedules that have come down at the end", seen)
    return broken(
        found.step,
        "how far the schedule came when the script ended",
        "to its end",
        found.said,
        is_certain=not descents.may_end_early(run),
        at=lambda lines: lines.first(found.last.place if found.is_rare else "", lines.total(run, found.step)),
        diagnosis=f"The rate has not come down when the script ends ({found.said}): "
        + ("the schedule is stepped in few of the steps." if found.is_rare else "the schedule is planned for more."),
        mend="plan it for the steps that the optimizer makes, and step it with each: epochs * batches / accumulation",
    )
