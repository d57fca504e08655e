"""Checks of losses in forward that are given several labels: starts and ends of spans, labels of words and of texts."""

from __future__ import annotations

from typing import Any

from conformance.check import check
from conformance.draw import Draw
from conformance.evidence import Evidence, true


@check("losses-of-spans-teach-both-ends", roles=("model",))
def teaches_both_ends(impl: Any, draw: Draw) -> Evidence:
    """A loss that is given where spans start and end teaches both, each to its own scores."""
    found = impl.build("model", {}).taught_span()
    unread = found.unread[0] if found.unread else ""
    other = next((name for name in found.names if name != unread), "")
    told = (
        f"{unread} changes nothing" if unread else "each teaches the scores of the other" if found.crossed else "both"
    )
    return true("what the loss of a span teaches", told == "both", expected="its start and its end", got=told).saying(
        diagnosis=f"The loss does not depend on {unread}: both scores are taught {other}, or one is taught nothing."
        if unread
        else f"The first scores that forward gives are taught {found.names[1]}, and the second {found.names[0]}.",
        place=found.place,
        mend=f"compare the first scores with {found.names[0]} and the second with {found.names[1]}",
    )


@check("losses-of-several-labels-teach-each", roles=("model",))
def several_labels_teach(impl: Any, draw: Draw) -> Evidence:
    """Where forward takes several labels, each of which gives a loss, the loss of all depends on each."""
    found = impl.build("model", {}).silenced_labels()
    name, other, place = (found.name, found.other, found.place) if found else ("", "", "")
    got = f"{name} changes nothing beside {other}"
    return true("the loss of all labels depends on each", found is None, got=got).saying(
        diagnosis=f"{name} gives a loss alone, and changes nothing where {other} is given, too: one loss takes the "
        "place of the other.",
        place=place,
        mend="add the losses: loss = other if loss is None else loss + other",
    )
