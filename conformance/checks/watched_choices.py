"""Checks of a training run: which weights it keeps, what it computes and never uses, what it tears apart, and what it
loads, saves and sums up without effect."""

from __future__ import annotations

from typing import Any

from conformance.check import check
from conformance.checks.watched_gradients import steps_of, told_by_text
from conformance.checks.watched_labels import RUN, broken, kept, run_of
from conformance.checks.watched_modes import training
from conformance.draw import Draw
from conformance.evidence import Evidence
from conformance.protocol import NotProvided


@check("run-best-is-renewed", roles=RUN)
def best_is_renewed(impl: Any, draw: Draw) -> Evidence:
    """The best measure so far is renewed where weights are kept because of it."""
    from conformance.watch import choices

    run = run_of(impl)
    step = steps_of(run)[-1]
    found = choices.choices(run)
    if not found:
        raise NotProvided("no measure was seen that is compared with the best one so far")
    other = next((one for one in found if one.other), None)
    if other is not None:
        return broken(
            step,
            f"what {other.best} is set to",
            other.measure,
            other.other,
            at=lambda lines: lines.first(other.other_at),
            diagnosis=f"{other.best} is compared with {other.measure} and set to {other.other}: later measures are "
            "held to another one.",
            mend=f"set {other.best} = {other.measure}",
        )
    wrong = next((one for one in found if not one.is_bound), None)
    if wrong is None:
        return kept("measures that are compared with the best one, which is renewed", len(found))
    return broken(
        step,
        f"where {wrong.best} is set to a better measure",
        "where the weights are kept",
        "nowhere",
        at=lambda lines: lines.first(wrong.place),
        diagnosis=f"{wrong.best} keeps its first value: every measure is better than it, and the weights that are kept "
        "are the last ones.",
        mend=f"set {wrong.best} = {wrong.measure} where the weights are kept",
    )


@check("run-best-looks-the-right-way", roles=RUN)
def best_looks_right(impl: Any, draw: Draw) -> Evidence:
    """The lowest loss is the best one, and the highest accuracy."""
    from conformance.watch import choices

    run = run_of(impl)
    step = steps_of(run)[-1]
    found = choices.choices(run)
    if not found:
        raise NotProvided("no measure was seen that is compared with the best one so far")
    wrong = next((one for one in found if choices.wrong_way(one)), None)
    if wrong is None:
        return kept("measures whose best is kept", ", ".join(dict.fromkeys(one.measure for one in found)))
    better = choices.wrong_way(wrong)
    return broken(
        step,
        f"which {wrong.measure} is kept as the best",
        f"the {better} one",
        "the lower one" if better == "higher" else "the higher one",
        at=lambda lines: lines.first(wrong.bound, wrong.place),
        diagnosis=f"{wrong.measure} is better where it is {better}, and the worst weights are kept.",
        mend="turn the comparison round, and what the best measure begins with",
    )


@check("run-best-is-measured-on-what-learns", roles=RUN)
def best_is_of_learner(impl: Any, draw: Draw) -> Evidence:
    """The measure by which the best weights are kept is taken of a model that learns, or of its average."""
    from conformance.watch import choices
    from conformance.watch.events import Forward

    run = run_of(impl)
    begun = steps_of(run)[0].order
    if any(run.parameters[number].in_model for number in (*run.copies, *run.aliases)):
        raise NotProvided("a copy of the model follows it, and may be what is measured")
    if all(call.frozen for call in training(run)):
        raise NotProvided("what learns is no module: a prompt, say, that is given to a frozen one")
    seen = 0
    for one in choices.choices(run):
        inside = [c for c in run.of(Forward) if c.order > begun and any(at.place in one.made for at in c.stack)]
        seen += bool(inside)
        if inside and all(call.frozen for call in inside):
            return broken(
                inside[0],
                f"of which model {one.measure} is measured, by which weights are kept",
                "the one that learns",
                f"{run.modules[inside[0].module][0]}, which is frozen",
                at=lambda lines, made=one.made: lines.first(sorted(made)[:1]),  # type: ignore[misc]
                diagnosis="The measure that decides which weights are kept is of a frozen model: it never changes.",
                mend="measure the model that the optimizer steps",
            )
    if not seen:
        raise NotProvided("no measure was seen that decides which weights are kept")
    return kept("measures that decide are of what learns", seen)


@check("run-best-is-of-what-judges", roles=RUN)
def best_is_of_what_judges(impl: Any, draw: Draw) -> Evidence:
    """Where other data are measured, weights are kept by that, and not by a loss of training."""
    from conformance.watch import choices

    run = run_of(impl)
    step = steps_of(run)[-1]
    found = choices.by_training(run)
    if not found:
        raise NotProvided("no weights were seen that are kept by a loss of training")
    loss, judged, is_last, place = found[0]
    of = "the last batch of the epoch, by chance low or high" if is_last else "what the model learns by heart"
    return broken(
        step,
        "by what weights are kept",
        judged,
        f"{loss}, of the {'last training batch' if is_last else 'training data'}",
        at=lambda lines: lines.first(place),
        diagnosis=f"{judged} is measured and chooses nothing: weights are kept by {loss}, which is that of {of}.",
        mend=f"compare {judged} with the best one so far",
    )


