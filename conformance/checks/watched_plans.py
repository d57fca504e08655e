"""Checks of a training run: what its script plans and never comes true. Flags, limits, counters, rates below zero."""

from __future__ import annotations

import ast
from typing import Any

from conformance.check import check
from conformance.checks.watched_gradients import steps_of
from conformance.checks.watched_labels import RUN, broken, kept, run_of
from conformance.checks.watched_optimizers import clips_of
from conformance.draw import Draw
from conformance.evidence import Evidence
from conformance.protocol import NotProvided


@check("run-rate-is-not-negative", roles=RUN)
def not_negative(impl: Any, draw: Draw) -> Evidence:
    """No step has a rate below zero."""
    run = run_of(impl)
    steps = steps_of(run)
    below = next((step for step in steps if min(step.rates, default=0.0) < 0), None)
    if below is None:
        return kept("rates that are not below zero", len(steps))
    return broken(
        below,
        "the rate",
        "0 or more",
        f"{min(below.rates):.3g}",
        at=lambda lines: lines.total(run, below),
        diagnosis=f"The learning rate is below zero from step {below.step + 1} on: steps go up the loss. "
        "The schedule is planned for fewer steps than the run makes.",
        mend="plan it for all steps: epochs * steps of an epoch",
    )


@check("run-frozen-by-its-parameters", roles=RUN)
def frozen_by_parameters(impl: Any, draw: Draw) -> Evidence:
    """Who sets `requires_grad` of a part sets it on its parameters."""
    from conformance.watch import plans

    run = run_of(impl)
    step = steps_of(run)[0]
    misspelt = plans.misspelt(run)
    if misspelt:
        name = min(run.misspelt)
        return broken(
            step,
            "attributes of parameters that freeze nothing",
            "none",
            name,
            at=lambda lines: lines.first(misspelt[:1], step.place),
            diagnosis=f"{name} is no flag of a parameter: setting it gives it an attribute of that name, and it learns "
            "as before.",
            mend="set requires_grad",
        )
    places = plans.flags(run)
    if not places:
        raise NotProvided("no line was seen that sets requires_grad of anything but a listed parameter")
    if not run.flagged:
        return kept("parts with a flag of their own that no parameter follows", 0)
    return broken(
        step,
        "parts whose parameters do not follow their requires_grad",
        "none",
        ", ".join(run.flagged[:3]),
        at=lambda lines: lines.first(places[:1], step.place),
        diagnosis=f"requires_grad is set on the part {run.flagged[0]} itself, which only gives it an attribute of that "
        "name: its parameters are as they were.",
        mend="call part.requires_grad_(False), which reaches the parameters",
    )


@check("run-clipping-limit-is-no-rate", roles=RUN)
def limit_is_no_rate(impl: Any, draw: Draw) -> Evidence:
    """The norm that gradients are clipped to is no learning rate, and not far below all norms."""
    from conformance.watch import plans

    run = run_of(impl)
    clips = [clip for clip in clips_of(run) if clip.by == "norm" and clip.gradients]
    if not clips:
        raise NotProvided("no clipping by the norm was seen")
    rates = {rate for step in steps_of(run) for rate in step.rates}
    rates |= {one.get("lr") for made in run.optimizers.values() for one in made.settings}
    for clip in clips:
        if clip.limit in rates and plans.names_a_rate(_limit(clip)):
            return broken(
                clip,
                "the norm that gradients are clipped to",
                "a limit of its own, as 1.0",
                f"{_limit(clip)}, the learning rate: {clip.limit:g}",
                diagnosis=f"Gradients are clipped to the learning rate: a norm of {clip.norm:.3g} becomes "
                f"{clip.limit:g}, in nearly every step.",
                mend="give the limit, not the rate",
            )
    far = [clip for clip in clips if clip.norm > 100 * clip.limit]
    if len(clips) >= 20 and len(far) == len(clips):
        return broken(
            clips[0],
            "the norm that gradients are clipped to",
            "below the norm of some steps only",
            f"{clips[0].limit:g}: less than a hundredth of the norm in all {len(clips)} steps",
            diagnosis="Every gradient is cut to less than a hundredth of itself.",
            mend="print the norm that clip_grad_norm_ gives back, and choose the limit by it",
            is_certain=False,
        )
    return kept("limits of the norm that are no rates", len(clips))


