"""Checks of a training run: what is saved, and what going on from it restores."""

from __future__ import annotations

from typing import Any

from conformance.check import check
from conformance.checks.watched_gradients import steps_of, told_by_text
from conformance.checks.watched_labels import RUN, broken, kept, run_of, unusual
from conformance.draw import Draw
from conformance.evidence import Evidence
from conformance.protocol import NotProvided


@check("run-checkpoint-holds-the-run", roles=RUN)
def checkpoint(impl: Any, draw: Draw) -> Evidence:
    """A checkpoint beside the model holds the optimizer and the schedule, which resuming needs."""
    from conformance.watch.events import Save, Schedule

    run = run_of(impl)
    saves = [save for save in run.of(Save) if "model" in save.holds or "optimizer" in save.holds]
    if not saves:
        raise NotProvided("no checkpoint was written by torch.save")
    wanted = {"optimizer", *({"scheduler"} if run.of(Schedule) else ())}
    best = max(saves, key=lambda save: len(save.holds))
    missing = sorted(wanted - best.holds)
    if missing:
        return unusual("what no checkpoint holds, so that resuming forgets it", f"{', '.join(missing)} ({best.place})")
    return kept("a checkpoint holds what resuming needs", ", ".join(sorted(best.holds)))


_OPTIMIZER = ("optimizer", "optim", "opt", "optimizer_state_dict", "optimizer_state", "optim_state_dict")


@check("run-resuming-restores-all", roles=RUN)
def restores_all(impl: Any, draw: Draw) -> Evidence:
    """Who goes on from a checkpoint restores all that it holds. Who takes the model alone from a file that an earlier
    run wrote may begin anew; who takes the optimizer or the schedule, too, goes on. Where no run went on, the script's
    text tells."""
    from conformance.watch import pointing, restoring
    from conformance.watch.events import Load, Restore, Step

    run = run_of(impl)
    for load in run.of(Load):
        following = next((step.order for step in run.of(Step) if step.order > load.order), None)
        if following is None:
            continue
        restored = {one.what for one in run.between(load.order, following, Restore)}
        forgotten = (load.holds & {"optimizer", "scheduler"}) - restored
        if not load.is_own and not restored & {"optimizer", "scheduler"}:
            continue
        if "optimizer" in restored and any(pointing.reads_key(run, key) for key in _OPTIMIZER):  # by its keys
            forgotten |= {key for key in load.averages if not pointing.reads_key(run, key)}
        if "model" in restored and forgotten:
            return broken(
                load,
                "what is restored of the checkpoint before the next step",
                ", ".join(sorted(load.holds)),
                ", ".join(sorted(restored)),
                at=lambda lines: lines.first(  # beside what is restored stands what is missing
                    [one.place for one in run.between(load.order, following, Restore)][::-1], load.place
                ),
                diagnosis="Training goes on from a checkpoint and leaves out what it holds of the "
                f"{' and the '.join(sorted(forgotten))}.",
                mend="call load_state_dict on each of them",
            )
        return kept("what is restored of the checkpoint", ", ".join(sorted(restored)))
    if lost := restoring.forgotten(run):
        one = lost[0]
        return broken(
            steps_of(run)[0],
            "what the script restores of the checkpoint that it saves",
            f"{one.key}, too",
            ", ".join(one.restored),
            at=lambda lines: lines.first(one.place),
            diagnosis=f"Who goes on from the checkpoint of this script goes on without its {one.key}: it is saved, and "
            "nothing reads it.",
            mend=f'call load_state_dict with checkpoint["{one.key}"]',
        )
    raise NotProvided("no training went on from a checkpoint")


