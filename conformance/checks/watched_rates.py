"""Checks of a training run: schedules, and the course of the rate."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

from conformance.check import check
from conformance.checks.watched_gradients import steps_of, told_slip
from conformance.checks.watched_labels import RUN, broken, kept, run_of, unusual
from conformance.draw import Draw
from conformance.evidence import Evidence, note
from conformance.protocol import NotProvided
from conformance.slips.slip import FALLS, RISES
from conformance.slips.training import PLATEAUS


def schedules_of(run: Any) -> list[Any]:
    from conformance.watch.events import Schedule

    found = run.of(Schedule)
    if not found:
        raise NotProvided("no step of a scheduler was seen")
    return list(found)


def cosines_of(run: Any) -> list[Any]:
    """The steps of cosines, also of those that follow a warm-up in a SequentialLR."""
    found = [one.acting or one for one in schedules_of(run)]
    return [one for one in found if one.kind == "CosineAnnealingLR" and one.period]


@check("run-schedule-follows-the-step", roles=RUN)
def schedule_follows(impl: Any, draw: Draw) -> Evidence:
    """The schedule steps after the optimizer."""
    run = run_of(impl)
    schedules, steps = schedules_of(run), steps_of(run)
    first = schedules[0]
    mine = [step for step in steps if step.optimizer == first.optimizer]
    if mine and first.order < mine[0].order:
        return broken(
            first,
            "which steps first",
            "the optimizer",
            "the schedule",
            diagnosis="The schedule steps before the optimizer: the first rate of the schedule is never used.",
            mend="call scheduler.step() after optimizer.step()",
        )
    return kept("the schedule steps after the optimizer")


@check("run-schedule-advances-once-a-step", roles=RUN)
def advances_once(impl: Any, draw: Draw) -> Evidence:
    """Between two steps of an optimizer its schedule advances at most once."""
    run = run_of(impl)
    schedules, steps = schedules_of(run), steps_of(run)
    for first in {one.optimizer: one for one in reversed(schedules)}.values():
        mine = [step for step in steps if step.optimizer == first.optimizer]
        often = []
        for before, after in pairwise(mine):
            counts: dict[int, int] = {}
            for one in run.between(before.order, after.order, type(first)):
                counts[one.scheduler] = counts.get(one.scheduler, 0) + 1
            often.append(max(counts.values(), default=0))
        usual = sorted(often)[len(often) // 4] if often else 0  # a last group of batches may be a short one
        if len(often) >= 2 and usual >= 2:
            return broken(
                first,
                "how often the schedule advances for each step of the optimizer",
                "once",
                f"{usual} times",
                diagnosis=f"The schedule advances {usual} times for each step of the optimizer: it is over too early.",
                mend="call scheduler.step() once, where the optimizer steps",
            )
    return kept("the schedule advances at most once a step")


@check("run-schedule-drives-the-optimizer", roles=RUN)
def drives(impl: Any, draw: Draw) -> Evidence:
    """The optimizer whose rate a schedule sets is one that steps."""
    run = run_of(impl)
    schedules, steps = schedules_of(run), steps_of(run)
    stepping = {step.optimizer for step in steps}
    for one in schedules:
        if one.optimizer not in stepping:
            return broken(
                one,
                "the optimizer of the schedule",
                "one that steps",
                "one that never steps",
                at=lambda lines: lines.first(lines.later(run, one), run.schedulers.get(one.scheduler, ""), one.place),
                diagnosis="The schedule sets the rate of an optimizer that never steps: it was made for another one.",
                mend="make the schedule from the optimizer that the loop steps",
            )
    return kept("schedules set the rates of optimizers that step")


@check("run-rate-is-not-zero", roles=RUN)
def rate_not_zero(impl: Any, draw: Draw) -> Evidence:
    """Some step has a rate above zero; so does the first."""
    run = run_of(impl)
    steps = steps_of(run)
    rates = [max(step.rates, default=0.0) for step in steps]
    if max(rates) == 0 and len(rates) >= 3:
        return broken(
            steps[0],
            "the largest rate of all steps",
            "above 0",
            0,
            at=lambda lines: lines.rate(run, steps[0]),
            diagnosis=f"The learning rate is zero in all {len(rates)} steps.",
            mend="look at the schedule's formula: an integer division, or a step that is never counted",
        )
    still = next((mine for mine in _by_optimizer(steps) if len(mine) >= 3 and not any(map(max, _rates(mine)))), None)
    if still is not None:
        return broken(
            still[0],
            "the largest rate of an optimizer",
            "above 0",
            0,
            at=lambda lines: lines.total(run, still[0]),
            diagnosis=f"The learning rate is zero in all {len(still)} steps of this optimizer, from step "
            f"{still[0].step + 1} on.",
            mend="plan the schedule for all steps, those that another optimizer has made before included",
        )
    if rates[0] == 0:
        return note("the first step has the rate 0", f"it learns nothing ({steps[0].place})")
    return kept("rates are above zero", f"{rates[0]:.3g} first")


def _by_optimizer(steps: Sequence[Any]) -> Iterator[list[Any]]:
    for number in dict.fromkeys(step.optimizer for step in steps):
        yield [step for step in steps if step.optimizer == number]


def _rates(steps: Sequence[Any]) -> Iterator[tuple[float, ...]]:
    return (step.rates or (0.0,) for step in steps)


@check("run-rate-rises-in-steps", roles=RUN)
def rate_rises(impl: Any, draw: Draw) -> Evidence:
    """From the second step on the rate never grows tenfold at once: a warm-up does not."""
    run = run_of(impl)
    steps = steps_of(run)
    for before, after in pairwise(steps[1:]):
        if before.optimizer == after.optimizer and before.rates and after.rates and before.rates[0] > 0:
            ratio = after.rates[0] / before.rates[0]
            if ratio > 10:
                return unusual(
                    "the rate jumps", f"{before.rates[0]:.3g} to {after.rates[0]:.3g} in step {after.step + 1}"
                )
    if len(steps) < 3:
        raise NotProvided("no three steps were seen")
    return kept("the rate does not jump")


@check("run-schedule-is-stepped", roles=RUN)
def is_stepped(impl: Any, draw: Draw) -> Evidence:
    """A schedule that is made is stepped, at the latest after an epoch."""
    from conformance.watch import plans
    from conformance.watch.events import Batch, Schedule

    run = run_of(impl)
    if not run.schedulers:
        raise NotProvided("no scheduler was made")
    epochs = max((batch.epoch for batch in run.of(Batch)), default=0)
    forgotten = plans.forgotten_schedules(run)
    if forgotten:
        return broken(
            steps_of(run)[-1],
            "steps of the schedule that is made",
            "some",
            "none: nothing reads its name",
            at=lambda lines: lines.first(forgotten[0]),
            diagnosis="A schedule is made and never stepped: the rate stays what it was at the start.",
            mend="call scheduler.step() after optimizer.step(), or once an epoch",
        )
    if run.of(Schedule):
        return kept("the schedule is stepped")
    place = next(iter(run.schedulers.values()))
    is_forgotten = not plans.may_step_a_schedule(run)
    if run.steps >= 20 and (run.whole or is_forgotten):
        return broken(
            steps_of(run)[-1],
            "steps of the schedule that is made",
            "some",
            "none, and no line that steps it" if is_forgotten else "none until the script ended",
            at=lambda lines: lines.first(steps_of(run)[-1].place, place),
            diagnosis="A schedule is made and never stepped: the rate stays what it was at the start.",
            mend="call scheduler.step() after optimizer.step(), or once an epoch",
        )
    if epochs >= 2:
        return note("a schedule is made and was not stepped in an epoch", f"{place}")
    raise NotProvided("no epoch ended, so a schedule that steps once an epoch cannot be told from one that never does")


def rates_of(run: Any) -> tuple[Any, list[float]]:
    """The first optimizer's steps and the largest rate of each. Raises NotProvided where there are less than three."""
    return next(iter(all_rates_of(run)))