def _limit(clip: Any) -> str:
    """The expression that clipping was given as its limit."""
    call = clip.stack[0].call() if clip.stack else None
    if call is None:
        return ""
    named = [one.value for one in call.keywords if one.arg == "max_norm"]
    given = [*named, *call.args[1:2]]
    return ast.unparse(given[0]) if given else ""


@check("run-patience-begins-anew", roles=RUN)
def patience_begins_anew(impl: Any, draw: Draw) -> Evidence:
    """The count that is compared with a patience begins anew when the measure is better."""
    from conformance.watch import plans

    run = run_of(impl)
    step = steps_of(run)[-1]
    if not plans.counted(run):
        raise NotProvided("no number was seen that is compared with a patience")
    endless = plans.endless_counters(run)
    if not endless:
        return kept("counts of bad epochs that never begin anew", 0)
    name, place = endless[0]
    return broken(
        step,
        f"where {name} becomes 0 again",
        "where the measure is better",
        "nowhere",
        at=lambda lines: lines.first(place, step.place),
        diagnosis=f"{name} is compared with the patience and only ever grows: bad epochs add up over the whole run, "
        "and training stops too early.",
        mend=f"set {name} = 0 where the best measure is kept",
    )


@check("run-mean-is-over-what-is-summed", roles=RUN)
def mean_over_what_is_summed(impl: Any, draw: Draw) -> Evidence:
    """Who divides by a number of rows or labels has added up sums over them, not means of batches."""
    from conformance.watch import means
    from conformance.watch.events import Forward, Loss

    run = run_of(impl)
    weighed = means.weighed_otherwise(run)
    if weighed:
        weight, number, place = weighed[0]
        return broken(
            steps_of(run)[-1],
            "what the weighed means of the batches are divided by",
            f"the sum of {weight}",
            number,
            at=lambda lines: lines.first(place),
            diagnosis=f"Each mean is weighed by {weight} and the sum divided by {number}, which counts something else.",
            mend="weigh and divide by the same number",
        )
    judged = [one for one in run.of(Loss) if not one.gradients and one.value is not None and one.stack]
    several = any(len(one.samples) > 1 for one in run.of(Forward) if not one.gradients)
    if not judged or not several:
        raise NotProvided("no loss of an evaluation over several rows was seen")
    for place in dict.fromkeys(one.place for one in judged):
        mine = [one for one in judged if one.place == place]
        partial = next((one for one in mine if one.reduction == "sum" and one.unasked), None)
        over = next(means.sums_over_all(partial), None) if partial is not None else None
        if over is not None:
            return broken(
                mine[0],
                f"what {over.total} is divided by, which adds up sums over the labels that count",
                "the number of these",
                f"{over.number}, the number of all labels",
                at=lambda lines, where=over.place: lines.first(where),  # type: ignore[misc]
                diagnosis=f"{over.total} adds up the losses of labels that count and is divided by {over.number}, in "
                "which ignored labels count, too: the figure is too small.",
                mend="count the labels that are not ignored: (labels != ignored).sum()",
            )
        if any(one.reduction != "mean" for one in mine):
            continue
        found = next(means.sums_of_means(mine[0]), None)
        if found is not None:
            return broken(
                mine[0],
                f"what {found.total} adds up, which is divided by {found.number}",
                "sums over rows or labels",
                "means of batches",
                at=lambda lines, where=found.place: lines.first(where),  # type: ignore[misc]
                diagnosis=f"{found.total} adds up means of batches and is divided by {found.number}, a number of rows "
                "or labels: the figure is too small by the size of a batch.",
                mend="add loss * number, or divide by the number of batches",
            )
    return kept("losses of evaluations that are added up as what they are", len(judged))
