"""Checks of a training run: whether its formulas are whole: noise, guidance, draws, chances, objectives."""

from __future__ import annotations

from typing import Any

from conformance.check import check
from conformance.checks.watched_gradients import steps_of
from conformance.checks.watched_labels import RUN, broken, kept, run_of
from conformance.draw import Draw
from conformance.evidence import Evidence
from conformance.protocol import NotProvided


@check("run-noise-keeps-the-variance", roles=RUN)
def noise_keeps_the_variance(impl: Any, draw: Draw) -> Evidence:
    """Noise and what it is mixed into have the roots of their shares."""
    from conformance.watch import formulas

    run = run_of(impl)
    step = steps_of(run)[-1]
    found = [*formulas.mixtures(run)]
    if not found:
        raise NotProvided("no noise was seen that is mixed in with a share and its rest")
    wrong = next(filter(None, found), None)
    if wrong is None:
        return kept("mixtures with noise that keep the variance", len(found))
    return broken(
        step,
        "the share that noise has",
        f"the root of {wrong.plain}",
        wrong.plain,
        at=lambda lines: lines.first(wrong.place),
        diagnosis=f"The signal has {wrong.root} and the noise {wrong.plain}: the variance is not kept, and what is "
        "sampled goes by another one.",
        mend=f"({wrong.plain}).sqrt()",
    )


@check("run-guidance-leads-to-the-condition", roles=RUN)
def guidance_leads_to_the_condition(impl: Any, draw: Draw) -> Evidence:
    """Guidance leads from the answer without a condition to the one with it."""
    from conformance.watch import formulas

    run = run_of(impl)
    step = steps_of(run)[-1]
    found = [*formulas.guidance(run)]
    if not found:
        raise NotProvided("no answers with and without a condition were seen that guidance is made of")
    wrong = next((one for one in found if not one.is_right), None)
    if wrong is None:
        return kept("guidance that leads to the condition", len(found))
    return broken(
        step,
        "where guidance leads",
        f"from {wrong.to} to {wrong.away}",
        f"from {wrong.away} to {wrong.to}",
        at=lambda lines: lines.first(wrong.place),
        diagnosis=f"The answer goes away from {wrong.away}: the more guidance, the less of the condition.",
        mend=f"{wrong.to} + guidance * ({wrong.away} - {wrong.to})",
    )


@check("run-draws-have-the-deviation", roles=RUN)
def draws_have_the_deviation(impl: Any, draw: Draw) -> Evidence:
    """Noise is multiplied by the deviation."""
    from conformance.watch import formulas

    run = run_of(impl)
    step = steps_of(run)[-1]
    found = [*formulas.draws(run)]
    if not found:
        raise NotProvided("no noise was seen that is multiplied by what a divergence takes the variance from")
    wrong = next(filter(None, found), None)
    if wrong is None:
        return kept("draws that have the deviation of their divergence", len(found))
    return broken(
        step,
        "what noise is multiplied by",
        f"exp(0.5 * {wrong.log}), the deviation",
        f"exp({wrong.log}), the variance",
        at=lambda lines: lines.first(wrong.place),
        diagnosis=f"The divergence takes exp({wrong.log}) for the variance, and the draw takes it for the deviation.",
        mend=f"torch.exp(0.5 * {wrong.log})",
    )


@check("run-chances-are-what-they-are-named", roles=RUN)
def chances_are_what_they_are_named(impl: Any, draw: Draw) -> Evidence:
    """Values are replaced where random numbers are below the chance of it."""
    from conformance.watch import formulas

    run = run_of(impl)
    step = steps_of(run)[0]
    found = [*formulas.chances(run)]
    if not found:
        raise NotProvided("no values were seen that are replaced with a chance that has a telling name")
    wrong = next(filter(None, found), None)
    if wrong is None:
        return kept("chances that are what they are named after", len(found))
    return broken(
        step,
        "with which chance values are replaced",
        f"that which {wrong.chance} names",
        f"1 minus that which {wrong.chance} names",
        at=lambda lines: lines.first(wrong.place),
        diagnosis=f"The comparison with {wrong.chance} is turned round: what should happen rarely happens mostly.",
        mend=f"turn the comparison with {wrong.chance} round",
    )


@check("run-clipped-objective-is-the-smaller", roles=RUN)
def clipped_objective_is_the_smaller(impl: Any, draw: Draw) -> Evidence:
    """Of an objective and its clipped one the smaller is taken."""
    from conformance.watch import objectives

    run = run_of(impl)
    step = steps_of(run)[-1]
    found = [*objectives.bounded(run)]
    if not found:
        raise NotProvided("no product with a clipped ratio was seen that bounds another one")
    wrong = next((one for one in found if not one.is_smaller), None)
    if wrong is None:
        return kept("clipped objectives of which the smaller is taken", len(found))
    return broken(
        step,
        "which of the objective and its clipped one is taken",
        "the smaller",
        "the larger",
        at=lambda lines: lines.first(wrong.place),
        diagnosis=f"{wrong.text} takes the better of both: nothing holds a step back where it goes too far.",
        mend="torch.min of both; of both losses, which have a minus, torch.max",
    )


@check("run-loss-falls-with-what-is-to-grow", roles=RUN)
def loss_falls_with_what_is_to_grow(impl: Any, draw: Draw) -> Evidence:
    """The loss falls with a clipped objective, and with what a divergence is minus a half of."""
    from conformance.watch import objectives

    run = run_of(impl)
    step = steps_of(run)[-1]
    found = [("the product of ratio and advantage", one.grows, one.added) for one in objectives.bounded(run)]
    found += [("1 + log s^2 - m^2 - s^2", one.grows, one.place) for one in objectives.divergences(run)]
    if all(grows is None for _, grows, _ in found):
        raise NotProvided("no objective was seen whose way into the loss the text shows")
    wrong = next(((what, place) for what, grows, place in found if grows), None)
    if wrong is None:
        return kept("objectives that the loss falls with", len(found))
    what, place = wrong
    return broken(
        step,
        f"the sign with which {what} goes into the loss",
        "-",
        "+",
        at=lambda lines: lines.first(place),
        diagnosis=f"Each step makes {what} smaller, which is to grow.",
        mend="put a minus before it",
    )


@check("run-logarithms-of-scales-are-undone", roles=RUN)
def logarithms_are_undone(impl: Any, draw: Draw) -> Evidence:
    """A scale that is learned as its logarithm goes through the exponential."""
    from conformance.watch import formulas

    run = run_of(impl)
    step = steps_of(run)[-1]
    found = [*formulas.logarithms(run)]
    if not found:
        raise NotProvided("no scale was seen that is learned as its logarithm")
    wrong = next(filter(None, found), None)
    if wrong is None:
        return kept("scales that are learned as logarithms, which go through the exponential", len(found))
    return broken(
        step,
        f"what is made of {wrong.name}, which begins as a logarithm",
        "its exponential",
        "none: it is used as it is",
        at=lambda lines: lines.first(wrong.place, wrong.begun),
        diagnosis=f"{wrong.name} is the logarithm of a scale, and is taken for the scale.",
        mend=f"{wrong.name}.exp()",
    )
