"""Checks of a training run: copies that follow a trained part, and state that a script keeps by its own methods."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from conformance.check import check
from conformance.checks.watched_gradients import steps_of
from conformance.checks.watched_labels import RUN, broken, kept, run_of, unusual
from conformance.checks.watched_modes import evaluation
from conformance.draw import Draw
from conformance.evidence import Evidence, note
from conformance.protocol import NotProvided

_ASKED = re.compile(r"(^|[._])(key|k|teacher|target|momentum)([._]|$)")
"""Names of copies that are there to be asked; an average of weights may be there to be saved."""


def copies_of(run: Any) -> dict[int, Any]:
    """The copies, by number. Raises NotProvided where there is none."""
    if not run.copies:
        raise NotProvided("no copy of a trained part was seen that no optimizer steps")
    copies: dict[int, Any] = run.copies
    return copies


@check("run-copy-changes-slowly", roles=RUN)
def changes_slowly(impl: Any, draw: Draw) -> Evidence:
    """A copy that follows a trained part in each step keeps most of itself."""
    run = run_of(impl)
    followed = {number: copy.kept for number, copy in copies_of(run).items() if len(copy.kept) >= 3}
    moving = {number: kept for number, kept in followed.items() if max(kept) < 0.999999}
    if not moving:
        raise NotProvided("no copy was seen that follows a trained part in each step")
    number, shares = max(moving.items(), key=lambda item: max(item[1]))
    falls = len(shares) >= 5 and max(shares) - min(shares) > 0.1 and all(a > b for a, b in pairwise(shares))
    step, name = steps_of(run)[0], run.parameters[number].name
    if falls:
        wanted, got, m = (
            "more with each step, or the same",
            f"less: {shares[0]:.2g} to {shares[-1]:.2g}",
            "grows to one",
        )
        why = "less of itself with each step: what is to be kept and what is to be taken over are exchanged."
    elif max(shares) >= 0.5 or min(shares) < 1e-3:  # one that keeps nothing is a plain copy of each step
        return kept("the share of itself that a copy keeps", f"{max(shares):.4g}")
    else:
        wanted, got, m = "most, as 0.99", f"{max(shares):.2g}", "is near one"
        why = f"{max(shares):.0%} of itself in each step: it is nearly the trained part, not its slow average."
    return broken(
        step,
        "the share of itself that a copy keeps in each step",
        wanted,
        got,
        at=lambda lines: lines.averaged(run, name) or [step.place],
        diagnosis=f"{name} keeps {why}",
        mend=f"copy = m * copy + (1 - m) * trained, where m {m}",
    )


@check("run-copy-is-asked", roles=RUN)
def copy_is_asked(impl: Any, draw: Draw) -> Evidence:
    """A copy of a trained part that belongs to the model runs."""
    run = run_of(impl)
    inside = {n: one for n, one in copies_of(run).items() if run.parameters[n].in_model}
    idle = [n for n, one in inside.items() if not run.parameters[n].used and run.parameters[one.of].used]
    if not inside or run.steps < 20:
        raise NotProvided("no copy of a trained part was seen inside the model for twenty steps")
    if len(idle) < len(inside):  # torch runs a whole layer at once in evaluation, and not its parts
        return kept("copies run", len(inside) - len(idle))
    name, step = run.named(idle), steps_of(run)[0]
    if not all(_ASKED.search(run.parameters[n].name) for n in idle):
        return note("a copy of a trained part that never runs", name)
    return broken(
        step,
        "copies of trained parts that never run",
        "none",
        name,
        at=lambda lines: lines.first(lines.in_its_place(run, run.parameters[idle[0]].name), step.place),
        diagnosis=f"{name} never run: the trained part is asked in place of its slow copy.",
        mend="call the copy where the model needs its answers",
    )


@check("run-state-is-updated", roles=RUN)
def state_is_updated(impl: Any, draw: Draw) -> Evidence:
    """What a model's class has a method to update is updated."""
    from conformance.watch import stated

    run = run_of(impl)
    steps = steps_of(run)
    methods = stated.updates(run)
    if not methods or run.steps < 5:
        raise NotProvided("no method was seen that updates buffers or copies of the model")
    for method in methods:
        resting = sorted(name for name in run.still if method.names & {*name.split(".")})
        if not method.is_called and resting:
            return broken(
                steps[0],
                f"calls of {method.name}",
                "one a step",
                "none",
                at=lambda lines: lines.first(
                    lines.beside(run, [one.name for one in methods if one.is_called]), steps[-1].place, method.place
                ),
                diagnosis=f"Nothing calls {method.name}: {resting[0]} stays as it was at the start.",
                mend=f"call {method.name} in each step",
            )
    return kept("methods that update state are called", len(methods))