def all_rates_of(run: Any) -> list[tuple[Any, list[float]]]:
    """The same of each optimizer that steps three times."""
    found = [
        (mine, [max(s.rates, default=0.0) for s in mine]) for mine in _by_optimizer(steps_of(run)) if len(mine) >= 3
    ]
    if not found:
        raise NotProvided("no three steps of one optimizer were seen")
    return found


@check("run-rate-stays-above-zero", roles=RUN)
def stays_above_zero(impl: Any, draw: Draw) -> Evidence:
    """No stretch of steps has a rate of zero, at the beginning or later, while others have one above zero."""
    run = run_of(impl)
    moving = [(steps, rates) for steps, rates in all_rates_of(run) if max(rates) > 0]
    if not moving:
        raise NotProvided("all rates are zero, which another claim says")
    found = [(max(_stretches(rates), key=len, default=[]), steps, rates) for steps, rates in moving]
    longest, steps, rates = max(found, key=lambda one: len(one[0]))
    if len(longest) < 3:
        return kept("steps in a row with a rate of zero", len(longest))
    first = steps[longest[0]]
    when = f"{longest[0] + 1} to {longest[-1] + 1}"
    return broken(
        first,
        "steps in a row with a rate of zero",
        "at most the first and the last",
        f"{len(longest)}: steps {when} of {len(rates)}",
        at=lambda lines: (lines.over if longest[-1] + 1 == len(rates) else lines.scheduled)(run, first),
        diagnosis=f"The learning rate is zero in steps {when}: they learn nothing.",
        mend="look at the schedule's formula: an integer division in its warm-up, or fewer steps than the run makes",
    )


