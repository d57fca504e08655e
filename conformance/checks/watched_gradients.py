"""Checks of a training run: gradients, and how they are accumulated."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from conformance.check import check
from conformance.checks.watched_labels import RUN, broken, kept, run_of, unusual
from conformance.draw import Draw
from conformance.evidence import Evidence
from conformance.protocol import NotProvided
from conformance.slips.slip import Slip

ROUTED = re.compile(r"expert|router|gate")
"""Names of parameters that not every step reaches."""

_OF_STATES = re.compile(r"weight_hh_l\d+(_reverse)?$")
"""What a recurrent layer of torch's multiplies with its state. The state begins at zero, and an answer that is read
where a direction begins has seen no other."""


def steps_of(run: Any, closely: bool = False) -> list[Any]:
    """The optimizer steps; those that were looked at closely only. Raises NotProvided where none was seen."""
    from conformance.watch.events import Step

    found = [step for step in run.of(Step) if not closely or step.closely]
    if not found:
        raise NotProvided("no step of a torch optimizer was seen")
    return found


def told_by_text(impl: Any, rule: Callable[[Any], Iterable[Any]], nothing: str) -> tuple[Any, Any]:
    """The last step of a run, and the first thing that a rule of the script's text finds. Raises NotProvided with the
    reason `nothing` where it finds none."""
    run = run_of(impl)
    step = steps_of(run)[-1]
    found = next(iter(rule(run)), None)
    if found is None:
        raise NotProvided(nothing)
    return step, found


def told_slip(impl: Any, slip: Slip) -> Evidence:
    """What a slip of the script's text breaks. Raises NotProvided where there is none."""
    from conformance.watch.stated import in_files

    step, (written, place) = told_by_text(impl, in_files(slip), slip.nothing)
    return broken(
        step,
        slip.asked,
        slip.expected,
        f"{slip.got}: {written}",
        at=lambda lines: lines.first(place),
        diagnosis=slip.sentence,
        mend=slip.mend,
    )


def passes_before(run: Any, step: Any) -> list[Any]:
    """The backward passes since the optimizer's last step."""
    from conformance.watch.events import Backward

    return list(run.between(step.previous, step.order, Backward))


def passes_used(run: Any, step: Any) -> list[Any]:
    """The backward passes whose gradients a step uses: those since its optimizer's gradients were cleared last.

    Passes before a step of another optimizer were for that one."""
    from conformance.watch.events import Clear, Step

    mine = {*run.optimizers[step.optimizer].parameters}
    passes = passes_before(run, step)
    ends = [c.order for c in run.between(step.previous, step.order, Clear) if c.parameters & mine]
    ends += [s.order for s in run.between(step.previous, passes[-1].order, Step)] if passes else []
    return [one for one in passes if one.order > max(ends, default=-1)]


@check("run-gradients-are-cleared", roles=RUN)
def cleared(impl: Any, draw: Draw) -> Evidence:
    """No gradient that a step has used enters the next step of the same optimizer."""
    from conformance.watch.events import Clear

    run = run_of(impl)
    steps = [step for step in steps_of(run) if step.previous >= 0]
    if not steps:
        raise NotProvided("no second step was seen")
    for step in steps:
        mine = {*run.optimizers[step.optimizer].parameters}
        for one in passes_before(run, step):
            late = [c for c in run.between(one.order, step.order, Clear) if c.parameters & mine]
            old = mine & set(one.stale)
            if old and not late:
                return broken(
                    step,
                    "gradients that an earlier step has used already",
                    "none",
                    f"those of {len(old)} parameters: {run.named(frozenset(old))}",
                    at=lambda lines: lines.first(
                        [c.place for c in run.of(Clear)][:1], lines.clearing(run), one.place, step.place
                    ),
                    diagnosis="Gradients are not cleared between steps: each step adds to those of all steps before.",
                    mend="call optimizer.zero_grad() once before the backward pass of each step",
                )
    return kept("gradients are cleared between steps")


@check("run-gradients-reach-the-step", roles=RUN)
def reach_the_step(impl: Any, draw: Draw) -> Evidence:
    """Gradients are not cleared between the backward pass and the step."""
    from conformance.watch.events import Clear

    run = run_of(impl)
    for step in steps_of(run):
        passes = passes_before(run, step)
        mine = {*run.optimizers[step.optimizer].parameters}
        gone = [c for c in run.between(passes[-1].order, step.order, Clear) if c.parameters & mine] if passes else []
        if gone:
            return broken(
                gone[0],
                "between the backward pass and the step",
                "the gradients stay",
                "they are cleared",
                diagnosis="Gradients are cleared after the backward pass and before the step: the step has none.",
                mend="clear them before the backward pass, or after the step",
            )
    return kept("the step has the gradients of the backward pass")


