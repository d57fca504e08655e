"""Checks of a training run: which parameters learn, and which optimizer holds them."""

from __future__ import annotations

from collections import Counter
from typing import Any

from conformance.check import check
from conformance.checks.watched_gradients import ROUTED, passes_before, steps_of
from conformance.checks.watched_labels import RUN, broken, kept, run_of, unusual
from conformance.draw import Draw
from conformance.evidence import Evidence
from conformance.protocol import NotProvided


@check("run-parameters-get-gradients", roles=RUN)
def get_gradients(impl: Any, draw: Draw) -> Evidence:
    """Every trainable parameter whose part runs gets a gradient in some step."""
    run = run_of(impl)
    steps = steps_of(run)
    stepping = {number for step in steps for number in run.optimizers[step.optimizer].parameters}
    never = stepping.intersection(*(step.missing for step in steps))
    never = {n for n in never if run.parameters[n].used and not ROUTED.search(run.parameters[n].name)}
    owners = {run.parameters[n].name.rpartition(".")[0] for n in stepping - never}
    alone = {n for n in never if run.parameters[n].name.rpartition(".")[0] not in owners} or never
    if alone and len(never) < len(stepping):
        return broken(
            steps[0],
            "trainable parameters that run and get no gradient",
            "none",
            f"{len(never)}: {run.named(frozenset(never))}",
            at=lambda lines: lines.halts(run, alone, passes_before(run, steps[0])),
            diagnosis=f"{run.named(frozenset(never))} run and never get a gradient: something cuts the graph.",
            mend="look for detach(), .data, torch.no_grad() or a tensor made anew between them and the loss",
        )
    if alone:
        return broken(
            steps[0],
            "parameters with a gradient",
            len(stepping),
            0,
            diagnosis="No parameter of the optimizer has a gradient when it steps.",
            mend="call loss.backward() on the loss of this model, after zero_grad() and before step()",
        )
    return kept("trainable parameters that run get a gradient", len(stepping))


@check("run-a-matrix-learns", roles=RUN)
def a_matrix_learns(impl: Any, draw: Draw) -> Evidence:
    """Among what gets gradients is a matrix, where the model has one that runs."""
    run = run_of(impl)
    steps = steps_of(run)
    learning = {n for step in steps for n in run.optimizers[step.optimizer].parameters if n not in step.missing}
    learning = {n for n in learning if run.parameters[n].needs}
    matrices = {n for n, p in run.parameters.items() if p.used and p.is_matrix}
    if not matrices:
        raise NotProvided("no module with a matrix was seen")
    if learning and not any(run.parameters[n].is_matrix for n in learning):
        return unusual(
            "only norms and biases learn", f"{run.named(frozenset(learning))}; {len(matrices)} matrices rest"
        )
    return kept("matrices learn", len(learning & matrices))


@check("run-parameters-move", roles=RUN)
def move(impl: Any, draw: Draw) -> Evidence:
    """A parameter with a gradient changes in a step with a rate above zero."""
    run = run_of(impl)
    steps = [s for s in steps_of(run, closely=True) if max(s.rates, default=0.0) > 0 and not s.scaler]
    if not steps:
        raise NotProvided("no step with a rate above zero was seen closely")
    for number in {step.optimizer for step in steps}:
        mine = [step for step in steps if step.optimizer == number]
        still = frozenset.intersection(*(step.still for step in mine))
        group = run.optimizers[number]
        positive = {n for rate, numbers in zip(mine[-1].rates, group.groups, strict=True) if rate > 0 for n in numbers}
        if still & positive:
            return broken(
                mine[0],
                "parameters with a gradient that do not change",
                "none",
                run.named(frozenset(still & positive)),
                at=lambda lines: lines.first(group.place, lines.rate(run, mine[0])),
                diagnosis=f"The step does not change {run.named(frozenset(still & positive))}, which have a gradient.",
                mend="look at the rate of their group, and at the precision that they are kept in",
            )
    return kept("parameters with a gradient change")


@check("run-optimizer-holds-the-model", roles=RUN)
def holds_the_model(impl: Any, draw: Draw) -> Evidence:
    """The parameters that an optimizer steps are those of a module that runs."""
    run = run_of(impl)
    for step in steps_of(run):
        mine = run.optimizers[step.optimizer].parameters
        foreign = frozenset(n for n in mine if not run.parameters[n].in_model) & step.missing
        shapes = {run.parameters[n].size for n in foreign}
        left = [p for n, p in run.parameters.items() if p.in_model and p.needs and p.used and n not in mine]
        replaced = shapes <= {p.size for p in left}
        if foreign and (len(foreign) == len(mine) or replaced):
            return broken(
                step,
                "parameters of the optimizer that belong to a module that runs",
                len(mine),
                len(mine) - len(foreign),
                at=lambda lines: lines.remade(run, step),
                diagnosis="The optimizer holds parameters of no module that runs: "
                "the model was made anew, copied or loaded after it.",
                mend="make the optimizer from the parameters of the model that is trained, after it is final",
            )
    return kept("the optimizer holds the parameters of the model that runs")


