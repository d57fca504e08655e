"""Checks of a training run: what a script sets up and nothing reads. Rates, tensors, parts, groups, numbers."""

from __future__ import annotations

import re
from typing import Any

from conformance.check import check
from conformance.checks.watched_gradients import steps_of
from conformance.checks.watched_labels import RUN, broken, kept, run_of, unusual
from conformance.checks.watched_rates import schedules_of
from conformance.draw import Draw
from conformance.evidence import Evidence
from conformance.protocol import NotProvided

MANY = 4
"""So many steps with different rates are a plan."""
_RANDOM = re.compile(r"randn|\brand\(|normal_|uniform_|xavier|kaiming")
_LEARNED = re.compile(r"pos|place|emb|cls|token|query|quer|prompt|latent|weight|bias|gamma|scale")
_FIXED = re.compile(r"freq|fourier|noise|random|fixed|proj|hash|anchor")


@check("run-rate-is-written-where-it-is-read", roles=RUN)
def rate_is_read(impl: Any, draw: Draw) -> Evidence:
    """A rate that is set anew is set in the optimizer's groups."""
    run = run_of(impl)
    steps = steps_of(run)
    for number, name in run.unread_rates.items():
        step = next(step for step in steps if step.optimizer == number)
        text = r"defaults\[.lr.\]\s*[*/]?=" if name == "defaults" else rf"(\.|\[.){name}(.\])?\s*[*/]?= "
        return broken(
            step,
            "where the rate is set",
            'optimizer.param_groups[i]["lr"]',
            'optimizer.defaults["lr"]' if name == "defaults" else f"{name}, which nothing reads",
            at=lambda lines: lines.first(lines.written(run, text), step.place),
            diagnosis="A rate is computed and set where the optimizer does not read it: its own stays as it was.",
            mend='for group in optimizer.param_groups: group["lr"] = rate',
        )
    return kept("rates are set in the optimizer's groups")


@check("run-rate-is-set-in-every-group", roles=RUN)
def rate_of_every_group(impl: Any, draw: Draw) -> Evidence:
    """A rate that the loop sets is set in all groups that began with the same one."""
    from conformance.watch import pointing
    from conformance.watch.events import Schedule

    run = run_of(impl)
    written = pointing.written(run, r"param_groups\[-?\d\]\[.lr.\] ")
    driven = {one.optimizer for one in run.of(Schedule)}  # a scheduler has a plan for each group
    alike = [n for n, made in run.optimizers.items() if len(made.groups) > 1 and n in run.given_rates]
    numbers = [n for n in alike if n not in driven]
    if not numbers:
        raise NotProvided("no optimizer has several groups that begin with one rate, which the loop sets")
    for number in numbers:
        steps = [step for step in steps_of(run) if step.optimizer == number]
        courses = list(zip(*(step.rates for step in steps), strict=False))  # a group may be added later
        left = [at for at, rates in enumerate(courses) if set(rates) == {run.given_rates[number]}]
        if not left or max(len(set(rates)) for rates in courses) < MANY:
            continue
        if not written:
            raise NotProvided("some groups keep their rate, and the text does not say whether they are meant to")
        return broken(
            steps[-1],
            f"the groups whose rate is set in {len(steps)} steps",
            f"all {len(courses)}",
            f"{len(courses) - len(left)}; the rate of group {left[0]} stays {run.given_rates[number]:.3g}",
            at=lambda lines: lines.first(written, steps[-1].place),
            diagnosis="The rate is not set in all groups of parameters: the others learn with the rate that they were "
            "made with, without its warm-up and its decay.",
            mend='for group in optimizer.param_groups: group["lr"] = rate',
        )
    return kept("rates are set in all groups")


@check("run-what-learns-is-registered", roles=RUN)
def registered(impl: Any, draw: Draw) -> Evidence:
    """Random tensors and parts that a model uses are parameters and parts of it."""
    from conformance.watch import pointing

    run = run_of(impl)
    step = steps_of(run)[0]
    for one in run.loose:
        made = [*pointing.made(run, one.owner, one.attribute)]
        where = [line.place for line in made]
        what = f"self.{one.attribute} of {one.owner.__name__}"
        if one.is_list:
            return broken(
                step,
                "parts that run in the model and are in no optimizer",
                "none",
                f"those in {what}",
                at=lambda lines: lines.first(where, step.place),
                diagnosis=f"{what} is a plain list: PyTorch does not know its parts, and they never learn.",
                mend="hold them in nn.ModuleList or nn.ModuleDict",
            )
        random = [line.place for line in made if _RANDOM.search(line.text) and "Parameter(" not in line.text]
        if random and pointing.is_read(run, one.owner, one.attribute):
            return broken(
                step,
                "tensors of random numbers that the model uses and nothing trains",
                "none",
                what,
                at=lambda lines: lines.first(random, step.place),
                diagnosis=f"{what} is a plain tensor, no nn.Parameter: it stays random.",
                mend="wrap it: nn.Parameter(...); or register_buffer, where it is meant to stay",
                is_certain=bool(_LEARNED.search(one.attribute)) and not _FIXED.search(one.attribute),
            )
    return kept("random tensors and parts of the model are registered")