@check("run-step-follows-a-backward-pass", roles=RUN)
def follows_backward(impl: Any, draw: Draw) -> Evidence:
    """Each optimizer step comes after a backward pass of its own."""
    run = run_of(impl)
    steps = steps_of(run)
    idle = [step for step in steps if not passes_before(run, step)]
    for step in idle:
        return broken(
            step,
            "backward passes since the optimizer's last step",
            "at least one",
            0,
            diagnosis="The optimizer steps without a new backward pass: it uses old gradients, or none.",
            mend="call loss.backward() before each optimizer.step()",
        )
    return kept("each step follows a backward pass", len(steps))


@check("run-accumulation-steps-on-time", roles=RUN)
def on_time(impl: Any, draw: Draw) -> Evidence:
    """Every step of an accumulating loop uses the same number of backward passes, the first one too."""
    run = run_of(impl)
    counts = [(step, len(passes_used(run, step))) for step in steps_of(run)]
    if len(counts) < 3 or counts[1][1] < 2 or counts[1][1] != counts[2][1]:
        raise NotProvided("no accumulation of gradients over several backward passes was seen")
    (first, number), (_, usual) = counts[0], counts[1]
    if number < usual:
        return broken(
            first,
            "backward passes before the first step",
            usual,
            number,
            at=lambda lines: lines.condition(first),
            diagnosis=f"The first step uses {number} backward pass{'es' if number > 1 else ''}, all others {usual}: "
            "the condition of the step is one off.",
            mend="step where (i + 1) % accumulation == 0",
        )
    return kept("each step uses the same number of backward passes", usual)


@check("run-accumulation-is-divided", roles=RUN)
def divided(impl: Any, draw: Draw) -> Evidence:
    """The mean losses of an accumulating loop are divided by their number, once."""
    from conformance.watch.events import Clip

    run = run_of(impl)
    for step in steps_of(run):
        passes = passes_used(run, step)
        ratios = [ratio for ratio in (_ratio(run, one) for one in passes) if ratio]
        if len(passes) < 2 or len({one.place for one in passes}) > 1 or len(ratios) < len(passes):
            continue
        number = len(passes)
        if max(ratios) - min(ratios) > 1e-3 * max(ratios):
            continue
        settings = run.optimizers[step.optimizer].settings
        blind = all("betas" in one for one in settings) and not run.of(Clip)
        if abs(ratios[0] - 1) < 1e-3:
            return broken(
                passes[0],
                "by what each accumulated loss is divided",
                number,
                1,
                at=lambda lines: lines.value(run, passes[0]),
                diagnosis=f"The losses of {number} backward passes are summed, not averaged: "
                "the gradient is that much larger than one large batch's.",
                mend=f"divide the loss by {number} before backward()",
                is_certain=not blind,
            )
        if abs(ratios[0] * number**2 - 1) < 1e-3:
            return broken(
                passes[0],
                "by what each accumulated loss is divided",
                number,
                number**2,
                at=lambda lines: lines.value(run, passes[0]),
                diagnosis=f"The losses of {number} backward passes are divided by {number} twice.",
                mend="divide once: leave one of the two divisions out",
                is_certain=not blind,
            )
        by = 1 / ratios[0]
        usual = max(len(passes_used(run, one)) for one in steps_of(run))
        if number == usual and abs(by / number - 1) > 0.05 and abs(by - round(by)) < 1e-3 and round(by) > 1:
            return broken(
                passes[0],
                "by what each accumulated loss is divided",
                number,
                round(by),
                at=lambda lines: lines.value(run, passes[0]),
                diagnosis=f"The losses of {number} backward passes are divided by {round(by)}: their sum is no mean.",
                mend=f"divide the loss by the number of passes of a step, {number}",
                is_certain=not blind and _says_division(run, passes[0]),
            )
        return kept("accumulated losses are divided", f"by {by:.3g}")
    raise NotProvided("no accumulation of mean losses was seen")


def _says_division(run: Any, one: Any) -> bool:
    """Whether a backward pass, or one of the lines nearest to it that its loss comes from, divides."""
    from conformance.watch.pointing.common import learned, own_line

    lines = [*own_line(one), *learned(one)[:4]]
    return any(" / " in line.text or " /= " in line.text for line in lines)


@check("run-gradients-of-all-passes-count", roles=RUN)
def all_count(impl: Any, draw: Draw) -> Evidence:
    """Gradients are not cleared between the backward passes of one step. Passes before another optimizer's step were
    for that one."""
    from conformance.watch.events import Clear, Step

    run = run_of(impl)
    seen = 0
    for step in steps_of(run):
        passes = [one for one in passes_before(run, step) if one.order < step.began]
        others = [other.order for other in run.between(step.previous, step.order, Step)]
        passes = [one for one in passes if one.order > max(others, default=-1)]
        if len(passes) < 2 or len({one.place for one in passes}) > 1:
            continue
        seen += 1
        mine = {*run.optimizers[step.optimizer].parameters}
        cleared_between = [
            next((c for c in run.between(first.order, second.order, Clear) if c.parameters & mine), None)
            for first, second in pairwise(passes)
        ]
        if all(cleared_between):
            return broken(
                cleared_between[0],
                "backward passes whose gradients the step uses",
                len(passes),
                1,
                diagnosis=f"Of {len(passes)} backward passes for one step only the last counts: "
                "gradients are cleared between them.",
                mend="clear once a step, and step as often as you clear",
            )
    if not seen:
        raise NotProvided("no step after several backward passes of one line was seen")
    return kept("the gradients of all backward passes count")