@check("run-model-is-in-an-optimizer", roles=RUN)
def is_in_an_optimizer(impl: Any, draw: Draw) -> Evidence:
    """Every trainable parameter of a module that is trained is in an optimizer."""
    run = run_of(impl)
    stepping = {n for step in steps_of(run) for n in run.optimizers[step.optimizer].parameters}
    stepped = {run.parameters[n].module for n in stepping}  # others that got no gradient only answered
    learns = {n for n, p in run.parameters.items() if p.module in stepped} | run.outside
    left = frozenset(n for n, p in run.parameters.items() if p.in_model and p.needs and n in learns - stepping)
    copies = Counter(run.parameters[n].size for n in stepping if not run.parameters[n].in_model)
    if left and Counter(run.parameters[n].size for n in left) <= copies:
        return kept("the optimizer steps copies of all trainable parameters", len(left))
    if left:
        return unusual("trainable parameters that are in no optimizer", f"{len(left)}: {run.named(left)}")
    return kept("every trainable parameter is in an optimizer", len(stepping))


@check("run-nothing-that-is-learned-through-is-left-out", roles=RUN)
def nothing_left_out(impl: Any, draw: Draw) -> Evidence:
    """What gets gradients and begins at random is in an optimizer, and all that gets them where other parts are frozen.
    Who trains a head on a large part that rests may mean it so; not who trains most of a model and leaves the rest at
    random, and not who freezes what shall rest."""
    run = run_of(impl)
    step = steps_of(run)[-1]
    held = {n for one in steps_of(run) for n in run.optimizers[one.optimizer].parameters}
    trained = [n for n in held if run.parameters[n].in_model]
    forgotten = frozenset(run.outside - held)
    if not trained:
        raise NotProvided("no parameter of a module was seen that an optimizer steps")
    sizes = [sum(run.parameters[n].size for n in numbers) for numbers in (forgotten, trained)]
    partly_frozen = {run.parameters[n].module for n in run.frozen}
    freezes = any(run.parameters[n].module in partly_frozen for n in forgotten)
    if not forgotten or (sizes[0] > sizes[1] and not freezes):
        return kept("what is learned through is in an optimizer", len(trained))
    return broken(
        step,
        "trainable parameters with a gradient that no optimizer steps",
        "none",
        f"{len(forgotten)}: {run.named(forgotten)}",
        at=lambda lines: lines.left_out(run, step),
        diagnosis=f"{run.named(forgotten)} get gradients, are in no optimizer, and stay as they began.",
        mend="make the optimizer from all parameters that learn, when the model is final; freeze what shall rest",
    )


@check("run-parameter-is-in-one-optimizer", roles=RUN)
def in_one_optimizer(impl: Any, draw: Draw) -> Evidence:
    """No parameter is stepped by two optimizers in turn. One that takes over for good is another stage."""
    run = run_of(impl)
    steps = steps_of(run)
    of: dict[int, list[int]] = {}
    for step in steps:
        for number in run.optimizers[step.optimizer].parameters:
            turns = of.setdefault(number, [])
            if turns[-1:] != [step.optimizer]:
                turns.append(step.optimizer)
    for step in steps:
        mine = run.optimizers[step.optimizer].parameters
        doubled = frozenset(n for n in mine if mine.count(n) > 1)
        if doubled:
            return broken(
                step,
                "parameters that stand in an optimizer twice",
                "none",
                run.named(doubled),
                at=lambda lines: lines.parameters(run, run.optimizers[step.optimizer], doubled),
                diagnosis=f"{run.named(doubled)} stands in the optimizer twice: each step moves it twice.",
                mend="put each parameter into one group, once",
            )
    twice = frozenset(number for number, turns in of.items() if len(turns) > len(set(turns)))
    if twice:
        return broken(
            steps[-1],
            "parameters that two optimizers step",
            "none",
            f"{len(twice)}: {run.named(twice)}",
            at=lambda lines: lines.first(run.optimizers[max(of[min(twice)])].place, steps[-1].place),
            diagnosis=f"Two optimizers step the same parameters: {run.named(twice)}.",
            mend="give each optimizer its own parameters",
        )
    return kept("each parameter is in one optimizer", len(of))


@check("run-shared-memory-is-one-parameter", roles=RUN)
def one_parameter(impl: Any, draw: Draw) -> Evidence:
    """Parameters that share memory are one parameter, so that a step moves them once."""
    run = run_of(impl)
    steps = steps_of(run)
    stepping = {n for step in steps for n in run.optimizers[step.optimizer].parameters}
    for number in sorted(stepping):
        others = [other for other in run.parameters[number].shares if other in stepping]
        if others:
            both = run.named([number, *others])
            return broken(
                steps[0],
                "parameters in one memory",
                "one parameter",
                both,
                at=lambda lines: lines.together(run, [run.parameters[n].name for n in (number, others[0])]),
                diagnosis=f"{both} lie in one memory and are two parameters: each step moves the memory twice.",
                mend="tie the parameters, not their data: head.weight = embedding.weight",
            )
    return kept("no two parameters share memory")


@check("run-tied-weights-are-one", roles=RUN)
def tied(impl: Any, draw: Draw) -> Evidence:
    """A head that begins with the values of the embedding is the embedding."""
    run = run_of(impl)
    steps = steps_of(run)
    for number, one in run.parameters.items():
        for other in one.equals:
            both = run.named([number, other])
            return broken(
                steps[0],
                "a head with the embedding's values",
                "one parameter",
                both,
                at=lambda lines: lines.together(run, [run.parameters[n].name for n in (number, other)]),
                diagnosis=f"{both} begin with the same values and are two parameters: they drift apart.",
                mend="assign the parameter itself, head.weight = embedding.weight, after loading and moving",
            )
    return kept("no head is a copy of an embedding")