@check("run-stepped-parts-run", roles=RUN)
def stepped_parts_run(impl: Any, draw: Draw) -> Evidence:
    """What an optimizer is to train has a part in the model's answers."""
    run = run_of(impl)
    steps = [step for step in steps_of(run) if step.optimizer == steps_of(run)[0].optimizer]
    if len(steps) < 20:
        raise NotProvided("no twenty steps of an optimizer were seen")
    never = frozenset.intersection(*(step.missing for step in steps))
    idle = frozenset(n for n in never if run.parameters[n].in_model and not run.parameters[n].used)
    if idle:
        return unusual("parameters of the optimizer whose part never runs", f"{len(idle)}: {run.named(idle)}")
    return kept("parts of the optimizer's parameters run", len(run.optimizers[steps[0].optimizer].parameters))


@check("run-average-has-its-own-memory", roles=RUN)
def own_memory(impl: Any, draw: Draw) -> Evidence:
    """What follows the trained weights does not lie in their memory."""
    from conformance.watch import averages

    run = run_of(impl)
    named = averages.aliases(run)
    if named:
        return broken(
            steps_of(run)[1],
            "the share of themselves that trained weights keep between steps",
            1,
            f"{run.kept[-1]:.6g}",
            at=lambda lines: lines.first(named[:1]),
            diagnosis="The average is the model itself under another name: to update it shrinks the trained weights.",
            mend="copy the model: copy.deepcopy(model)",
        )
    aliases = {number: one for number, one in run.aliases.items() if len(one.kept) >= 3}
    if not aliases:
        raise NotProvided("nothing was seen that lies in the memory of trained weights")
    shrinking = [one for one in aliases.values() if all(abs(share - 1) > 1e-7 for share in one.kept[1:])]
    if not shrinking:
        return kept("the share of themselves that weights keep between steps", 1)
    step, share = steps_of(run)[1], shrinking[0].kept[-1]
    return broken(
        step,
        "the share of themselves that trained weights keep between steps",
        1,
        f"{share:.6g}",
        at=lambda lines: lines.first(
            lines.written(run, lines.ALIASES)[:1],
            lines.written(run, r"\.data = |state_dict\(\)"),
            step.place,
        ),
        diagnosis=f"An average of the weights lies in their own memory: to update it multiplies the trained weights by "
        f"{share:.6g}.",
        mend="copy them: parameter.detach().clone()",
    )


@check("run-average-is-asked", roles=RUN)
def average_is_asked(impl: Any, draw: Draw) -> Evidence:
    """An average of the weights that follows them to the end of a script is evaluated, loaded or saved."""
    from conformance.watch import averages
    from conformance.watch.followers import is_slow

    run = run_of(impl)
    step, slow = steps_of(run)[-1], [number for number, one in run.copies.items() if is_slow(one)]
    if not slow or not run.whole:
        raise NotProvided("no average of the weights was seen that follows them until the script ends")
    idle = averages.unasked(run)
    if not idle:
        return kept("averages that are asked", len(slow))
    judged = [call.place for call, _ in evaluation(run)]
    if not judged:
        raise NotProvided("no evaluation was seen, so that the average may be for another script")
    name = run.parameters[idle[0]].name
    return broken(
        step,
        "what asks the average of the weights",
        "an evaluation, or a file",
        "nothing",
        at=lambda lines: lines.first(lines.last_evaluated(run), judged[-1:]),
        diagnosis=f"{name} follows the weights to the end, and nothing asks it: what is evaluated is the raw weights.",
        mend="evaluate the average in the place of the model",
    )


@check("run-slow-copy-begins-as-a-copy", roles=RUN)
def begins_as_a_copy(impl: Any, draw: Draw) -> Evidence:
    """A part that follows a trained one slowly began with its values."""
    run = run_of(impl)
    followed = {n: one for n, one in run.strangers.items() if len(one.kept) >= 3}
    slow = {n: one for n, one in followed.items() if 0.5 < min(one.kept) <= max(one.kept) < 1}
    strange = {n: one for n, one in slow.items() if abs(one.likeness) < 0.3}
    if not slow and not run.copies:
        raise NotProvided("no part was seen that follows a trained one")
    if not strange or len(strange) < len(slow):
        return kept("slow copies that began with other values", 0)
    (number, one), step = next(iter(strange.items())), steps_of(run)[0]
    name = run.parameters[number].name
    return broken(
        step,
        "what a part that follows a trained one began with",
        "the values of that one",
        f"others: the cosine of both is {one.likeness:.2g}",
        at=lambda lines: lines.first(lines.slow_part(run), step.place),
        diagnosis=f"{name} follows {run.parameters[one.of].name}, keeps {max(one.kept):.3g} of itself in each step, "
        "and began with random numbers of its own: for long it is neither the one nor its average.",
        mend="begin with the same values: copy.deepcopy(part), or load_state_dict",
    )