@check("run-pairs-stay-together", roles=RUN)
def pairs_stay(impl: Any, draw: Draw) -> Evidence:
    """What is shuffled takes its labels with it."""
    from conformance.watch import choices

    run = run_of(impl)
    step = steps_of(run)[0]
    torn = choices.torn_pairs(run)
    if not torn:
        raise NotProvided("no list was seen that is shuffled and then put together with labels")
    return broken(
        step,
        f"what is shuffled with {torn[0].shuffled}",
        torn[0].other,
        "nothing",
        at=lambda lines: lines.first(torn[0].place),
        diagnosis=f"{torn[0].shuffled} is shuffled by itself and then zipped with {torn[0].other}: each gets the label "
        "of another.",
        mend="shuffle the pairs, or the numbers of the rows",
    )


@check("run-rate-that-is-computed-is-used", roles=RUN)
def rate_is_used(impl: Any, draw: Draw) -> Evidence:
    """The rate that a function computes for each step reaches the optimizer."""
    from conformance.watch import choices

    run = run_of(impl)
    unused = choices.unused_rates(run)
    for one in unused:
        steps = [step for step in steps_of(run) if any(at.place in one.steps for at in step.stack)]
        if len(steps) < 3 or len({step.rates for step in steps}) > 1:
            continue
        return broken(
            steps[-1],
            f"where {one.name} goes that is computed for each step",
            "into the optimizer's groups",
            f"nowhere but into what is shown; the rate is {steps[-1].rates[0]:.3g} in all {len(steps)} steps",
            at=lambda lines, place=one.place: lines.first(place),  # type: ignore[misc]
            diagnosis="The schedule is computed and never written to the optimizer, whose rate stays as it was made.",
            mend=f'for group in optimizer.param_groups: group["lr"] = {one.name}',
        )
    if not unused:
        raise NotProvided("no rate was seen that is computed in the loop and only shown")
    return kept("rates that are shown, and change", len(unused))


@check("run-cosine-turns-at-pi", roles=RUN)
def cosine_turns(impl: Any, draw: Draw) -> Evidence:
    """A schedule of half a cosine wave goes through pi."""
    from conformance.watch import choices

    run = run_of(impl)
    step = steps_of(run)[-1]
    places = choices.cosines_without_pi(run)
    if not places:
        raise NotProvided("no schedule was seen whose cosine has no pi")
    return broken(
        step,
        "the angle of the schedule's cosine",
        "pi times the share of the steps",
        "the share alone",
        at=lambda lines: lines.first(places[:1]),
        diagnosis="The cosine of a share of the steps goes from 1 to 0.54 only: the rate stays near its peak, and "
        "jumps at the end.",
        mend="math.cos(math.pi * share)",
    )


@check("run-loading-finds-its-weights", roles=RUN)
def loading_finds(impl: Any, draw: Draw) -> Evidence:
    """Some of the weights that are loaded have the names of the module's own."""
    from conformance.watch.events import Restore

    restored = [one for one in run_of(impl).of(Restore) if one.what == "model"]
    if not restored:
        raise NotProvided("no model got its state back")
    lost = next((one for one in restored if one.matched == 0), None)
    if lost is None:
        return kept("modules that got weights by their names", len(restored))
    return broken(
        lost,
        "names of the state that the module knows",
        "some",
        "none",
        diagnosis="None of the names fits, and strict=False says nothing: the module keeps the weights that it began "
        "with.",
        mend="take the prefix off the names, and look at what load_state_dict gives back",
    )


@check("run-checkpoint-is-of-what-learns", roles=RUN)
def checkpoint_of_learner(impl: Any, draw: Draw) -> Evidence:
    """The weights that are saved while a model learns are its own, or an average of them."""
    from conformance.watch import choices
    from conformance.watch.events import Save, Snapshot, Step

    run = run_of(impl)
    begun = next((step.order for step in run.of(Step)), len(run.events))
    saves = [one for one in run.of(Save) if one.order > begun and "model" in one.holds]
    states = [one for one in run.of(Snapshot) if one.order > begun and one.of >= 0]
    if not saves or not states:
        raise NotProvided("no weights were saved after a step")
    following = run.copies.keys() | run.aliases.keys()
    frozen = [one for one in states if one.frozen and not one.held & following]
    if len(frozen) == len(states) and not run.whole and choices.may_keep_more(run):
        raise NotProvided("only states of a frozen module were asked for until watching ended, and others may be later")
    if len(frozen) < len(states):
        return kept("weights that are saved are those of what learns", len(saves))
    return broken(
        frozen[0],
        "whose weights are saved",
        "those of the model that learns",
        "only those of a frozen one",
        diagnosis="The only weights that are kept are of a module that is frozen: what was learned is lost.",
        mend="save the state of the model that the optimizer steps",
    )


