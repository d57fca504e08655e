"""Checks of a training run: modes of modules, and data."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from conformance.check import check
from conformance.checks.watched_gradients import passes_before, steps_of
from conformance.checks.watched_labels import RUN, broken, kept, run_of, unusual
from conformance.draw import Draw
from conformance.evidence import Evidence, note
from conformance.protocol import NotProvided


def forwards(run: Any) -> list[tuple[Any, Any, list[Any]]]:
    """Each call of an outermost module, the backward pass that follows before the same module is called again (None:
    there is none), and the losses in between."""
    from conformance.watch.events import Backward, Forward, Loss

    found, ends = [], dict[int, int]()
    for call in reversed(run.of(Forward)):
        end = ends.get(call.module, len(run.events))
        ends[call.module] = call.order
        back = next(run.between(call.order, end, Backward), None) if call.gradients else None
        losses = list(run.between(call.order, end, Loss))
        found.append((call, back, losses))
    return found[::-1]


def training(run: Any) -> list[Any]:
    """The calls of modules that a step learns from; raises NotProvided where none was seen."""
    modules = {call.module for call, back, _ in forwards(run) if back is not None}
    found = [call for call, back, _ in forwards(run) if back is not None and call.module in modules]
    if not found:
        raise NotProvided("no forward pass with a backward pass was seen")
    return found


def evaluation(run: Any) -> Iterator[tuple[Any, list[Any]]]:
    """The calls of a module that is trained which nothing is learned from, with a loss or in a function that is named
    after evaluation. A teacher that is asked for what another model learns is not evaluated."""
    from conformance.watch import teachers

    modules = {call.module for call in training(run)}
    taught = {call.order for call in teachers.asked(run) if not call.evaluating}
    for call, back, losses in forwards(run):
        if call.order in taught:
            continue
        measured = call.evaluating or any(not loss.gradients for loss in losses)
        if call.module in modules and back is None and measured and not call.gradients:
            yield call, losses


@check("run-training-is-in-training-mode", roles=RUN)
def in_training_mode(impl: Any, draw: Draw) -> Evidence:
    """Dropout is active in the forward passes that are learned from."""
    from conformance.watch.events import Mode

    run = run_of(impl)
    calls = [call for call in training(run) if (call.random or call.resting) and not call.frozen]
    if not calls:
        raise NotProvided("no dropout with a rate above zero was seen in training")
    for call in calls:
        if not call.training and call.resting:
            switches = [m for m in run.of(Mode) if m.order < call.order and not m.training]
            again = any(c.training for c in training(run) if c.module == call.module and c.order < call.order)
            since = f" since {switches[-1].place}" if switches else ""
            return broken(
                call,
                "the mode of the model in training",
                "training",
                f"evaluation{since}",
                at=lambda lines: lines.switched(run, call, switches),
                diagnosis="The model is trained in evaluation mode: its dropout does nothing"
                + (", after an evaluation that did not set it back." if again and switches else "."),
                mend="call model.train() before the training loop, and after each evaluation",
            )
        if call.resting:
            return note("dropout that rests in training", f"{len(call.resting)} parts: {call.resting[0]}, ...")
    return kept("dropout is active in training", f"{len(calls[0].random)} parts")


@check("run-evaluation-is-in-evaluation-mode", roles=RUN)
def in_evaluation_mode(impl: Any, draw: Draw) -> Evidence:
    """Dropout rests in the forward passes of an evaluation."""
    from conformance.watch.gathered import gathers_answers

    run = run_of(impl)
    calls = list(evaluation(run))
    learning = {call.module for call in training(run)}
    others = [(call, losses) for call, _, losses in forwards(run) if call.module in learning and not call.gradients]
    calls += [one for one in others if not one[0].training and one[0].dropping]
    calls += [one for one in others if one[0].training and one[0].random and gathers_answers(one[0])]
    if not any(call.random or call.resting or call.dropping for call, _ in calls):
        raise NotProvided("no evaluation of a model with dropout was seen")
    for call, _ in calls:
        if call.dropping and not call.random:
            return broken(
                call,
                "dropout in the evaluation",
                "at rest",
                "active in a function that is not told the mode",
                at=lambda lines: lines.first(call.dropping, call.place),
                diagnosis="A function drops in evaluation mode, too: model.eval() does not reach it.",
                mend="pass training=self.training, or dropout_p=self.p if self.training else 0.0, or use nn.Dropout",
            )
        if call.random:
            return broken(
                call,
                "dropout in the evaluation",
                "at rest",
                f"active in {len(call.random)} parts: {call.random[0]}, ...",
                at=lambda lines: lines.evaluating(run, call),
                diagnosis="The model is evaluated in training mode: its dropout is active.",
                mend="call model.eval() before the evaluation, and model.train() after it",
            )
    return kept("dropout rests in evaluation")


@check("run-evaluation-leaves-statistics", roles=RUN)
def leaves_statistics(impl: Any, draw: Draw) -> Evidence:
    """Batch norms do not learn their statistics from evaluation data."""
    run = run_of(impl)
    calls = list(evaluation(run))
    if not calls or not any(call.normed for call in training(run)):
        raise NotProvided("no evaluation of a model with batch norms was seen")
    for call, _ in calls:
        if call.normed:
            return broken(
                call,
                "batch norms in the evaluation",
                "fixed",
                f"learning: {call.normed[0]}, ...",
                at=lambda lines: lines.evaluating(run, call),
                diagnosis="The evaluation changes the statistics of the batch norms: they are in training mode.",
                mend="call model.eval() before the evaluation",
            )
    return kept("batch norms are fixed in evaluation")


@check("run-frozen-norms-rest", roles=RUN)
def frozen_norms_rest(impl: Any, draw: Draw) -> Evidence:
    """A batch norm whose parameters are frozen does not learn statistics either."""
    run = run_of(impl)
    calls = [call for call in training(run) if call.normed or call.learned]
    if not calls:
        raise NotProvided("no batch norm was seen in training")
    copied = {run.parameters[number].name.split(".")[0] for number in run.copies}
    learned = [path for path in calls[0].learned if path.split(".")[0] not in copied]
    if learned:
        return unusual("frozen batch norms that learn statistics", f"{len(learned)}: {learned[0]}, ...")
    return kept("frozen batch norms rest", len(calls[0].normed))


@check("run-teachers-rest", roles=RUN)
def teachers_rest(impl: Any, draw: Draw) -> Evidence:
    """A model that learns no more, and is no copy of the one that learns, answers without dropout."""
    from conformance.watch import teachers

    run = run_of(impl)
    asked, drops = teachers.answers(run)
    if not asked:
        raise NotProvided("no fixed model with dropout was seen beside the one that learns")
    if drops is None:
        return kept("fixed models rest", asked)
    part = (drops.call.taught or drops.call.random)[0]
    return broken(
        drops.call,
        "dropout of a model that learns no more",
        "at rest",
        f"active: {part}, ...",
        is_certain=drops.is_certain,
        at=lambda lines: lines.first(teachers.left(run, drops.call), drops.call.place),
        diagnosis="The teacher answers in training mode: its dropout makes noise of what is learned from it.",
        mend="call eval() on it before its answers are learned from, and behind each train() that reaches it",
    )


@check("run-evaluation-needs-no-gradients", roles=RUN)
def needs_no_gradients(impl: Any, draw: Draw) -> Evidence:
    """An evaluation records no graph."""
    run = run_of(impl)
    found = [(call, back) for call, back, _ in forwards(run) if call.evaluating]
    if not found:
        raise NotProvided("no function that is named after evaluation was seen")
    recorded = [call for call, back in found if call.gradients and back is None]
    if recorded:
        return unusual("evaluation that records graphs", f"{len(recorded)} calls ({recorded[0].place})")
    return kept("evaluation records no graph")


@check("run-evaluation-is-not-learned-from", roles=RUN)
def not_learned_from(impl: Any, draw: Draw) -> Evidence:
    """No optimizer steps inside a function that is named after evaluation."""
    run = run_of(impl)
    found = [(call, back) for call, back, _ in forwards(run) if call.evaluating]
    if not found:
        raise NotProvided("no function that is named after evaluation was seen")
    learned = [back for _, back in found if back is not None]
    for step in steps_of(run):
        for back in passes_before(run, step):
            if any(back is one for one in learned) and len(learned) < len(training(run)):
                return broken(
                    step,
                    "what the evaluation does with its loss",
                    "it reads it",
                    "a backward pass and a step",
                    at=lambda lines: lines.first(lines.apart(run, back), back.place, step.place),
                    diagnosis="The model learns from the evaluation data.",
                    mend="leave backward() and step() out of the evaluation",
                )
    return kept("nothing is learned in evaluation")


@check("run-dropout-draws-anew", roles=RUN)
def draws_anew(impl: Any, draw: Draw) -> Evidence:
    """Each training pass draws its own dropout masks."""
    run = run_of(impl)
    calls = [call for call in training(run) if call.random]
    if len(calls) < 3:
        raise NotProvided("no three training passes with dropout were seen")
    same = [after for before, after in pairwise(calls) if before.generator == after.generator]
    if len(same) == len(calls) - 1:
        return broken(
            same[0],
            "the state of the random generator before each training pass",
            "another each time",
            "the same each time",
            at=lambda lines: lines.seeded(run, same[0]),
            diagnosis="The generator is seeded anew before each pass: every step drops the same numbers.",
            mend="seed once, before the training loop",
        )
    return kept("the generator goes on from pass to pass")


# --- data -----------------------------------------------------------------------------------------


@check("run-batches-differ", roles=RUN)
def batches_differ(impl: Any, draw: Draw) -> Evidence:
    """The steps of a run learn from different batches."""
    batches = [call.samples for call in training(run_of(impl)) if call.samples]
    if len(batches) < 3:
        raise NotProvided("no three training batches were seen")
    if len(set(batches)) == 1:
        return unusual("every training pass sees the same batch", f"{len(batches)} passes")
    return kept("training batches differ", f"{len(set(batches))} of {len(batches)}")


@check("run-batches-are-drawn-anew", roles=RUN)
def drawn_anew(impl: Any, draw: Draw) -> Evidence:
    """No generator is seeded in the loop so that each step learns from the same batch."""
    from conformance.watch import choices

    run = run_of(impl)
    seeded = choices.seeded_in_loops(run)
    for one in seeded:
        inside = (call for call in training(run) if any(at.place in one.lines for at in call.stack))
        calls = [call for call in inside if call.samples]
        if len(calls) < 3 or len({call.samples for call in calls}) > 1:
            continue
        return broken(
            calls[1],
            "the batch of each training pass",
            "another one",
            f"the same in {len(calls)} passes",
            at=lambda lines, place=one.place: lines.first(place),  # type: ignore[misc]
            diagnosis="A generator is seeded anew for each batch, and draws the same one each time.",
            mend="seed it once, before the loop",
        )
    if not seeded:
        raise NotProvided("no generator was seen that gets a seed in the loop that steps")
    return kept("batches differ though a generator is seeded in the loop", len(seeded))


@check("run-epochs-are-shuffled", roles=RUN)
def shuffled(impl: Any, draw: Draw) -> Evidence:
    """A loader gives its training data in another order in each epoch."""
    from conformance.watch.events import Batch

    run = run_of(impl)
    seen = 0
    for loader in run.loaders:
        epochs: dict[int, list[Any]] = {}
        for batch in run.of(Batch):
            if batch.loader == loader and batch.samples:
                epochs.setdefault(batch.epoch, []).append(batch.samples)
        first, second = epochs.get(1, []), epochs.get(2, [])
        both = min(len(first), len(second))
        if both < 3 or not _is_learned_from(run, loader):
            continue
        seen += 1
        if first[:both] == second[:both]:
            return unusual("an epoch gives the data in the same order as the one before", run.loaders[loader])
    if not seen:
        raise NotProvided("no second epoch of a training loader was seen")
    return kept("epochs are shuffled anew")


def _is_learned_from(run: Any, loader: int) -> bool:
    """Whether a backward pass follows a batch of a loader before a loader gives the next one."""
    from conformance.watch.events import Backward, Batch

    batches = run.of(Batch)
    ends = [batch.order for batch in batches[1:]] + [len(run.events)]
    return any(
        batch.loader == loader and any(run.between(batch.order, end, Backward))
        for batch, end in zip(batches, ends, strict=True)
    )


@check("run-no-batch-is-empty", roles=RUN)
def no_empty_batch(impl: Any, draw: Draw) -> Evidence:
    """Every batch of a loader has a row."""
    from conformance.watch.events import Batch

    batches = run_of(impl).of(Batch)
    if not batches:
        raise NotProvided("no torch.utils.data.DataLoader was seen")
    for batch in batches:
        if not batch.size:
            return broken(
                batch,
                "rows of a batch",
                "at least one",
                0,
                at=lambda lines: lines.batched(batch),
                diagnosis="The loader gives an empty batch.",
                mend="look at the sampler and at what collate_fn leaves out",
            )
    return kept("no batch is empty", len(batches))


@check("run-evaluation-data-are-others", roles=RUN)
def other_data(impl: Any, draw: Draw) -> Evidence:
    """Evaluation sees rows that training does not learn from."""
    run = run_of(impl)
    calls = [call for call, _ in evaluation(run)]
    seen = 0
    for axis in ("samples", "columns"):
        learned = {row for call in training(run) for row in getattr(call, axis)}
        for step in dict.fromkeys(call.step for call in calls) if learned else ():
            judged = {row for call in calls if call.step == step for row in getattr(call, axis)}
            shared = judged & learned
            if len(judged) >= 4 and len(shared) > 0.5 * len(judged):
                return unusual("rows of the evaluation that were learned from", f"{len(shared)} of {len(judged)}")
            seen = max(seen, len(judged))
    stretches = frozenset[int]().union(*(call.windows for call in calls))
    known = frozenset[int]().union(*(call.windows for call in training(run)))
    if len(stretches) >= 50 and known and len(stretches & known) > 0.9 * len(stretches):
        share = len(stretches & known) / len(stretches)
        return unusual("stretches of the evaluation's tokens that were learned from", f"{share:.0%}")
    if seen < 4 and not (stretches and known):
        raise NotProvided("no evaluation of at least four rows was seen")
    return kept("evaluation sees other rows", f"{seen} rows")
