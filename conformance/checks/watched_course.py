"""Checks of a training run: what shows over many steps. Rates, random numbers, the order of data, and the loss."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from conformance.check import check
from conformance.checks.watched_gradients import passes_used, steps_of
from conformance.checks.watched_labels import RUN, broken, kept, run_of, trained, unusual
from conformance.checks.watched_modes import training
from conformance.checks.watched_optimizers import schedules_of
from conformance.draw import Draw
from conformance.evidence import Evidence
from conformance.protocol import NotProvided

ADAM = re.compile(r"^(N|R|Fused|CPU)?AdamW?(8bit)?$")
_LOSS = re.compile(r"loss|ppl|perplexity|nll|error|\bwer\b|\bmse\b", re.IGNORECASE)
_SCORE = re.compile(r"acc|score|f1|bleu|rouge|auc|precision|recall", re.IGNORECASE)


# --- rates ----------------------------------------------------------------------------------------


def rates_of(run: Any) -> tuple[Any, list[float]]:
    """The first optimizer's steps and the largest rate of each. Raises NotProvided where there are less than three."""
    steps = steps_of(run)
    mine = [step for step in steps if step.optimizer == steps[0].optimizer]
    if len(mine) < 3:
        raise NotProvided("no three steps were seen")
    return mine, [max(step.rates, default=0.0) for step in mine]


@check("run-rate-stays-above-zero", roles=RUN)
def stays_above_zero(impl: Any, draw: Draw) -> Evidence:
    """No stretch of steps has a rate of zero, at the beginning or later, while others have one above zero."""
    run = run_of(impl)
    steps, rates = rates_of(run)
    if max(rates) == 0:
        raise NotProvided("all rates are zero, which another claim says")
    longest = max(_stretches(rates), key=len, default=[])
    if len(longest) < 3:
        return kept("steps in a row with a rate of zero", len(longest))
    first = steps[longest[0]]
    when = f"{longest[0] + 1} to {longest[-1] + 1}"
    return broken(
        first,
        "steps in a row with a rate of zero",
        "at most the first and the last",
        f"{len(longest)}: steps {when} of {len(rates)}",
        at=lambda lines: lines.scheduled(run, first),
        diagnosis=f"The learning rate is zero in steps {when}: they learn nothing.",
        mend="look at the schedule's formula: an integer division in its warm-up, or fewer steps than the run makes",
    )


def _stretches(rates: Sequence[float]) -> Iterator[list[int]]:
    """The steps in a row with a rate of zero."""
    found: list[int] = []
    for number, rate in enumerate([*rates, 1.0]):
        if rate == 0:
            found.append(number)
        elif found:
            yield found
            found = []


@check("run-rate-peaks-after-its-warm-up", roles=RUN)
def peaks_after_warm_up(impl: Any, draw: Draw) -> Evidence:
    """A script that states a number of warm-up steps has its largest rate at their end, not long before."""
    from conformance.watch import stated

    run = run_of(impl)
    steps, rates = rates_of(run)
    number = stated.warm_up(run)
    if number is None or number < 3 or len(rates) <= number + 1 or len(set(rates)) == 1:
        raise NotProvided("no run past the end of a warm-up was seen whose number of steps the script states")
    peak = max(range(number + 1), key=lambda at: rates[at])
    if peak >= number / 2 or rates[number] >= 0.7 * rates[peak]:
        return kept("the step with the largest rate of the warm-up", peak + 1)
    return broken(
        steps[peak],
        f"the rate at the end of the {number} steps of warm-up that the script states",
        "the largest until then",
        f"{rates[number]:.3g}, and {rates[peak]:.3g} in step {peak + 1}",
        at=lambda lines: lines.scheduled(run, steps[peak]),
        diagnosis=f"The rate is largest in step {peak + 1} and falls then, though the warm-up has {number} steps.",
        mend="compare the formula with min(step ** -0.5, step * warmup ** -1.5), or with step / warmup",
    )


@check("run-rate-falls-after-its-peak", roles=RUN)
def falls_after_peak(impl: Any, draw: Draw) -> Evidence:
    """After a warm-up the rate does not drop at once and then rise to the end."""
    run = run_of(impl)
    _, rates = rates_of(run)
    rising = next((at for at, (one, two) in enumerate(pairwise(rates)) if two < one), len(rates) - 1)
    if rising < 3 or rates[rising] <= rates[0]:
        raise NotProvided("no warm-up was seen")
    after = rates[rising + 1 :]
    if len(after) >= 10 and after[0] < 0.5 * rates[rising] and all(one < two for one, two in pairwise(after)):
        return unusual(
            "the rate drops at once after its warm-up and rises to the end",
            f"{rates[rising]:.3g}, {after[0]:.3g}, ..., {after[-1]:.3g}: look at the sign in its formula",
        )
    return kept("after its warm-up the rate does not rise to the end")


