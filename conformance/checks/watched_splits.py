"""Checks of a training run: whether its parts of the data are apart, and are taken where they are named."""

from __future__ import annotations

from typing import Any

from conformance.check import check
from conformance.checks.watched_gradients import steps_of, told_by_text
from conformance.checks.watched_labels import RUN, broken, kept, run_of
from conformance.checks.watched_modes import evaluation, training
from conformance.draw import Draw
from conformance.evidence import Evidence
from conformance.protocol import NotProvided


@check("run-parts-are-apart", roles=RUN)
def parts_are_apart(impl: Any, draw: Draw) -> Evidence:
    """The training part of a sequence and the part that judges have nothing in common."""
    from conformance.watch import splits

    run = run_of(impl)
    step = steps_of(run)[0]
    found = splits.overlaps(run)
    if not found:
        raise NotProvided("no two parts of a sequence were seen that overlap")
    train, other, place = found[0]
    return broken(
        step,
        f"what {train} and {other} have in common",
        "nothing",
        "what both slices hold",
        at=lambda lines: lines.first(place),
        diagnosis=f"{train} and {other} are parts of one sequence that overlap: what judges was learned from.",
        mend="cut both at one place: data[:n] and data[n:]",
    )


@check("run-loaders-share-no-rows", roles=RUN)
def loaders_share_nothing(impl: Any, draw: Draw) -> Evidence:
    """No row of a data set is drawn by the loader that is learned from and by one that judges. Who judges by all that
    is learned from means it so."""
    from conformance.watch import indices

    run = run_of(impl)
    found = [*indices.shared(run)]
    if not found:
        raise NotProvided("no two loaders over rows of one data set were seen, of which one is learned from")
    one = next(iter(sorted(filter(None, found), key=lambda one: not one.is_named)), None)
    if one is None:
        return kept("loaders that judge by rows that are not learned from", len(found))
    return broken(
        one.event,
        "rows of the data set that the loader which is learned from and the one that judges have in common",
        0,
        f"{one.common} of {len(one.judging.numbers)}",
        at=lambda lines: lines.first(lines.split(one), one.judging.place),
        diagnosis=f"{one.common} of the {len(one.judging.numbers)} rows that judge are learned from: both parts of "
        "the data set overlap.",
        mend="split the data set once, and take both parts from that: random_split, or order[:n] and order[n:]",
        is_certain=one.is_named,
    )


@check("run-part-that-is-named-is-taken", roles=RUN)
def named_part_is_taken(impl: Any, draw: Draw) -> Evidence:
    """What is named after the validation or the test is made of these data."""
    from conformance.watch import splits

    step, (asked, given, place) = told_by_text(
        impl, splits.taken_for_others, "no place was seen where training data are taken for others"
    )
    return broken(
        step,
        f"which data {asked} is of",
        "those that it names",
        f"{given}, the training data",
        at=lambda lines: lines.first(place),
        diagnosis=f"{asked} names the data that judge, and {given} is taken: the figure is of what was learned from.",
        mend="take the data that are named",
    )


@check("run-test-data-choose-nothing", roles=RUN)
def test_data_choose_nothing(impl: Any, draw: Draw) -> Evidence:
    """What is named after the validation is worked out on the validation data, not on the test data."""
    from conformance.watch import choosing

    step, found = told_by_text(
        impl, choosing.by_test_data, "no place was seen where test data are taken for the validation"
    )
    return broken(
        step,
        f"on which data {found.asked} is worked out",
        "on the validation data",
        f"on {found.given}",
        at=lambda lines: lines.first(found.place),
        diagnosis=f"{found.asked} is worked out on the test data: they choose what is kept, so they can "
        "no longer judge it.",
        mend="take the validation data, and the test data once at the end",
    )


@check("run-judging-data-are-drawn-from-their-own-seed", roles=RUN)
def drawn_from_their_own_seed(impl: Any, draw: Draw) -> Evidence:
    """Data that judge and are drawn by the function that draws the training data have a seed of their own."""
    from conformance.watch import choosing

    step, found = told_by_text(
        impl, choosing.drawn_alike, "no data that judge were seen to be drawn from the seed of the training data"
    )
    return broken(
        step,
        f"from which seed {found.asked} is drawn",
        "from its own",
        f"from that of {found.given}",
        at=lambda lines: lines.first(found.place),
        diagnosis=f"{found.asked} is drawn from the seed of {found.given}: its rows are the first ones of that.",
        mend="give them another seed",
    )


@check("run-rows-are-split-before-they-are-copied", roles=RUN)
def split_before_copied(impl: Any, draw: Draw) -> Evidence:
    """Rows that are copied, as rare ones are, are split first."""
    from conformance.watch import choosing

    step, found = told_by_text(
        impl, choosing.copied_before_the_split, "no rows were seen that are copied before they are split"
    )
    return broken(
        step,
        f"what {found.asked} splits",
        "rows, each once",
        f"what {found.given} gives",
        at=lambda lines: lines.first(found.place),
        diagnosis=f"{found.given} copies rows before {found.asked}: copies of one row lie in several parts.",
        mend="split first, and copy rows of the training part only",
    )


