"""Checks of the optimizers and schedules that a model's file makes to train it, whether or not a script uses them."""

from __future__ import annotations

from typing import Any

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, all_of, note, true


@check("model-optimizer-treats-norms-apart", roles=("model",))
def treats_norms_apart(impl: Any, draw: Draw) -> Evidence:
    """An optimizer that keeps norms and biases in a group of their own does not let them decay as matrices do."""
    found = impl.build("model", {}).decays()
    if not found.vectors and not found.matrices:
        return note("its optimizer lets nothing decay", "0 and 0")
    apart = found.vectors < found.matrices
    return true(
        "vectors decay less than matrices", apart, expected="less", got=f"{found.vectors} beside {found.matrices}"
    ).saying(
        diagnosis="The optimizer keeps norms and biases in a group of their own, and lets them decay as much as "
        "matrices, or more.",
        place=found.place,
        mend="weight_decay 0.0 for the group of norms and biases",
    )


@check("model-optimizer-holds-every-parameter", roles=("model",))
def holds_every_parameter(impl: Any, draw: Draw) -> Evidence:
    """A function that sorts all parameters into groups leaves none out that can be trained."""
    parts = []
    for made in impl.build("model", {}).made_optimizers():
        missing = made.left_out
        what = f"{made.name} leaves no parameter out"
        said = f"{len(missing)} parameters, the first {missing[0]}" if missing else "none is left out"
        if missing and not made.sorts_all:
            parts.append(note(f"{made.name} leaves parameters out", said))
            continue
        unread = made.unread_list
        why = f"the list {unread} is filled and never read" if unread else "no group takes them"
        parts.append(
            true(what, not missing, expected="every parameter in a group", got=said).saying(
                diagnosis=f"{made.name} sorts the parameters into groups and leaves out {said}: {why}, so that they "
                "are never trained.",
                place=made.line_of(r"[\"']params[\"']", r"\belif\b|\bif\b", r"Adam|SGD|optim"),
                mend=f"a group for {unread}" if unread else "a last group for all that no other takes",
            )
        )
    return all_of(*parts)


@check("model-schedule-rises-in-warm-up-and-then-falls", roles=("model",))
def rises_and_falls(impl: Any, draw: Draw) -> Evidence:
    """The rate of an optimizer rises step by step in its warm-up, falls behind it, and is never below zero."""
    parts = []
    for made, trouble in impl.build("model", {}).schedule_troubles():
        what = f"the rates of {made.name}"
        if trouble is None:
            parts.append(true(what, True))
            continue
        parts.append(
            true(what, False, expected=str(trouble.expected), got=str(trouble.got)).saying(
                diagnosis=trouble.sentence, place=made.line_of(r"warm_?up.*[-+*/]|[-+*/].*warm_?up", r"cos\(|warm_?up")
            )
        )
    return all_of(*parts)