@check("run-accumulation-weighs-tokens-alike", roles=RUN)
def weighs_alike(impl: Any, draw: Draw) -> Evidence:
    """Accumulated losses weigh every label alike, as one large batch would."""
    run = run_of(impl)
    for step in steps_of(run):
        passes = passes_used(run, step)
        losses = [_loss_of(run, one, ("mean", "sum")) for one in passes]
        counted = [x.targets.counted for x in losses if x is not None and x.targets is not None and x.targets.counted]
        if len(passes) < 2 or len(counted) < len(passes) or len({one.place for one in passes}) > 1:
            continue
        if len(set(counted)) == 1:
            continue
        of_labels = [
            one.value / one.factor / loss.value / (counts if loss.reduction == "mean" else 1)
            for one, loss, counts in zip(passes, losses, counted, strict=True)
        ]
        alike = [weight * counts for weight, counts in zip(of_labels, counted, strict=True)]
        if max(of_labels) > 1.01 * min(of_labels) and max(alike) < 1.001 * min(alike):
            return unusual(
                "batches with different numbers of labels are averaged as equals",
                f"{min(counted)} to {max(counted)} labels ({passes[0].place}); divide by all labels of the step",
            )
        return kept("each label weighs alike", f"{min(counted)} to {max(counted)} labels")
    raise NotProvided("no accumulation of losses with counted labels was seen")


def _loss_of(run: Any, one: Any, reductions: Sequence[str] = ("mean",)) -> Any:
    """The one loss that was recorded before a backward pass, where it is reduced in one of some ways."""
    from conformance.watch.events import Backward, Loss

    earlier = next((at for at in range(one.order - 1, -1, -1) if isinstance(run.events[at], Backward)), -1)
    losses = [loss for loss in run.between(earlier, one.order, Loss) if loss.gradients]
    return losses[0] if len(losses) == 1 and losses[0].reduction in reductions and losses[0].value else None


def _ratio(run: Any, one: Any) -> float | None:
    """What a backward pass begins with, as a share of the one mean loss before it; None where there is not just one."""
    loss = _loss_of(run, one)
    return one.value / one.factor / loss.value if loss is not None else None


@check("run-gradients-are-not-zero", roles=RUN)
def not_zero(impl: Any, draw: Draw) -> Evidence:
    """No weight has a gradient of zeros in every step."""
    run = run_of(impl)
    by_optimizer: dict[int, list[Any]] = {}
    for step in steps_of(run, closely=True):
        by_optimizer.setdefault(step.optimizer, []).append(step)
    seen = 0
    for steps in by_optimizer.values():
        if len(steps) < 2:
            continue
        seen += 1
        zero = frozenset.intersection(*(step.zero for step in steps))
        if len(steps) < 3 or not all(any(step.rates) for step in steps):  # factors that begin at zero wait for others
            zero = frozenset(n for n in zero if run.parameters[n].name.endswith("weight"))
        weights = frozenset(
            n
            for n in zero
            if (run.parameters[n].name.endswith("weight") or run.parameters[n].is_matrix)
            and not ROUTED.search(run.parameters[n].name)
            and not _OF_STATES.search(run.parameters[n].name)
        )
        if weights:
            return broken(
                steps[0],
                "weights with a gradient of zeros in every step",
                "none",
                run.named(weights),
                at=lambda lines: lines.first(
                    lines.zeroed(run, weights), lines.dead(run, weights, zero), steps[0].place
                ),
                diagnosis=f"The gradient of {run.named(weights)} is zero in every step: they cannot learn.",
                mend="look for a factor of zero, a dead activation, or a loss that counts no label",
            )
    if not seen:
        raise NotProvided("no two steps of one optimizer were seen closely")
    return kept("no weight has a gradient of zeros")


@check("run-gradients-are-finite", roles=RUN)
def finite_gradients(impl: Any, draw: Draw) -> Evidence:
    """No gradient that an optimizer uses is infinite or NaN."""
    run = run_of(impl)
    for step in steps_of(run, closely=True):
        if step.infinite and not step.scaler:
            return broken(
                step,
                "gradients that are not finite",
                "none",
                run.named(step.infinite),
                at=lambda lines: lines.value(run, passes_before(run, step)[-1]),
                diagnosis=f"The gradient of {run.named(step.infinite)} is not finite, and the optimizer uses it.",
                mend="look for a fully masked row, a division by zero, or half precision without a scaler",
            )
    return kept("gradients are finite")
