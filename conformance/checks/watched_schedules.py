"""Checks of a training run: whether what a schedule plans comes true before the run is over."""

from __future__ import annotations

from typing import Any

from conformance.check import check
from conformance.checks.watched_gradients import steps_of
from conformance.checks.watched_labels import RUN, broken, kept, run_of
from conformance.checks.watched_rates import cosines_of, schedules_of
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
        is_certain=found.is_in_passes or not descents.may_end_early(run),
        at=lambda lines: lines.first(found.last.place if found.is_rare else "", lines.total(run, found.step)),
        diagnosis=f"The rate has not come down when the script ends ({found.said}): "
        + ("the schedule is stepped in few of the steps." if found.is_rare else "the schedule is planned for more.")
        + (" It is planned in backward passes, of which a step takes several." if found.is_in_passes else ""),
        mend="plan it for the steps that the optimizer makes, and step it with each: epochs * batches / accumulation",
    )


@check("run-cosine-counts-what-it-is-stepped-with", roles=RUN)
def counts_what_it_is_stepped_with(impl: Any, draw: Draw) -> Evidence:
    """A cosine whose period is the number of epochs is stepped once an epoch."""
    from conformance.watch import loops

    run = run_of(impl)
    steps = steps_of(run)
    found = cosines_of(run)
    if not found:
        raise NotProvided("no CosineAnnealingLR was seen")
    last = found[-1]
    if last.count < 1.5 * last.period or not loops.counts_epochs(run, last):
        return kept("steps of the cosine, beside T_max", f"{last.count}, {last.period}")
    return broken(
        last,
        "steps of the cosine",
        f"T_max, {last.period}, at most",
        last.count,
        at=lambda lines: lines.first(run.schedulers.get(last.scheduler, ""), lines.total(run, steps[-1]), last.place),
        diagnosis=f"T_max is the number of epochs, and the schedule is stepped with each batch: after {last.period} "
        "steps its rate rises again.",
        mend="T_max=epochs * len(loader), or step the schedule once an epoch",
    )


@check("run-schedule-is-planned-in-batches", roles=RUN)
def planned_in_batches(impl: Any, draw: Draw) -> Evidence:
    """A schedule that is stepped with each batch is not planned for as many steps as there are rows."""
    from conformance.watch import plans

    run = run_of(impl)
    steps = steps_of(run)
    found = plans.rows_for_batches(run)
    if not found or len(schedules_of(run)) < 0.9 * len(steps):
        raise NotProvided("no schedule of batches was seen whose number of steps is one of rows")
    what, place = found[0]
    return broken(
        steps[0],
        "how many steps the schedule is planned for",
        "epochs times batches",
        f"{what}: epochs times rows",
        at=lambda lines: lines.first(place),
        diagnosis="The schedule is planned for a step a row, and is stepped with each batch: the training is over long "
        "before it.",
        mend="count the batches: epochs * len(loader)",
    )


@check("run-rate-of-a-cosine-comes-down", roles=RUN)
def rate_of_a_cosine(impl: Any, draw: Draw) -> Evidence:
    """Rates that follow half a cosine wave, whatever sets them, are at its end when the run is."""
    from conformance.watch import descents, waves

    run = run_of(impl)
    steps_of(run)
    if not run.whole:
        raise NotProvided("the script was not watched to its end")
    found = [*waves.waves(run)]
    if not found:
        raise NotProvided("no rates were seen that follow a cosine")
    wrong = next((one for one in found if one.turned < waves.SHORT), None)
    if wrong is None:
        return kept("rates that follow a cosine, and have come down", len(found))
    return broken(
        wrong.last,
        "how far the cosine of the rate came when the script ended",
        "to its end",
        f"{wrong.turned:.0%} of the way",
        at=lambda lines: lines.first(lines.total(run, wrong.last), wrong.last.place),
        diagnosis=f"The rate follows half a cosine wave, and has gone {wrong.turned:.0%} of the way at the end: it is "
        "planned for more steps than the run makes.",
        mend="plan it for the steps that the optimizer makes: epochs * batches / accumulation",
        is_certain=waves.is_in_passes(run, wrong) or not descents.may_end_early(run),
    )
