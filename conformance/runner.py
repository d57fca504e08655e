"""Runs one check against one implementation."""

from __future__ import annotations

from typing import Any

from conformance.check import Check
from conformance.draw import Draw, Pinned, Seeded
from conformance.evidence import Evidence


def evidence_of(check: Check, impl: Any, examples: int | None = None) -> tuple[Evidence, Draw]:
    """The first failing example, or the last one: the pinned example, then seeded random ones."""
    count = check.examples if examples is None else examples
    draw = Draw(Pinned())
    evidence = check.function(impl, draw)
    for seed in range(count):
        if not evidence.ok:
            break
        draw = Draw(Seeded(seed))
        evidence = check.function(impl, draw)
    return evidence, draw