@check("run-groups-learn", roles=RUN)
def groups_learn(impl: Any, draw: Draw) -> Evidence:
    """No group of an optimizer holds frozen parameters only."""
    run = run_of(impl)
    if len(steps_of(run)) < 20:
        raise NotProvided("no twenty steps were seen")
    for group in run.optimizers.values():
        resting = [numbers for numbers in group.groups if numbers and {*numbers} <= run.frozen]
        if resting and len(group.groups) > 1:
            return unusual(
                "a group of the optimizer that is frozen throughout",
                f"{len(resting[0])}: {run.named(frozenset(resting[0]))} ({group.place})",
            )
    return kept("each group of the optimizers has something to train")


@check("run-resuming-reads-its-numbers", roles=RUN)
def reads_numbers(impl: Any, draw: Draw) -> Evidence:
    """Who goes on from a checkpoint reads the step or epoch that it holds."""
    from conformance.watch import pointing
    from conformance.watch.events import Load, Restore, Save, Step

    run = run_of(impl)
    loads = [one for one in run.of(Load) if any(s.order > one.order for s in run.of(Step)) and "optimizer" in one.holds]
    loads = [one for one in loads if one.is_own]
    saves = [save for save in run.of(Save) if save.numbers]
    if not loads or not saves:
        raise NotProvided("no training went on from a checkpoint of this run that holds numbers")
    load, save = loads[0], saves[0]
    keys = [key for key in save.numbers if re.search(r"step|epoch|iter", key)]
    named = [key for key in save.keys if pointing.reads_key(run, key)]
    unread = [key for key in keys if key not in named]
    restored = [one for one in run.between(load.order, len(run.events), Restore) if one.step == load.step]
    if unread and len(unread) == len(keys) and named and restored:
        return broken(
            load,
            "what is read of the numbers in the checkpoint",
            ", ".join(keys),
            "none",
            at=lambda lines: lines.first([one.place for one in restored][-1:], load.place),
            diagnosis=f"Training goes on from a checkpoint and leaves out its {unread[0]}: it counts from the start.",
            mend=f'set the counter from the checkpoint: checkpoint["{unread[0]}"]',
        )
    return kept("numbers of the checkpoint are read", ", ".join(keys))


@check("run-schedule-gets-its-steps", roles=RUN)
def gets_its_steps(impl: Any, draw: Draw) -> Evidence:
    """A schedule that is planned in steps advances with each step, not with each epoch."""
    from conformance.watch import plans, stated

    run = run_of(impl)
    steps = steps_of(run)
    last = {one.scheduler: one for one in schedules_of(run)}
    for one in last.values():
        mine = sum(step.optimizer == one.optimizer for step in steps)
        calls = sum(other.scheduler == one.scheduler for other in schedules_of(run))
        if mine < 20 or calls * 5 > mine or one.kind == "ReduceLROnPlateau":
            continue
        warm = stated.warm_up(run, in_steps=True) or 0
        planned = one.period if one.period > 0.5 * mine else warm if one.kind == "LambdaLR" else 0
        is_told = plans.counts_steps(run, one.scheduler)
        if planned <= 2 * calls or not (is_told or (run.whole and one.kind != "OneCycleLR")):
            continue
        return broken(
            one,
            f"how often the {one.kind} advances in {mine} steps of the optimizer",
            mine,
            calls,
            at=lambda lines: lines.first(one.place, run.schedulers.get(one.scheduler, "")),
            diagnosis=f"The schedule is planned for steps{f', {planned} of them,' if planned else ''} and advances "
            f"{calls} times in {mine} of them: it hardly begins.",
            mend="call scheduler.step() after each optimizer.step(), or plan it in epochs",
        )
    return kept("schedules advance as often as they are planned for")
