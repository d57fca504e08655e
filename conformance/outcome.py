"""What a run comes to: what of the implementation stayed untested (`untested_core`), and the exit code (`exit_code`).

A run is not green when the core of what the user pointed at was not tested: that would be silence, told as success.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence

from conformance.catalogue import Catalogue
from conformance.verdict import Result, Verdict

NOTHING_TESTED, CORE_UNTESTED = 5, 6
"""Exit codes: pytest's own for a run without tests, and ours."""


def untested_core(
    kind: str | None, said: Sequence[str], results: Mapping[str, Result], catalogue: Catalogue
) -> list[str]:
    """What of the implementation's core was not tested and why, one sentence each; empty when all of it was.

    kind: what it is, such as "language_model", or None. said: what it says itself of what could not be tested. results:
    by slug, of the claims that ran; a core claim that was not asked for is not missing.
    """
    untested = [*said, *(_untested_claims(kind, results, catalogue) if kind else [])]
    return untested or _nothing(results)


def _nothing(results: Mapping[str, Result]) -> list[str]:
    """One sentence where no claim at all could be tested, with the most frequent reason."""
    if len(results) < 2 or any(result.verdict is not Verdict.NOT_PROVIDED for result in results.values()):
        return []
    reasons = Counter(result.message or "no reason is given" for result in results.values())
    (reason, number), *_ = reasons.most_common(1)
    return [f"none of the {len(results)} claims could be tested; of {number} the reason is: {reason}"]


def _untested_claims(kind: str, results: Mapping[str, Result], catalogue: Catalogue) -> list[str]:
    """The core claims of `kind` that are not provided, a sentence for each reason."""
    core = [slug for slug, claim in catalogue.claims.items() if kind in claim.core_of]
    name = kind.replace("_", " ")
    if not core:
        return [f"it says that it is a {name}, and no claim is the core of one"]
    asked = [slug for slug in core if slug in results]
    reasons: dict[str, list[str]] = {}
    for slug in asked:
        if results[slug].verdict is Verdict.NOT_PROVIDED:
            reasons.setdefault(results[slug].message or "no reason is given", []).append(slug)
    return [
        f"{len(slugs)} of the {len(asked)} claims that are the core of a {name}: {reason} "
        f"({textwrap.shorten(', '.join(slugs), 120, placeholder=' ...')})"
        for reason, slugs in reasons.items()
    ]


def exit_code_of_all(codes: Sequence[int], strict: bool) -> int:
    """The exit code of a run of several subjects, from that of each: 5 nothing was tested of any, 6 something was not
    (if `strict`), else 0."""
    if set(codes) == {NOTHING_TESTED}:
        return NOTHING_TESTED
    return CORE_UNTESTED if strict and any(codes) else 0


def exit_code(results: Mapping[str, Result], untested: Sequence[str], strict: bool) -> int:
    """The exit code of a run without a failure: 5 nothing was tested, 6 the core was not (if `strict`), else 0."""
    if all(result.verdict is Verdict.NOT_PROVIDED for result in results.values()):
        return NOTHING_TESTED
    return CORE_UNTESTED if untested and strict else 0