@check("run-losses-that-are-summed-have-gradients", roles=RUN)
def summed_have_gradients(impl: Any, draw: Draw) -> Evidence:
    """Each loss that goes into the sum of a backward pass has a gradient."""
    from conformance.watch import sums

    run = run_of(impl)
    steps_of(run)
    parts = sums.parts_of_sums(run)
    if not parts:
        raise NotProvided("no backward pass was seen that begins with a sum of losses")
    dead = next((one for one in parts if not one.has_gradient), None)
    if dead is None:
        return kept("losses that are summed have gradients", len(parts))
    return broken(
        dead.loss,
        "what a loss of the sum is recorded for",
        "a gradient",
        "none",
        at=lambda lines: lines.cut(dead.loss),
        diagnosis="A loss that is added to the one that is learned from has no gradient: it teaches nothing.",
        mend="take the detach() or no_grad() away on the side that learns",
    )


@check("run-best-weights-are-read", roles=RUN)
def best_weights_are_read(impl: Any, draw: Draw) -> Evidence:
    """Who keeps a copy of the best weights reads it again."""
    from conformance.watch import kept as keeping

    run = run_of(impl)
    step = steps_of(run)[-1]
    found = keeping.unread_best(run)
    if not found:
        raise NotProvided("no copy of the best weights was seen that nothing reads")
    name, place, also = found[0]
    return broken(
        step,
        f"where {name} is read",
        "behind the loop, before the model is used",
        "nowhere",
        at=lambda lines: lines.first(place, also),
        diagnosis=f"{name} keeps a copy of the best weights, and nothing reads it: what is used is the last weights.",
        mend=f"model.load_state_dict({name}) behind the loop",
    )


@check("run-kept-model-is-a-copy", roles=RUN)
def kept_model_is_a_copy(impl: Any, draw: Draw) -> Evidence:
    """What is kept as a reference or as the best model is a copy of the one that learns."""
    from conformance.watch import aliases

    run = run_of(impl)
    step = steps_of(run)[-1]
    found = aliases.aliases(run)
    if not found:
        raise NotProvided("no second name of the model that learns was seen that says another one")
    name, learner, place = found[0]
    return broken(
        step,
        f"what {name} is",
        f"a copy of {learner}",
        f"{learner} itself, which goes on learning",
        at=lambda lines: lines.first(place),
        diagnosis=f"{name} is a second name of {learner}: it changes with each step.",
        mend=f"{name} = copy.deepcopy({learner})",
    )


@check("run-batches-move-on-by-their-size", roles=RUN)
def batches_move_on(impl: Any, draw: Draw) -> Evidence:
    """Batches that a loop cuts out of shuffled rows follow each other, and do not overlap."""
    from conformance.watch import cutting

    step, found = told_by_text(
        impl, cutting.moved_by_one, "no batch was seen that is cut from the number of a batch on"
    )
    return broken(
        step,
        "how far a batch begins behind the one before",
        found.size,
        f"1: {found.what}",
        at=lambda lines: lines.first(found.place),
        diagnosis=f"{found.what} begins one row behind the batch before: nearly the same rows come again and again, "
        "and most rows never do.",
        mend=f"begin at the number of the batch times {found.size}",
    )


@check("run-resumed-run-takes-up-what-it-kept", roles=RUN)
def takes_up_what_it_kept(impl: Any, draw: Draw) -> Evidence:
    """What training goes on from, and a checkpoint keeps, is read again where a run resumes."""
    from conformance.watch.taken_up import not_taken_up

    nothing = "nothing was seen that a checkpoint keeps for a run that resumes, and that this leaves"
    step, (name, place) = told_by_text(impl, not_taken_up, nothing)
    return broken(
        step,
        f"{name} in a run that resumes",
        "what it was",
        "what it is at the start of a run",
        at=lambda lines: lines.first(place),
        diagnosis=f"The checkpoint keeps {name}, and whoever resumes does not read it: it begins anew, though the "
        "optimizer goes on.",
        mend=f'{name} = state["{name}"]',
    )


@check("run-epochs-draw-their-own-order", roles=RUN)
def epochs_draw_anew(impl: Any, draw: Draw) -> Evidence:
    """The order of the data is drawn anew in each epoch, and not from one seed."""
    from conformance.watch import drawing

    step, found = told_by_text(impl, drawing.drawn_alike, "no order was seen that each epoch draws from one seed")
    return broken(
        step,
        "the order of each epoch",
        "its own",
        f"drawn from one seed: {found.what}",
        at=lambda lines: lines.first(found.place),
        diagnosis=f"Each epoch draws its order from the seed of {found.what}: the same batches come again and again.",
        mend="make the generator once, or add the epoch to the seed",
    )


@check("run-data-stay-as-they-were", roles=RUN)
def data_stay(impl: Any, draw: Draw) -> Evidence:
    """Noise is added to a copy of the data, and not to the data that the next epoch reads."""
    from conformance.watch import drawing

    step, found = told_by_text(impl, drawing.written_into, "no noise was seen that is written into the data that stay")
    return broken(
        step,
        "the data that the next epoch reads",
        "as they were",
        f"changed by {found.what}",
        at=lambda lines: lines.first(found.place),
        diagnosis=f"{found.what} writes into the data themselves: each epoch finds them further from what they were.",
        mend="x = x.clone(), or x = x + noise, which makes a new one",
    )
