"""Checks of a training run: what shows over many steps. Random numbers, the order of data, and the loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from conformance.check import check
from conformance.checks.watched_gradients import passes_used, steps_of
from conformance.checks.watched_labels import RUN, broken, kept, run_of, trained, unusual
from conformance.checks.watched_modes import training
from conformance.draw import Draw
from conformance.evidence import Evidence
from conformance.protocol import NotProvided


@check("run-random-numbers-go-on", roles=RUN)
def random_goes_on(impl: Any, draw: Draw) -> Evidence:
    """The random generator is not set back to where it was in earlier steps."""
    run = run_of(impl)
    calls = [call for call in training(run) if call.random]
    if len(calls) < 6:
        raise NotProvided("no six training passes with dropout were seen")
    states = [(call.module, call.generator) for call in calls]
    places: dict[Any, int] = {}
    for at in range(len(states) - 2):
        three = tuple(states[at : at + 3])
        earlier = places.setdefault(three, at)
        if at - earlier >= 3 and len(set(three)) == 3 and not _restored(run, calls[earlier], calls[at]):
            call = calls[at]
            return broken(
                call,
                "the state of the random generator",
                "another in each pass",
                f"that of pass {earlier + 1} again in pass {at + 1}",
                at=lambda lines: lines.seeded(run, call),
                diagnosis=f"The random generator is set back: from pass {at + 1} on, training draws again what it drew "
                f"from pass {earlier + 1} on.",
                mend="seed once, before training; give what needs fixed numbers a torch.Generator of its own",
            )
    return kept("random numbers go on", len(states))


def _restored(run: Any, first: Any, last: Any) -> bool:
    """Whether state was restored between two events, as going on from a checkpoint does."""
    from conformance.watch.events import Restore

    return any(run.between(first.order, last.order, Restore))


@check("run-passes-over-the-data-differ", roles=RUN)
def passes_differ(impl: Any, draw: Draw) -> Evidence:
    """Training batches do not come again in the order in which they came before."""
    run = run_of(impl)
    calls = [call for call in training(run) if call.samples and call.module == training(run)[0].module]
    again = [at for at, call in enumerate(calls) if call.samples == calls[0].samples][1:] if len(calls) >= 6 else []
    for at in again:
        number = min(at, len(calls) - at)
        first, second = ([call.samples for call in calls[begin : begin + number]] for begin in (0, at))
        if number >= 3 and first == second and len(set(first)) > 1 and not _restored(run, calls[0], calls[at]):
            return unusual("the same batches in the same order as before", f"from pass {at + 1} on ({calls[at].place})")
    if not again:
        raise NotProvided("no batch was seen a second time")
    return kept("batches come in another order", len(calls))


@check("run-accumulated-batches-differ", roles=RUN)
def accumulated_differ(impl: Any, draw: Draw) -> Evidence:
    """The backward passes of one step learn from different batches."""
    from conformance.watch.events import Forward

    run = run_of(impl)
    alike, seen = [], 0
    for step in steps_of(run):
        passes = [one for one in passes_used(run, step) if one.order < step.began]
        if len(passes) < 2 or len({one.place for one in passes}) > 1:
            continue
        calls = [c for c in run.between(step.previous, passes[-1].order, Forward) if c.gradients and c.samples]
        rows = [call.samples for call in calls if call.module == calls[0].module]
        if len(rows) == len(passes):
            seen += 1
            alike += [(passes[1], len(passes), rows[0])] if len(set(rows)) == 1 else []
    if seen < 3:
        raise NotProvided("no three steps were seen that accumulate gradients over several batches")
    if len(alike) < seen or len({rows for _, _, rows in alike}) < 2:
        return kept("accumulated batches differ", seen)
    one, number, _ = alike[0]
    return broken(
        one,
        "batches of one step",
        f"{number} different ones",
        f"one, {number} times",
        at=lambda lines: lines.fed(run, one),
        diagnosis=f"Each step accumulates the gradient of one batch {number} times: it is that batch's gradient.",
        mend="take a new batch for each backward pass",
    )


@check("run-loaders-are-read", roles=RUN)
def loaders_read(impl: Any, draw: Draw) -> Evidence:
    """A loader that the script makes gives a batch before the script ends."""
    run = run_of(impl)
    if not run.whole or not run.loaders:
        raise NotProvided("the script did not end while it was watched, or made no torch.utils.data.DataLoader")
    if run.unread:
        return unusual("loaders that gave no batch", f"{run.unread[0]}: is another one read in its place?")
    return kept("loaders are read", len(run.loaders))


# --- the loss -------------------------------------------------------------------------------------


@check("run-loss-leaves-uniform", roles=RUN)
def leaves_uniform(impl: Any, draw: Draw) -> Evidence:
    """After a hundred steps a cross-entropy over V classes is below ln V."""
    run = run_of(impl)
    losses = [loss for loss in trained(run, "cross_entropy") if loss.value is not None and loss.reduction == "mean"]
    place = losses[0].place if losses else ""
    classes = next((loss.classes for loss in losses if loss.classes > 2 and loss.place == place), 0)
    mine = [loss.value for loss in losses if loss.place == place]
    if not classes or len(mine) < 100 or losses[0].weights:
        raise NotProvided("no hundred values of a cross-entropy over more than two classes were seen")
    last = sorted(mine[-20:])[10]
    if last > 0.98 * math.log(classes) and abs(last - mine[0]) < 0.03 * mine[0]:
        return unusual(
            "the loss stays where it began",
            f"{mine[0]:.4g} and {last:.4g} after {len(mine)} passes; ln {classes} is {math.log(classes):.4g} ({place})",
        )
    return kept("the loss falls", f"{mine[0]:.3g} to {last:.3g}")


@check("run-divergence-is-over-the-batch", roles=RUN)
def over_the_batch(impl: Any, draw: Draw) -> Evidence:
    """The divergence of distributions is a mean over the batch, not over batch and classes."""
    losses = trained(run_of(impl), "kl_div")
    if losses[0].reduction == "mean":
        return unusual("a divergence that is also divided by the number of classes", losses[0].place)
    return kept("how the divergence is reduced", losses[0].reduction)


@check("run-class-weights-favour-the-rare", roles=RUN)
def favour_the_rare(impl: Any, draw: Draw) -> Evidence:
    """Class weights do not grow with how often a class occurs, and are those of their own classes."""
    from conformance.watch import asking

    run = run_of(impl)
    for what, place in asking.counted_by_frequency(run):
        return broken(
            steps_of(run)[0],
            "which class has which weight",
            "each its own",
            f"the most frequent one the first: {what}",
            at=lambda lines, place=place: lines.first(place),  # type: ignore[misc]
            diagnosis="most_common gives the counts by their size, and what they are counts of is left out: most "
            "classes have the weight of another one.",
            mend="take the counts in the order of the classes: [counts[name] for name in classes]",
        )
    weighted = [loss for loss in trained(run) if loss.weights]
    counts = [sum(each) for each in zip(*(loss.labels for loss in weighted), strict=True)] if weighted else []
    used = [(w, n) for w, n in zip(weighted[0].weights, counts, strict=True) if n >= 5 and w > 0] if weighted else []
    if len(used) < 3 or min(w for w, _ in used) * 1.2 > max(w for w, _ in used):
        raise NotProvided("no cross-entropy with different weights for three classes or more was seen")
    numbers, given = [math.log(n) for _, n in used], [math.log(w) for w, _ in used]
    slope, fit = _line(numbers, given)
    ordered, in_order = _line(sorted(numbers), sorted(given, reverse=True))
    if len({*given}) >= 5 and in_order < -0.99 and -1.5 < ordered < -0.3 and fit > -0.9:
        return broken(
            weighted[0],
            "which class has which weight",
            f"count ** {ordered:.2g}, class by class",
            "those of other classes: they fit the counts only when both are sorted",
            at=lambda lines: lines.weights(weighted[0]),
            diagnosis="The class weights are in another order than the classes: most classes have the weight of "
            "another one.",
            mend="take the counts in the order of the classes: [counts[name] for name in classes]",
        )
    if fit < 0.9 or not 0.3 < slope < 1.5:
        return kept("class weights do not grow with the classes", f"{slope:.2g}")
    loss = weighted[0]
    return broken(
        loss,
        "how class weights change with how often the class occurs",
        "they fall, as 1 / count",
        f"they grow, as count ** {slope:.2g}",
        at=lambda lines: lines.weights(loss),
        diagnosis="The weights of the classes grow with how often they occur: rare classes count even less.",
        mend="weigh by the inverse: counts.sum() / (classes * counts)",
    )


def _line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """The slope of the line through points, and their correlation; 0 where all x are equal."""
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    xx, yy = sum((a - mean_x) ** 2 for a in x), sum((b - mean_y) ** 2 for b in y)
    xy = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return (xy / xx, xy / math.sqrt(xx * yy)) if xx > 1e-9 and yy > 1e-9 else (0.0, 0.0)
