"""Verifications of claims about the documents themselves: arithmetic, memory figures, printed numbers, errata.

`@verify("slug")` registers a function of no argument that returns `Evidence`. For an erratum it is the witness:
it shows that the statement as written does not hold and that the correction does.
"""

from __future__ import annotations

from collections.abc import Callable

from conformance.evidence import Evidence

VERIFICATIONS: dict[str, Callable[[], Evidence]] = {}


def verify(claim: str) -> Callable[[Callable[[], Evidence]], Callable[[], Evidence]]:
    """Register a function as the verification of `claim`."""

    def register(function: Callable[[], Evidence]) -> Callable[[], Evidence]:
        if claim in VERIFICATIONS:
            raise ValueError(f"claim {claim!r} has two verifications")
        VERIFICATIONS[claim] = function
        return function

    return register
