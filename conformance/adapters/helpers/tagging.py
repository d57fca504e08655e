"""Helpers of taggers: the spans that tags of begin, inside and outside (BIO) mark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper

_TAGS = ["B-PER", "I-PER", "O", "B-LOC", "B-LOC", "I-LOC"]
_SPANS = [(0, 2), (3, 4), (4, 6)]
"""Where they begin, and the place behind their end: one at the start, two side by side, one at the end of the text."""


@helper(
    "spans-of-tags-are-all-found",
    r"(extract|get|find|collect|decode|make|to|tags?_?(to|2)|bio_?(to|2)?|iob_?(to|2)?)_?(bio_?)?"
    r"(spans?|entit(y|ies)|chunks?)(_|$)|(spans?|entit(y|ies)|chunks?)_(of|from)|^_?(spans|entities|chunks)$",
    {"tags": r"(\w+_)?(tags?|labels?|seq(uence)?|bio|iob)(_(names?|seq(uence)?|list))?|names|preds?|pred_tags"},
    ("tags",),
)
def spans(find: Called) -> Iterator[Trouble]:
    """Each entity is one span, from its first word to its last."""
    made = find(tags=list(_TAGS))
    if not isinstance(made, (list, tuple, set)) or any(isinstance(one, (str, int)) for one in made):
        raise OtherKind("it gives no list of spans")
    ends = sorted(_ends(one) for one in made)
    inclusive = [(begin, end - 1) for begin, end in _SPANS]
    if ends in (_SPANS, inclusive):
        return
    missing = [one for one in (inclusive if {*ends} & {*inclusive} else _SPANS) if one not in ends]
    yield Trouble(
        f"{find.name} does not find the spans of the tags {' '.join(_TAGS)}.",
        f"{len(_SPANS)} spans, among them one from {missing[0][0]} to {missing[0][1]}" if missing else "no others",
        ", ".join(f"{begin} to {end}" for begin, end in ends) or "none",
    )


def _ends(span: Any) -> tuple[int, int]:
    """The two numbers of a span. Raises OtherKind where it has others."""
    values = (
        span.values() if isinstance(span, Mapping) else span if isinstance(span, (tuple, list)) else vars(span).values()
    )
    numbers = [value for value in values if type(value) is int]
    if len(numbers) != 2:
        raise OtherKind("its spans are no pairs of numbers")
    return numbers[0], numbers[1]
