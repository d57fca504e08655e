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
        diagnosis="The optimizer lets norms or biases decay as much as matrices, or more, and is to keep them apart.",
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


@check("model-optimizer-holds-each-parameter-once", roles=("model",))
def holds_each_once(impl: Any, draw: Draw) -> Evidence:
    """No parameter stands twice in the groups that a function makes for one optimizer."""
    return all_of(
        *(
            true(
                f"{made.name} takes each parameter once",
                not made.twice,
                expected="once",
                got=f"{len(made.twice)} twice, the first {made.twice[0]}" if made.twice else "once",
            ).saying(
                diagnosis=f"{made.name} takes {', '.join(made.twice[:1])} twice: "
                + ("torch refuses such groups." if made.refused else "each step moves it twice."),
                place=made.line_of(r"\.append\(|\.add\(|\.extend\(", r"[\"']params[\"']"),
                mend="elif, so that each parameter goes into one group",
            )
            for made in impl.build("model", {}).held_twice()
        )
    )


@check("model-optimizer-keeps-all-of-a-kind-from-decay", roles=("model",))
def keeps_all_of_a_kind(impl: Any, draw: Draw) -> Evidence:
    """Where weights of norms or biases are kept from decay, all of that kind are, within one part of the model."""
    parts = []
    for made, found in impl.build("model", {}).kinds_that_decay():
        what = f"the vectors that {made.name} keeps from decay"
        if found is None:
            parts.append(true(what, True))
            continue
        why = f"{found.kept} is kept from it" if found.kept else "the code looks for norms by a name that none has"
        parts.append(
            true(what, False, expected=f"all {found.kind}", got=f"not {found.names[0]}").saying(
                diagnosis=f"{made.name} lets {found.names[0]} decay: {why}, and {len(found.names)} {found.kind} do.",
                place=made.line_of(
                    r"endswith|startswith|[\"'][\w.]*(norm|ln|bias)[\w.]*[\"']", r"isinstance|\.n?dim\b", r"def "
                ),
                mend="parameter.dim() < 2, which is true of all norms and biases",
            )
        )
    return all_of(*parts)


@check("model-optimizer-slows-lower-layers", roles=("model",))
def slows_lower_layers(impl: Any, draw: Draw) -> Evidence:
    """Where layers learn at different rates, none learns faster than the one above it, and the head than none."""
    parts = []
    for found in impl.build("model", {}).layer_rates():
        made, at = found.made, found.falls_at
        last = found.rates[-1]
        rates = [high for _, high in found.rates]
        what = f"the rates of {found.path} in {made.name}"
        place = made.line_of(r"\*\*|decay\w*\s*[*/]|[*/]\s*\w*decay", r"\[?[\"']?lr[\"']?\]?\s*[:=]", r"def ")
        if found.alike:
            parts.append(
                true(what, False, expected="lower for lower layers", got=rates).saying(
                    diagnosis=f"{made.name} is told by how much the rates of layers shall fall, and gives all "
                    "parameters one rate.",
                    place=made.line_of(r"\[[\"']lr[\"']\]\s*=", r"[\"']lr[\"']\s*:", r"def "),
                    mend="the rate of each layer: lr * layer_decay ** (layers above it)",
                )
            )
        elif at is not None or (found.head is not None and found.head[1] < last[0] * (1 - 1e-9)):
            above = f"layer {at + 1}" if at is not None else found.head[0]
            below = at if at is not None else len(rates) - 1
            parts.append(
                true(what, False, expected="lower for lower layers", got=rates).saying(
                    diagnosis=f"In {made.name} layer {below} of {found.path} learns faster than {above}, which stands "
                    "above it: the rates fall in the wrong direction.",
                    place=place,
                    mend="lr * layer_decay ** (n_layers - layer)",
                )
            )
        elif found.is_mixed:
            parts.append(note("some parameters of lower layers learn as fast as those above them", rates))
        else:
            parts.append(true(what, True))
    return all_of(*parts)
