"""Checks of a training run: clipping, optimizers, schedules and gradient scalers."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from conformance.check import check
from conformance.checks.watched_gradients import passes_before, steps_of
from conformance.checks.watched_labels import RUN, broken, kept, run_of, unusual
from conformance.draw import Draw
from conformance.evidence import Evidence, note
from conformance.protocol import NotProvided


def clips_of(run: Any) -> list[Any]:
    from conformance.watch.record import Clip

    found = run.of(Clip)
    if not found:
        raise NotProvided("no clipping by torch.nn.utils was seen")
    return list(found)


@check("run-clipping-has-gradients", roles=RUN)
def has_gradients(impl: Any, draw: Draw) -> Evidence:
    """Clipping gets parameters that have gradients: it comes after the backward pass."""
    for clip in clips_of(run_of(impl)):
        if not clip.parameters:
            return broken(
                clip,
                "parameters that are clipped",
                "those of the model",
                "none",
                at=lambda lines: lines.given(clip, 0, "parameters"),
                diagnosis="Clipping gets no parameter: its argument is an iterator that was used up before.",
                mend="call model.parameters() anew each time, or keep a list",
            )
        if not clip.gradients:
            return broken(
                clip,
                "parameters with a gradient when they are clipped",
                "all that are trained",
                0,
                diagnosis="Clipping comes before the backward pass: there is no gradient to clip.",
                mend="clip between loss.backward() and optimizer.step()",
            )
    return kept("clipping gets gradients")


@check("run-clipping-comes-before-the-step", roles=RUN)
def before_the_step(impl: Any, draw: Draw) -> Evidence:
    """What is clipped is used by the step that follows."""
    from conformance.watch.record import Backward, Clear, Step

    run = run_of(impl)
    for clip in clips_of(run):
        after = run.events[clip.order + 1 :]
        following = next((e for e in after if isinstance(e, (Step, Clear, Backward))), None)
        earlier = next((e for e in reversed(run.events[: clip.order]) if isinstance(e, (Step, Clear, Backward))), None)
        if isinstance(following, (Clear, Backward)) and isinstance(earlier, Step):
            return broken(
                clip,
                "what comes after clipping",
                "the step",
                "the next pass" if isinstance(following, Backward) else "clearing the gradients",
                diagnosis="Gradients are clipped after the step, which used them as they were.",
                mend="clip between loss.backward() and optimizer.step()",
            )
        mine = clip.parameters
        if isinstance(following, Backward) and isinstance(earlier, Clear) and mine:
            return broken(
                clip,
                "what comes after clipping",
                "the step",
                "the backward pass",
                diagnosis="Gradients are clipped before the backward pass, which makes them anew.",
                mend="clip between loss.backward() and optimizer.step()",
            )
    return kept("the step uses what was clipped")


@check("run-clipping-comes-after-unscaling", roles=RUN)
def after_unscaling(impl: Any, draw: Draw) -> Evidence:
    """Scaled gradients are unscaled before they are clipped."""
    from conformance.watch.record import Backward, Unscale

    run = run_of(impl)
    seen = False
    for clip in clips_of(run):
        last = next((e for e in reversed(run.events[: clip.order]) if isinstance(e, Backward)), None)
        if last is None or not last.scaled:
            continue
        seen = True
        if not any(run.between(last.order, clip.order, Unscale)):
            return broken(
                clip,
                "between the backward pass of a scaled loss and clipping",
                "scaler.unscale_(optimizer)",
                "nothing",
                diagnosis="Gradients are clipped while they have the scaler's factor: nearly all is clipped away.",
                mend="call scaler.unscale_(optimizer) before clipping",
            )
    if not seen:
        raise NotProvided("no clipping of scaled gradients was seen")
    return kept("gradients are unscaled before they are clipped")


@check("run-clipping-is-of-the-global-norm", roles=RUN)
def global_norm(impl: Any, draw: Draw) -> Evidence:
    """The norm that is clipped is that of all gradients together."""
    run = run_of(impl)
    clips = clips_of(run)
    for step in steps_of(run):
        mine = {*run.optimizers[step.optimizer].parameters}
        passes = passes_before(run, step)
        here = [c for c in clips if passes and passes[-1].order < c.order < step.order and c.by == "norm"]
        if len(here) >= 3 and len(mine) >= 3 and all(len(c.parameters) == 1 for c in here):
            return broken(
                here[0],
                "parameters whose norm is taken together",
                f"all {len(mine)}",
                "one by one",
                diagnosis="Each parameter is clipped by its own norm, which changes the direction of the step.",
                mend="clip once: torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)",
            )
        left = frozenset(mine - {n for c in here for n in c.parameters} - step.missing)
        if here and left:
            return note("gradients that clipping leaves out", f"{len(left)} of {len(mine)}: {run.named(left)}")
    return kept("clipping takes the norm of all gradients")


@check("run-clipped-norm-holds", roles=RUN)
def norm_holds(impl: Any, draw: Draw) -> Evidence:
    """The gradients that the step uses have at most the norm that they were clipped to."""
    run = run_of(impl)
    seen = 0
    for step in steps_of(run, closely=True):
        mine = {*run.optimizers[step.optimizer].parameters} - step.missing
        start = step.previous
        clips = [c for c in clips_of(run) if start < c.order < step.order and c.by == "norm" and c.parameters >= mine]
        if not clips or not math.isfinite(step.norm):
            continue
        seen += 1
        if step.norm > clips[-1].limit * 1.01:
            return broken(
                clips[-1],
                "the norm of the gradients in the step",
                f"at most {clips[-1].limit:g}",
                f"{step.norm:.4g}",
                diagnosis="The gradients are larger in the step than they were clipped to: something was added after.",
                mend="clip once, after the last backward pass of a step",
            )
    if not seen:
        raise NotProvided("no step whose gradients were all clipped by norm was seen closely")
    return kept("the gradients of a step have at most the clipped norm")


# --- optimizers -----------------------------------------------------------------------------------


@check("run-optimizer-follows-its-formula", roles=RUN)
def follows_formula(impl: Any, draw: Draw) -> Evidence:
    """An optimizer of one's own with Adam's settings changes parameters as Adam's or AdamW's formula does."""
    from conformance.watch.rules import ANOTHER, COUPLED, UNSCALED

    run = run_of(impl)
    steps = [step for step in steps_of(run, closely=True) if step.rule]
    if not steps:
        raise NotProvided("no optimizer of the script's own with the settings of Adam was seen")
    kind = run.optimizers[steps[0].optimizer].kind
    decay = max((one.get("weight_decay", 0.0) for one in run.optimizers[steps[0].optimizer].settings), default=0.0)
    allowed = {"AdamW", *(() if kind.endswith("W") else (COUPLED,))}
    wrong = next((step for step in steps if step.rule not in allowed), None)
    if wrong is None:
        return kept(f"the formula that {kind} follows", steps[-1].rule if decay else "Adam")
    if wrong.rule in (ANOTHER, UNSCALED):  # Loshchilov and Hutter scale the decay by the schedule only
        return note(f"the formula that {kind} follows", f"{wrong.rule} ({wrong.place})")
    return broken(
        wrong,
        f"the formula that {kind} follows",
        "AdamW" if kind.endswith("W") else "Adam or AdamW",
        wrong.rule,
        at=lambda lines: lines.formula(wrong, run.optimizers[wrong.optimizer].cls),
        diagnosis=f"{kind} is {wrong.rule}.",
        mend="compare it with Algorithm 2 of Loshchilov and Hutter, or use torch.optim.AdamW",
    )


@check("run-decay-leaves-norms-and-biases-out", roles=RUN)
def decay_leaves_out(impl: Any, draw: Draw) -> Evidence:
    """Weight decay reaches matrices only, not norms and biases."""
    run = run_of(impl)
    decayed = [
        number
        for step in steps_of(run)
        for group, setting in zip(*_groups(run, step), strict=True)
        if setting.get("weight_decay", 0.0) > 0
        for number in group
    ]
    if not decayed:
        raise NotProvided("no weight decay was seen")
    reached = frozenset(
        n for n in decayed if run.parameters[n].name.endswith("bias") or "Norm" in run.parameters[n].layer
    )
    if reached:
        return unusual("weight decay reaches norms and biases", f"{len(reached)}: {run.named(reached)}")
    return kept("weight decay leaves norms and biases out")


def _groups(run: Any, step: Any) -> tuple[Any, Any]:
    optimizer = run.optimizers[step.optimizer]
    return optimizer.groups, optimizer.settings


# --- schedules ------------------------------------------------------------------------------------


def schedules_of(run: Any) -> list[Any]:
    from conformance.watch.record import Schedule

    found = run.of(Schedule)
    if not found:
        raise NotProvided("no step of a scheduler was seen")
    return list(found)


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
    """Between two steps of the optimizer the schedule advances at most once."""
    run = run_of(impl)
    schedules, steps = schedules_of(run), steps_of(run)
    mine = [step for step in steps if step.optimizer == schedules[0].optimizer]
    often = []
    for before, after in pairwise(mine):
        counts: dict[int, int] = {}
        for one in run.between(before.order, after.order, type(schedules[0])):
            counts[one.scheduler] = counts.get(one.scheduler, 0) + 1
        often.append(max(counts.values(), default=0))
    if len(often) >= 2 and min(often) >= 2:
        return broken(
            schedules[0],
            "how often the schedule advances for each step of the optimizer",
            "once",
            f"{often[0]} times",
            diagnosis=f"The schedule advances {often[0]} times for each step of the optimizer: it is over too early.",
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
    if rates[0] == 0:
        return note("the first step has the rate 0", f"it learns nothing ({steps[0].place})")
    return kept("rates are above zero", f"{rates[0]:.3g} first")


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
    from conformance.watch.record import Batch, Schedule

    run = run_of(impl)
    if not run.schedulers:
        raise NotProvided("no scheduler was made")
    epochs = max((batch.epoch for batch in run.of(Batch)), default=0)
    if run.of(Schedule):
        return kept("the schedule is stepped")
    place = next(iter(run.schedulers.values()))
    if run.whole and run.steps >= 20:
        return broken(
            steps_of(run)[-1],
            "steps of the schedule that is made",
            "some",
            "none until the script ended",
            at=lambda lines: lines.first(steps_of(run)[-1].place, place),
            diagnosis="A schedule is made and never stepped: the rate stays what it was at the start.",
            mend="call scheduler.step() after optimizer.step(), or once an epoch",
        )
    if epochs >= 2:
        return note("a schedule is made and was not stepped in an epoch", f"{place}")
    raise NotProvided("no epoch ended, so a schedule that steps once an epoch cannot be told from one that never does")


# --- gradient scalers -----------------------------------------------------------------------------


@check("run-scaled-gradients-go-through-the-scaler", roles=RUN)
def through_the_scaler(impl: Any, draw: Draw) -> Evidence:
    """Gradients of a scaled loss are stepped by the scaler, and the scaler steps gradients of a scaled loss."""
    run = run_of(impl)
    seen = False
    for step in steps_of(run):
        passes = passes_before(run, step)
        if not passes or not (step.scaler or passes[-1].scaled):
            continue
        seen = True
        if passes[-1].scaled and not step.scaler:
            return broken(
                step,
                "what makes the step of a scaled loss",
                "scaler.step(optimizer)",
                "optimizer.step()",
                diagnosis="The optimizer steps with gradients that still have the scaler's factor."
                if step.scaled
                else "The optimizer steps past the scaler: gradients that overflowed are used, not skipped.",
                mend="call scaler.step(optimizer) in its place",
            )
        if step.scaler and not passes[-1].scaled:
            return broken(
                passes[-1],
                "the loss before a step of the scaler",
                "scaler.scale(loss)",
                "the loss itself",
                diagnosis="The scaler divides gradients by a factor that the loss never had: its steps are too small.",
                mend="call scaler.scale(loss).backward()",
            )
    if not seen:
        raise NotProvided("no gradient scaler was seen")
    return kept("scaled losses and steps of the scaler belong together")


@check("run-backward-is-outside-autocast", roles=RUN)
def outside_autocast(impl: Any, draw: Draw) -> Evidence:
    """The backward pass runs outside of autocast."""
    from conformance.watch.record import Backward, Forward

    run = run_of(impl)
    if not any(one.autocast for one in run.of(Forward)):
        raise NotProvided("no forward pass under autocast was seen")
    inside = [one for one in run.of(Backward) if one.autocast]
    if inside:
        return unusual("backward passes under autocast", f"{len(inside)} ({inside[0].place})")
    return kept("backward passes run outside of autocast")


@check("run-weights-are-kept-in-full-precision", roles=RUN)
def full_precision(impl: Any, draw: Draw) -> Evidence:
    """What an optimizer steps is kept in float32 at least."""
    run = run_of(impl)
    stepping = {n for step in steps_of(run) for n in run.optimizers[step.optimizer].parameters}
    half = frozenset(n for n in stepping if run.parameters[n].dtype in ("float16", "bfloat16"))
    if half:
        return unusual("an optimizer steps parameters of half precision", f"{len(half)}: {run.named(half)}")
    return kept("the optimizer steps parameters in full precision")
