"""Checks of a training run: low-rank adapters beside linear maps that rest, and averages that are saved."""

from __future__ import annotations

from typing import Any

from conformance.check import check
from conformance.checks.watched_gradients import steps_of
from conformance.checks.watched_labels import RUN, broken, kept, run_of
from conformance.draw import Draw
from conformance.evidence import Evidence
from conformance.protocol import NotProvided


@check("run-adapted-maps-rest", roles=RUN)
def adapted_rest(impl: Any, draw: Draw) -> Evidence:
    """What a low-rank adapter is added to is frozen: only the adapter learns."""
    from conformance.watch import adapters

    run = run_of(impl)
    number, found = adapters.adapted(run)
    if not number:
        raise NotProvided("no low-rank adapter was seen that is stepped")
    if not found:
        return kept("adapted maps that rest", number)
    names = frozenset(found)
    step = next(one for one in reversed(steps_of(run)) if names & {*run.optimizers[one.optimizer].parameters})
    return broken(
        step,
        "adapted matrices that are stepped beside their adapters",
        "none",
        f"{len(names)}: {run.named(names)}",
        at=lambda lines: lines.thawed(run, step),
        diagnosis=f"{run.named(names)} have low-rank adapters and learn themselves: the whole model is trained.",
        mend="freeze all parameters before adapters are put in, and give the optimizer those that require gradients",
    )


@check("run-adapters-are-saved-whole", roles=RUN)
def saved_whole(impl: Any, draw: Draw) -> Evidence:
    """Who saves one factor of a low-rank adapter saves the other one, too."""
    from conformance.watch.events import Save

    saves = [one for one in run_of(impl).of(Save) if one.factors]
    if not saves:
        raise NotProvided("no file was seen that holds one factor of an adapter and not the other one")
    there, missing = saves[0].factors
    return broken(
        saves[0],
        "which factors of the adapters are saved",
        "both",
        f"{there}, and not {missing}",
        at=lambda lines: lines.saved(saves[0]),
        diagnosis=f"The file holds {there} and not {missing}: the adapter cannot be put together again.",
        mend="save all parameters that are trained",
    )


@check("run-average-is-what-is-saved-as-one", roles=RUN)
def average_is_saved(impl: Any, draw: Draw) -> Evidence:
    """What is saved under the name of the average is the average."""
    from conformance.watch import averages

    run = run_of(impl)
    step = steps_of(run)[-1]
    found = averages.raw_under_its_name(run)
    chosen = averages.raw_by_choice(run)
    if chosen and not found:
        name, what, place = chosen[0]
        return broken(
            step,
            f"what is kept where {name} is the best so far",
            f"the state of {name}",
            what,
            at=lambda lines: lines.first(place),
            diagnosis=f"{name} is measured, and {what} is kept: the weights that are kept are others than those that "
            "were the best.",
            mend=f"keep {name}.state_dict()",
        )
    if not found:
        raise NotProvided("no weights were seen that are saved under the name of an average and are none")
    name, what, place = found[0]
    return broken(
        step,
        f"what is saved as {name}",
        "the average of the weights",
        f"{what}, the weights of the last step",
        at=lambda lines: lines.first(place),
        diagnosis=f"{name} says the average of the weights, and {what} is saved: who loads it gets the raw weights.",
        mend="save the state of the average",
    )