def _stretches(rates: Sequence[float]) -> Iterator[list[int]]:
    """The steps in a row with a rate of zero."""
    found: list[int] = []
    for number, rate in enumerate([*rates, 1.0]):
        if rate == 0:
            found.append(number)
        elif found:
            yield found
            found = []


@check("run-rate-peaks-after-its-warm-up", roles=RUN)
def peaks_after_warm_up(impl: Any, draw: Draw) -> Evidence:
    """A script that states a number of warm-up steps has its largest rate at their end, not long before."""
    from conformance.watch import stated

    run = run_of(impl)
    steps, rates = rates_of(run)
    number = stated.warm_up(run)
    if number is None or number < 3 or len(rates) <= number + 1 or len(set(rates)) == 1:
        raise NotProvided("no run past the end of a warm-up was seen whose number of steps the script states")
    peak = max(range(number + 1), key=lambda at: rates[at])
    if peak >= number / 2 or rates[number] >= 0.7 * rates[peak]:
        return kept("the step with the largest rate of the warm-up", peak + 1)
    return broken(
        steps[peak],
        f"the rate at the end of the {number} steps of warm-up that the script states",
        "the largest until then",
        f"{rates[number]:.3g}, and {rates[peak]:.3g} in step {peak + 1}",
        at=lambda lines: lines.scheduled(run, steps[peak]),
        diagnosis=f"The rate is largest in step {peak + 1} and falls then, though the warm-up has {number} steps.",
        mend="compare the formula with min(step ** -0.5, step * warmup ** -1.5), or with step / warmup",
    )


@check("run-rate-falls-after-its-peak", roles=RUN)
def falls_after_peak(impl: Any, draw: Draw) -> Evidence:
    """After a warm-up the rate does not drop at once and then rise to the end."""
    run = run_of(impl)
    _, rates = rates_of(run)
    rising = next((at for at, (one, two) in enumerate(pairwise(rates)) if two < one), len(rates) - 1)
    if rising < 3 or rates[rising] <= rates[0]:
        raise NotProvided("no warm-up was seen")
    after = rates[rising + 1 :]
    if len(after) >= 10 and after[0] < 0.5 * rates[rising] and all(one < two for one, two in pairwise(after)):
        return unusual(
            "the rate drops at once after its warm-up and rises to the end",
            f"{rates[rising]:.3g}, {after[0]:.3g}, ..., {after[-1]:.3g}: look at the sign in its formula",
        )
    return kept("after its warm-up the rate does not rise to the end")


@check("run-rate-does-not-vanish", roles=RUN)
def does_not_vanish(impl: Any, draw: Draw) -> Evidence:
    """After its peak the rate is not below a thousandth of it for most steps."""
    _, rates = rates_of(run_of(impl))
    if len(rates) < 20 or max(rates) == 0:
        raise NotProvided("no twenty steps with rates above zero were seen")
    after = rates[rates.index(max(rates)) :]
    tiny = [rate for rate in after if 0 < rate < 1e-3 * max(rates)]
    if len(tiny) >= 10 and len(tiny) > 0.5 * len(after):
        return unusual("steps with less than a thousandth of the largest rate", f"{len(tiny)} of {len(rates)}")
    return kept("most rates are above a thousandth of the largest", f"{len(rates) - len(tiny)} of {len(rates)}")