@check("run-training-leaves-its-average", roles=RUN)
def leaves_its_average(impl: Any, draw: Draw) -> Evidence:
    """Weights that an evaluation takes from their average are put back before training goes on. Who goes on from the
    average on purpose (Switch EMA) keeps no weights to put back, and does not do it inside an evaluation."""
    from conformance.watch import stated
    from conformance.watch.events import Averaged, Forward, Restore, Snapshot
    from conformance.watch.followers import is_slow
    from conformance.watch.watcher import speaks_of_evaluation

    run = run_of(impl)
    if not any(map(is_slow, run.copies.values())):
        raise NotProvided("no average was seen that follows the trained weights")
    found = run.of(Averaged)
    if not found:
        return kept("steps that go on from the average", 0)
    one = found[0]
    before = [e for e in run.events[: one.order] if e.step == one.step]
    loads = [e for e in before if isinstance(e, Restore) and e.what == "model"]
    was_judged = any(isinstance(e, Forward) and not e.gradients for e in before)
    own = {n for group in run.optimizers.values() for n in group.parameters}
    is_kept = any(isinstance(e, Snapshot) and e.of in own and e.order < loads[0].order for e in before if loads)
    inside = any(speaks_of_evaluation(at.code.co_name) for e in loads for at in e.stack)
    is_meant_back = is_kept or inside or _swaps(run, own) or stated.puts_back(run)
    return broken(
        one,
        "the weights that training goes on from",
        "those of the last step",
        "their own average",
        at=lambda lines: lines.first(lines.written(run, lines.ALIASES)[:1], [e.place for e in loads[:1]], one.place),
        diagnosis=f"The weights are overwritten by their average, and training goes on from it in step {one.step + 1}.",
        mend="keep a copy of the weights, and load it back after the evaluation; or evaluate a model of its own",
        is_certain=was_judged and is_meant_back,
    )


def _swaps(run: Any, own: set[int]) -> bool:
    """Whether weights are put back anywhere: loaded, judged without gradients, and loaded again in one step."""
    from conformance.watch.events import Forward, Restore

    loads = [one for one in run.of(Restore) if one.what == "model" and one.of in own]
    return any(
        one.step == other.step and any(not call.gradients for call in run.between(one.order, other.order, Forward))
        for one, other in pairwise(loads)
    )


@check("run-pointer-moves-on", roles=RUN)
def pointer_moves_on(impl: Any, draw: Draw) -> Evidence:
    """The place from which a buffer is written is moved on."""
    from conformance.watch.slots import slots

    run = run_of(impl)
    step, still = steps_of(run)[-1], {name.rpartition(".")[2] for name in run.still}
    written = [slot for slot in slots(run) if slot.buffer not in still]
    if not written or run.steps < 5:
        raise NotProvided("no buffer was seen that is written from a place which the model keeps")
    resting = next((slot for slot in written if not slot.moves), None)
    if resting is None:
        return kept("places in buffers that are moved on", len(written))
    return broken(
        step,
        f"lines that move {resting.pointer} on",
        "one, where the buffer is written",
        "none",
        at=lambda lines: lines.first(resting.place, step.place),
        diagnosis=f"{resting.buffer} is written from {resting.pointer} on, which stays 0: the first slots are renewed "
        "again and again, the others never.",
        mend=f"move it on after writing: ({resting.pointer} + number) % size",
    )


@check("run-average-has-statistics", roles=RUN)
def average_has_statistics(impl: Any, draw: Draw) -> Evidence:
    """Where an average of weights is evaluated, its norms over the batch have statistics of the data."""
    from conformance.watch.events import Forward
    from conformance.watch.followers import is_slow

    run = run_of(impl)
    step, slow = steps_of(run)[-1], [number for number, one in run.copies.items() if is_slow(one)]
    asked = [call for call in run.of(Forward) if call.module in run.without_statistics and not call.gradients]
    judged = [call for call in asked if call.evaluating and not call.training]
    if not judged:
        raise NotProvided("no average of weights with norms over the batch was evaluated without their statistics")
    return broken(
        step,
        "the statistics of the norms over the batch, in the average that is evaluated",
        "those of the data",
        "means of 0 and variances of 1, as they were made",
        at=lambda lines: lines.first(lines.averaged(run, run.parameters[slow[0]].name), judged[0].place),
        diagnosis="The average takes the parameters and no buffers: its norms over the batch have seen no data.",
        mend="copy the buffers, too, or compute them anew: torch.optim.swa_utils.update_bn(loader, average)",
    )
