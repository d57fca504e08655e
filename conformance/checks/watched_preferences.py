"""Checks of a training run: preferences between two answers, which are learned from a margin."""

from __future__ import annotations

from typing import Any

from conformance.check import check
from conformance.checks.watched_gradients import steps_of
from conformance.checks.watched_labels import RUN, broken, kept, run_of
from conformance.draw import Draw
from conformance.evidence import Evidence
from conformance.protocol import NotProvided


def margins_of(run: Any) -> list[Any]:
    """The margins that are learned from. Raises NotProvided where none was seen."""
    from conformance.watch.events import Margin

    steps_of(run)
    found = run.of(Margin)
    if not found:
        raise NotProvided("no logsigmoid of a margin was seen that is learned from")
    return list(found)


@check("run-preferred-answers-are-raised", roles=RUN)
def preferred_are_raised(impl: Any, draw: Draw) -> Evidence:
    """A step raises the probability of the answer that is preferred, and lowers that of the other one."""
    from conformance.watch import preferences

    run = run_of(impl)
    found = margins_of(run)
    wrong = preferences.turned_round(run)
    if wrong is None:
        return kept("margins that lower no preferred answer", len(found))
    answer, margin = wrong
    return broken(
        answer,
        "what a step does to the probability of the preferred answer",
        "it rises",
        "it falls, and that of the other one rises",
        at=lambda lines: lines.first(lines.margin(margin), margin.place, answer.place),
        diagnosis="The sign of the preference is turned round: the model learns to give the answer that was rejected.",
        mend="loss = -logsigmoid(beta * ((chosen - rejected) - (reference_chosen - reference_rejected)))",
    )


@check("run-margin-is-of-two-models", roles=RUN)
def margin_is_of_two(impl: Any, draw: Draw) -> Evidence:
    """A margin between two models is zero in the first step only."""
    from conformance.watch import preferences

    run = run_of(impl)
    found = margins_of(run)
    wrong = preferences.of_one_model(run)
    if wrong is None:
        return kept("margins that are not zero in every step", len(found))
    return broken(
        wrong,
        "the largest margin of all steps",
        "above 0, as soon as the model has learned",
        0,
        at=lambda lines: lines.first(lines.reference(run), lines.margin(wrong), wrong.place),
        diagnosis="The margin is zero in every step: the reference is the very model that learns.",
        mend="keep a copy of the model from before: reference = copy.deepcopy(model)",
    )


@check("run-margin-begins-at-zero", roles=RUN)
def margin_begins_at_zero(impl: Any, draw: Draw) -> Evidence:
    """As long as the reference has the weights of the model, the margin between both is zero."""
    from conformance.watch import preferences

    run = run_of(impl)
    found = [one for one in margins_of(run) if one.is_at_start]
    if not found:
        raise NotProvided("no margin was seen while the reference still had the weights of the model")
    wrong = preferences.unequal_at_start(run)
    if wrong is None:
        return kept("margins of two models that are still one", len(found))
    return broken(
        wrong,
        "the margin while both models are one",
        0,
        f"up to {wrong.largest:.3g}",
        at=lambda lines: lines.first(lines.margin(wrong), wrong.place),
        diagnosis="The margin is not zero although the reference still has the weights of the model: what one gives "
        "for an answer is not taken away from what the other one gives for it.",
        mend="beta * ((chosen - rejected) - (reference_chosen - reference_rejected))",
    )


@check("run-reference-has-learned", roles=RUN)
def reference_has_learned(impl: Any, draw: Draw) -> Evidence:
    """A model that has learned before it learns a preference is held to one that has learned, too."""
    from conformance.watch import preferences

    run = run_of(impl)
    found = margins_of(run)
    wrong = preferences.new_reference(run)
    if wrong is None:
        raise NotProvided("no reference was seen that is as new models are, beside a model that has learned")
    return broken(
        wrong,
        "the reference in the first step of a preference",
        f"the model after its {wrong.step} steps",
        "a new one, at random",
        at=lambda lines: lines.first(lines.reference(run), lines.margin(wrong), wrong.place),
        diagnosis=f"The model has made {wrong.step} steps, and the reference none: the margin of all {len(found)} "
        "losses is to a model that knows nothing.",
        mend="copy the model when the preference begins: reference = copy.deepcopy(model)",
    )


@check("run-margin-is-scaled-inside", roles=RUN)
def margin_is_scaled_inside(impl: Any, draw: Draw) -> Evidence:
    """The strength of a preference, beta, multiplies its margin."""
    from conformance.watch import preferences

    run = run_of(impl)
    found = margins_of(run)
    wrong = preferences.scaled_otherwise(run)
    if wrong is None:
        return kept("margins that no beta divides", len(found))
    is_loss = wrong.how == "multiplies"
    return broken(
        wrong.margin,
        f"what {wrong.name} {wrong.how}",
        "it multiplies the margin",
        "it multiplies the loss alone" if is_loss else "it divides the margin",
        at=lambda lines: lines.first(wrong.place, wrong.margin.place),
        diagnosis=f"{wrong.name} stands outside of the logsigmoid: it is a factor of the rate, and no longer holds the "
        "model to its reference."
        if is_loss
        else f"The margin is divided by {wrong.name}: the smaller it is, the more the model is held to its reference.",
        mend=f"logsigmoid({wrong.name} * margin)",
    )