@check("run-restored-state-is-a-copy", roles=RUN)
def is_a_copy(impl: Any, draw: Draw) -> Evidence:
    """The state that a model gets back is not its own memory, which has changed since."""
    from conformance.watch import plans
    from conformance.watch.events import Restore, Snapshot

    run = run_of(impl)
    restored = [one for one in run.of(Restore) if one.what == "model"]
    wrong = next((one for one in restored if one.is_itself), None)
    held = next((one for one in run.of(Snapshot) if one.outlived and plans.is_restored_later(one)), None)
    gathered = plans.gathered(run)
    if wrong is None and gathered is not None:
        return broken(
            gathered,
            "the states that a list keeps",
            "copies from several times",
            "the model's own memory each time",
            diagnosis="All states in the list are the current one: state_dict() gives the memory itself, no copy.",
            mend="append copy.deepcopy(model.state_dict())",
        )
    if wrong is None and held is not None:
        return broken(
            held,
            "the state that is kept to be restored",
            "a copy",
            f"the model's own memory, which changed in {held.outlived} steps since",
            diagnosis="The best state that is kept is the current one: state_dict() gives the memory itself, no copy.",
            mend="keep copy.deepcopy(model.state_dict())",
        )
    if not restored:
        raise NotProvided("no model got its state back")
    if wrong is None:
        return kept("state that is restored is a copy", len(restored))
    return broken(
        wrong,
        "the state that the model gets back",
        "a copy from before",
        "its own memory",
        at=lambda lines: lines.kept(wrong),
        diagnosis="The best state that is restored is the current one: state_dict() gives the memory itself, no copy.",
        mend="keep copy.deepcopy(model.state_dict())",
    )


@check("run-resumed-equals-not-stopped", roles=RUN)
def resumed(impl: Any, draw: Draw) -> Evidence:
    """A run that goes on from its checkpoint steps from what it would have stepped from without a stop."""
    from conformance.watch.events import Restore

    run = run_of(impl)
    if not run.expected:
        raise NotProvided("no run was gone on with; --resume-check takes the options with which the script does that")
    if not run.moments:
        raise NotProvided("the script made no step when it was started again")
    pairs = list(zip(run.moments, run.expected, strict=False))
    forgotten = [[what for what in was if now.get(what) != was[what]] for now, was in pairs]
    if not any(forgotten):
        return kept("what the first steps begin from after a stop", f"the same bits in {len(pairs)} steps")
    step = steps_of(run)[0]
    restored = [one for one in run.of(Restore) if one.order < step.order]
    first = next(one for one in forgotten if one)
    if any("schedule" in one for one in forgotten) and "schedule" not in first:
        first = [*first, "schedule"]  # rates follow from nothing else that may differ
    named = ", ".join(first)
    return broken(
        restored[0] if restored else step,
        "what differs from the run that was not stopped",
        "nothing",
        named,
        is_certain=bool({"model", "optimizer", "schedule", "scaler"} & {*first}),
        diagnosis=f"Going on from the checkpoint forgets: {named}."
        if restored
        else "The script begins anew: with these options it restores no state.",
        mend="save and restore the state of each of them: model, optimizer, schedule, scaler, torch.get_rng_state(), "
        "and how many batches were seen",
    )


@check("run-loaded-weights-are-kept", roles=RUN)
def loaded_are_kept(impl: Any, draw: Draw) -> Evidence:
    """The module that weights are loaded into is one that the script keeps."""
    from conformance.watch import plans
    from conformance.watch.events import Restore

    restored = [one for one in run_of(impl).of(Restore) if one.what == "model"]
    if not restored:
        raise NotProvided("no model got its state back")
    lost = next((one for one in restored if one.is_lost and plans.is_of_a_new_module(one)), None)
    if lost is None:
        return kept("modules that got their state back and are kept", len(restored))
    return broken(
        lost,
        "the module that weights are loaded into",
        "one that the script keeps",
        "one that is made in this line and thrown away",
        diagnosis="Weights are loaded into a module that nothing keeps: what is trained begins without them.",
        mend="load them into the module that is trained",
    )


@check("run-optimizer-is-of-the-model-that-goes-on", roles=RUN)
def of_the_model_that_goes_on(impl: Any, draw: Draw) -> Evidence:
    """A model is not made anew behind the line that makes its optimizer."""
    from conformance.watch import restoring

    step, found = told_by_text(impl, restoring.remade, "no model was seen that is made anew behind its optimizer")
    return broken(
        step,
        f"whose parameters {found.optimizer} holds",
        f"those of the {found.model} that is trained",
        f"those of the {found.model} before",
        at=lambda lines: lines.first(found.place),
        diagnosis=f"{found.model} is made anew behind the line that makes {found.optimizer}, which holds the "
        "parameters of the one before: where this line runs, nothing is trained.",
        mend=f"load the state into the {found.model} that is there, or make {found.optimizer} after it",
    )
