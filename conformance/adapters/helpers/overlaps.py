"""Helpers that measure what two texts share: BLEU."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from conformance.adapters.helpers.trial import Called, OtherKind, Trouble, helper, named_parts, tensor

_WORDS = ["the", "small", "grey", "cat", "sat", "on", "a", "mat"]
_FORMS: tuple[Callable[[list[str]], Any], ...] = (
    lambda words: [words],
    lambda words: words,
    lambda words: [" ".join(words)],
    " ".join,
)
"""How functions take texts: several or one, as words or as they are written."""


@helper(
    "overlaps-of-texts-count-a-word-as-often-as-it-is-wanted",
    r"(^|_)bleu(_|\d|$)",
    {
        "given": r"(hyp|pred|cand|out|sys|guess|got|decoded)\w*|p|h",
        "wanted": r"(ref|gold|target|truth|true|label|expected|tgt)\w*|r|t",
    },
    ("given", "wanted"),
)
def bleu(score: Called) -> Iterator[Trouble]:
    """A text that says all three times has far less of its reference than one that says it once."""
    for form in _FORMS:
        for around in (lambda one: one, lambda one: [one]):
            with suppress(Exception):  # it takes another form
                once, thrice = (_number(score(given=form(_WORDS * n), wanted=around(form(_WORDS)))) for n in (1, 3))
                if once > 0 and math.isfinite(once) and math.isfinite(thrice):
                    if thrice >= 0.6 * once:
                        yield Trouble(
                            f"{score.name} counts every n-gram that the reference has, however often it is said.",
                            f"much less than {once:.3g} for a text that says its reference three times",
                            f"{thrice:.3g}",
                            at=(r"\.items\(\)", r"min\(|&"),
                            mend="min(count, reference[ngram]) for each n-gram",
                        )
                    return
    raise OtherKind("it takes no texts")


def _number(made: Any) -> float:
    """The first number that it gives."""
    return float(tensor(named_parts(made)[0][1]))