@check("run-cosine-does-not-rise-again", roles=RUN)
def does_not_rise_again(impl: Any, draw: Draw) -> Evidence:
    """A cosine schedule ends with the run: it is not stepped beyond its lowest rate."""
    run = run_of(impl)
    found = cosines_of(run)
    if not found:
        raise NotProvided("no CosineAnnealingLR was seen")
    late = [one for one in found if one.count > one.period]
    if late:
        return unusual(
            "a cosine that rises again",
            f"stepped {late[-1].count} times, T_max is {late[-1].period} ({late[-1].place})",
        )
    return kept("steps of the cosine, at most T_max", found[-1].count)


@check("run-schedule-gives-factors", roles=RUN)
def gives_factors(impl: Any, draw: Draw) -> Evidence:
    """What a LambdaLR gets from its function is a factor of the optimizer's rate, not a rate."""
    run = run_of(impl)
    mine = {one.optimizer: one for one in schedules_of(run) if one.kind == "LambdaLR"}
    for number, one in mine.items():
        given = [settings.get("initial_lr", 0.0) for settings in run.optimizers[number].settings]
        steps = [step for step in steps_of(run) if step.optimizer == number and len(step.rates) == len(given)]
        if not steps or not 0 < max(given) < 0.1:
            continue
        largest = max(rate / first for step in steps for rate, first in zip(step.rates, given, strict=True) if first)
        if abs(largest / max(given) - 1) < 0.05:
            return broken(
                steps[0],
                "the largest factor of the schedule",
                1,
                f"{largest:.3g}, the optimizer's rate itself",
                at=lambda lines: lines.scheduled(run, steps[0]),
                diagnosis=f"The function of the LambdaLR gives a rate, which is multiplied by the rate: "
                f"the optimizer steps with {largest * max(given):.2g}.",
                mend="give factors of the optimizer's rate: 1.0 at the peak",
            )
        return kept("the largest factor of the schedule", f"{largest:.3g} ({one.place})")
    raise NotProvided("no LambdaLR was seen")


@check("run-plateau-looks-the-right-way", roles=RUN)
def right_way(impl: Any, draw: Draw) -> Evidence:
    """A schedule that waits for a plateau looks for the least of a loss, and for the largest of a score."""
    run, measured = run_of(impl), []
    with suppress(NotProvided):  # none may be stepped yet
        measured = [one for one in schedules_of(run) if one.mode in ("min", "max") and one.stack]
    named = [(one, _measure(one)) for one in measured]
    named = [(one, name) for one, name in named if bool(FALLS.search(name)) != bool(RISES.search(name))]
    if not named:  # it may look for the first time behind the steps that were watched
        return told_slip(impl, PLATEAUS)
    for one, name in named:
        wanted = "min" if FALLS.search(name) else "max"
        if one.mode != wanted:
            return broken(
                one,
                f"what the schedule looks for in {name}",
                wanted,
                one.mode,
                at=lambda lines: lines.first(lines.setting(run, one.scheduler, "mode"), one.place),
                diagnosis=f"The schedule waits until {name} stops {'rising' if one.mode == 'max' else 'falling'}: "
                "it lowers the rate while the model improves.",
                mend=f'make it with mode="{wanted}"',
            )
    return kept("schedules look the right way", named[0][0].mode)


_COUNTER = re.compile(r"^(\w+\.)*(epoch|step|iteration|it|global_step|i)( \+ 1)?$")


@check("run-plateau-is-told-a-measure", roles=RUN)
def plateau_is_told_a_measure(impl: Any, draw: Draw) -> Evidence:
    """A schedule that waits for a plateau is stepped with a measure, not with the number of the epoch."""
    measured = [one for one in schedules_of(run_of(impl)) if one.mode in ("min", "max") and one.stack]
    if not measured:
        raise NotProvided("no schedule was seen that waits for a plateau")
    wrong = next((one for one in measured if _COUNTER.match(_measure(one))), None)
    if wrong is None:
        return kept("what schedules that wait for a plateau are told", _measure(measured[0]))
    return broken(
        wrong,
        "what a schedule that waits for a plateau is told",
        "a measure, such as the validation loss",
        _measure(wrong),
        at=lambda lines: lines.first(wrong.place),
        diagnosis=f"The schedule takes {_measure(wrong)} for a measure, which grows whatever the model learns.",
        mend="scheduler.step(valid_loss)",
    )


def _measure(event: Any) -> str:
    """The words of what a schedule was given."""
    call = event.stack[0].call()
    given = [*call.args, *(one.value for one in call.keywords)] if call is not None else []
    return ast.unparse(given[0]) if given else ""
