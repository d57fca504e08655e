"""Checks of what stands inside a running module, whatever it is written with: one recorded run shows all of them.

The claims are those of the topic "inside"; their slugs begin with the family that they speak of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.catalogue import load
from conformance.check import check
from conformance.checks.options import with_every_option
from conformance.draw import Draw
from conformance.evidence import Evidence, note, true
from conformance.protocol import NotProvided

FAMILIES = {
    "attention": ("attention", "attention"),
    "norm": ("norm", "norm"),
    "feed-forward": ("feed-forward", "feed-forward network"),
    "experts": ("experts", "mixture of experts"),
    "blocks": ("blocks", "stack of blocks"),
    "sublayers": ("sublayers", "block with two sublayers"),
    "decoder-layers": ("blocks", "stack of blocks"),
    "class-token": ("tokens", "learned class token"),
    "patches": ("tokens", "image or frames"),
    "positions": ("positions", "position vectors that are added"),
    "modules": ("modules", "module"),
    "results": ("results", "result"),
}
"""The first words of a slug -> the family that a run must show for the claim to speak of it, as `inside().seen` and in
words."""


def no_finding(slug: str, family: str, says: str) -> Callable[[Any, Draw], Evidence]:
    """The check that a recorded run breaks a claim nowhere."""

    def run(impl: Any, draw: Draw) -> Evidence:
        inside = impl.build("module", {}).inside()
        key, words = FAMILIES[family]
        if key not in inside.seen:
            raise NotProvided(f"its recorded run has no {words}")
        found = sorted((f for f in inside.findings if f.claim == slug), key=lambda f: not f.certain)
        if not found:
            return true("the recorded run keeps it everywhere", True)
        first = found[0]
        if not first.certain:
            return note(first.sentence, str(first.got))
        return true("in the recorded run", False, expected=str(first.expected), got=str(first.got)).saying(
            diagnosis=first.sentence, place=str(first.place or ""), mend=first.mend
        )

    run.__doc__ = says
    return run


for _claim in load().claims.values():
    if _claim.topic == "inside":
        _family = next(name for name in FAMILIES if _claim.slug.startswith(name))
        _check = no_finding(_claim.slug, _family, _claim.says)
        _of_all = _claim.slug in ("modules-that-are-made-run", "results-that-are-computed-are-used")
        check(_claim.slug, roles=("module",))(_check if _of_all else with_every_option(_check))