@check("run-plateau-looks-the-right-way", roles=RUN)
def right_way(impl: Any, draw: Draw) -> Evidence:
    """A schedule that waits for a plateau looks for the least of a loss, and for the largest of a score."""
    run = run_of(impl)
    measured = [one for one in schedules_of(run) if one.mode in ("min", "max") and one.stack]
    named = [(one, _measure(one)) for one in measured]
    named = [(one, name) for one, name in named if bool(_LOSS.search(name)) != bool(_SCORE.search(name))]
    if not named:
        raise NotProvided("no schedule was seen that watches a measure whose name tells its direction")
    for one, name in named:
        wanted = "min" if _LOSS.search(name) else "max"
        if one.mode != wanted:
            return broken(
                one,
                f"what the schedule looks for in {name}",
                wanted,
                one.mode,
                at=lambda lines: lines.first(run.schedulers.get(one.scheduler, ""), one.place),
                diagnosis=f"The schedule waits until {name} stops {'rising' if one.mode == 'max' else 'falling'}: "
                "it lowers the rate while the model improves.",
                mend=f'make it with mode="{wanted}"',
            )
    return kept("schedules look the right way", named[0][0].mode)


def _measure(event: Any) -> str:
    """The words of what a schedule was given."""
    import ast

    call = event.stack[0].call()
    given = [*call.args, *(one.value for one in call.keywords)] if call is not None else []
    return ast.unparse(given[0]) if given else ""


@check("run-betas-are-in-order", roles=RUN)
def betas_in_order(impl: Any, draw: Draw) -> Evidence:
    """Adam's average of squares is slower than its average of gradients."""
    run = run_of(impl)
    seen = None
    for step in steps_of(run):
        made = run.optimizers[step.optimizer]
        for settings in made.settings:
            betas = settings.get("betas")
            if not ADAM.match(made.kind) or not isinstance(betas, tuple) or len(betas) != 2:
                continue
            seen = betas
            if betas[0] > betas[1]:
                return broken(
                    step,
                    f"the betas of {made.kind}",
                    "the first below the second",
                    betas,
                    at=lambda lines: lines.settings(made, "beta"),
                    diagnosis=f"{made.kind} has the betas {betas}: the one of the squares comes second, and is larger.",
                    mend=f"give betas={betas[::-1]}",
                )
    if seen is None:
        raise NotProvided("no Adam was seen")
    return kept("the betas are in order", seen)


@check("run-decay-reaches-a-matrix", roles=RUN)
def reaches_a_matrix(impl: Any, draw: Draw) -> Evidence:
    """Where weight decay is given to some parameters and not to others, a matrix is among the first."""
    run = run_of(impl)
    for step in steps_of(run)[:1]:
        made = run.optimizers[step.optimizer]
        shares = {0: [0, 0], 1: [0, 0]}
        for group, settings in zip(made.groups, made.settings, strict=True):
            for number in group:
                shares[settings.get("weight_decay", 0.0) > 0][run.parameters[number].is_matrix] += 1
        (_, rest), (vectors, matrices) = shares[0], shares[1]
        if not vectors + matrices or not rest + matrices:
            break
        if vectors and not matrices:
            return broken(
                step,
                "matrices with weight decay",
                rest,
                f"0, and {vectors} norms and biases have it",
                at=lambda lines: lines.settings(made, r"ndim|dim\(\)|bias|norm|decay"),
                diagnosis="Weight decay is turned round: norms and biases have it, and no matrix has.",
                mend="decay what has two axes or more, and leave the rest out",
            )
        return kept("matrices have weight decay", matrices)
    raise NotProvided("no weight decay was seen")


# --- random numbers and data ----------------------------------------------------------------------


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
    from conformance.watch.record import Restore

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
    from conformance.watch.record import Forward

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


@check("run-class-weights-favour-the-rare", roles=RUN)
def favour_the_rare(impl: Any, draw: Draw) -> Evidence:
    """Class weights do not grow with how often a class occurs."""
    run = run_of(impl)
    weighted = [loss for loss in trained(run) if loss.weights]
    counts = [sum(each) for each in zip(*(loss.labels for loss in weighted), strict=True)] if weighted else []
    used = [(w, n) for w, n in zip(weighted[0].weights, counts, strict=True) if n >= 5 and w > 0] if weighted else []
    if len(used) < 3 or min(w for w, _ in used) * 1.2 > max(w for w, _ in used):
        raise NotProvided("no cross-entropy with different weights for three classes or more was seen")
    slope, fit = _line([math.log(n) for _, n in used], [math.log(w) for w, _ in used])
    if fit < 0.9 or not 0.5 < slope < 1.5:
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
