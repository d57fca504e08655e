"""Losses that blocks hand out beside their results: those of all blocks count, not that of one of them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from conformance.adapters.whole.findings import Finding
from conformance.adapters.whole.record import Call, Place, Record, Value

_LOSS = re.compile(r"\b\w*(loss|aux|balanc|penal|kld?|regul)\w*\b[^=\n]*=[^=]", re.IGNORECASE)
_NUMBER = re.compile(r"\b\d+\b")
_NEAR = 4
"""So many lines below its call what a block hands out is added up."""


def numbers_of_blocks(record: Record) -> Iterator[Finding]:
    """Blocks of one list that are called at a line which keeps their numbers as losses: the number of one reaches the
    answer, and those of others do not."""
    groups: dict[tuple[str, type], list[Call]] = {}
    for call in record.calls:
        if call.caller is not None and _NUMBER.search(call.path) and _LOSS.search(call.caller.text):
            groups.setdefault((_NUMBER.sub("#", call.path), type(call.module)), []).append(call)
    reaching = record.before(list(record.outcomes)) | record.outcomes
    for calls in groups.values():
        handed = [(call, numbers) for call in calls if (numbers := _numbers(record, call))]
        counted = [any(value in reaching for value in numbers) for _, numbers in handed]
        if any(counted) and not all(counted):
            lost = [call for (call, _), counts in zip(handed, counted, strict=True) if not counts]
            yield Finding(
                "results-of-all-blocks-are-added-up",
                f"The losses of {sum(counted)} of {len(handed)} blocks reach the answer; those of the others are lost.",
                _line(lost[0]),
                f"the losses of {len(handed)} blocks",
                f"those of {sum(counted)}",
                "Add them up: total = total + loss.",
                paths=tuple(call.path for call in lost),
            )


def _numbers(record: Record, call: Call) -> list[Value]:
    """What a block hands out beside a computed result, and is one number each."""
    numbers = [v for v in call.gave if v.data.numel() == 1 and v.data.is_floating_point() and record.computed(v)]
    return numbers if len(call.gave) > len(numbers) else []


def _line(call: Call) -> Place | None:
    """Where what was handed out is read next, below the call: there it should be added."""
    here = call.caller
    kept = re.search(r"(\w*(?:loss|aux|balanc|penal|kl|regul)\w*)", here.text, re.IGNORECASE) if here else None
    if here is None or kept is None:
        return here
    below = (Place(here.file, here.line + n) for n in range(1, _NEAR + 1))
    return next((place for place in below if re.search(rf"=.*\b{re.escape(kept[1])}\b", place.text)), here)