@check("run-crops-begin-everywhere", roles=RUN)
def crops_begin_everywhere(impl: Any, draw: Draw) -> Evidence:
    """Random pieces of a text begin anywhere in it."""
    from conformance.watch import splits

    run = run_of(impl)
    step = steps_of(run)[0]
    found = splits.crops_of_the_beginning(run)
    if not found:
        raise NotProvided("no pieces of a text were seen that begin below their own length")
    length, text, place = found[0]
    return broken(
        step,
        f"where random pieces of {text} begin",
        f"below len({text}) - {length}",
        f"below {length}, the length of one piece",
        at=lambda lines: lines.first(place),
        diagnosis=f"The pieces begin in the first {length} tokens of {text} only: the rest is never seen.",
        mend=f"draw below len({text}) - {length}",
    )


@check("run-parts-are-scaled-alike", roles=RUN)
def parts_are_scaled_alike(impl: Any, draw: Draw) -> Evidence:
    """The data that judge are scaled by the numbers of the training data."""
    from conformance.watch import scaling

    step, (other, how, is_own, place) = told_by_text(
        impl, scaling.scaled_otherwise, "no parts of the data were seen that are scaled in different ways"
    )
    return broken(
        step,
        f"by what {other} is scaled",
        "the numbers of the training data",
        f"its own, which {how} is fitted to" if is_own else f"nothing, where the training data have {how}",
        at=lambda lines: lines.first(place),
        diagnosis=f"{other} is scaled otherwise than the training data: the model is judged on inputs that it was not "
        "made for.",
        mend=f"{how}.transform" if is_own else "scale both alike",
    )


@check("run-scaling-is-fitted-in-training", roles=RUN)
def scaling_is_fitted_in_training(impl: Any, draw: Draw) -> Evidence:
    """A scaler is fitted to the data that are learned from, and not to those that judge."""
    from conformance.watch import scaling

    run = run_of(impl)
    step = steps_of(run)[0]
    found = scaling.fitted_to_all(run)
    if not found:
        raise NotProvided("no scaler was seen that is fitted to what training data and data that judge are cut from")
    scaler, whole, other, place = found[0]
    return broken(
        step,
        f"what {scaler} is fitted to",
        "the training data",
        f"{whole}, of which {other} is a part",
        at=lambda lines: lines.first(place),
        diagnosis=f"{scaler} is fitted to {whole}, which {other} is cut from: training sees numbers of the data that "
        "judge.",
        mend=f"cut first, and fit {scaler} to the training part",
    )


@check("run-inputs-are-scaled-alike", roles=RUN)
def inputs_are_scaled_alike(impl: Any, draw: Draw) -> Evidence:
    """What a model is judged on is scaled as what it learns from is."""
    from conformance.watch import inputs

    run = run_of(impl)
    learned, judged = training(run), [call for call, _ in evaluation(run)]
    if not any(call.spread for call in judged):
        raise NotProvided("no evaluation of inputs of numbers was seen")
    found = [*inputs.scaled_otherwise(run, learned, judged)]
    if not found:
        return kept("evaluations whose inputs are scaled as those of training", len(judged))
    one = next((one for one in found if one.is_certain), found[0])
    return broken(
        one.call,
        "how the inputs of the evaluation lie",
        one.wanted,
        one.said,
        at=lambda lines: lines.first(one.place, lines.scales(run), one.call.place),
        diagnosis=f"The inputs of the evaluation have {one.said}: they are scaled otherwise than those of training.",
        mend="scale both by the numbers of the training data",
        is_certain=one.is_certain,
    )


@check("run-judging-data-are-drawn-anew", roles=RUN)
def judging_data_are_drawn_anew(impl: Any, draw: Draw) -> Evidence:
    """The data that judge are drawn from a seed of their own."""
    from conformance.watch import judging

    run = run_of(impl)
    step = steps_of(run)[0]
    found = judging.same_seeds(run)
    if not found:
        raise NotProvided("no parts of the data were seen that are drawn from one seed")
    train, other, call, place = found[0]
    return broken(
        step,
        f"the seed of {other}",
        f"another one than that of {train}",
        f"the same: {call}",
        at=lambda lines: lines.first(place),
        diagnosis=f"{other} is drawn from the seed of {train}: its rows are rows that are learned from.",
        mend="give each part a seed of its own",
    )


@check("run-judging-data-are-not-varied", roles=RUN)
def judging_data_are_not_varied(impl: Any, draw: Draw) -> Evidence:
    """The data that judge are made with no option of training."""
    from conformance.watch import judging

    step, (other, option, place) = told_by_text(
        impl, judging.varied, "no data that judge were seen that have an option of the training data"
    )
    return broken(
        step,
        f"how {other} is made",
        f"without {option}",
        f"with {option}, as the training data",
        at=lambda lines: lines.first(place),
        diagnosis=f"{other} has {option}, which is for training: what is measured is not what the model meets.",
        mend=f"leave {option} out there",
    )
