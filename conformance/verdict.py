"""Verdicts on claims: what one claim's run came to (`Result`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any

from conformance.catalogue import Claim


class Verdict(StrEnum):
    """PASS: every example kept the claim. FAIL: one broke it. ERROR: the implementation raised, hung or died.
    NOTE: it does otherwise than a convention, or a check found a fact to show; neither is a failure.
    NOT PROVIDED: it has no such component. BLOCKED: it failed, and so did a claim that it depends on.
    VACUOUS: no example met the claim's precondition. KNOWN FAILURE: it failed as the known-failures file says.
    UNEXPECTED PASS: that file lists it, and it passed."""

    PASS = "PASS"
    FAIL = "FAIL"
    ERROR = "ERROR"
    NOTE = "NOTE"
    NOT_PROVIDED = "NOT PROVIDED"
    BLOCKED = "BLOCKED"
    VACUOUS = "VACUOUS"
    KNOWN_FAILURE = "KNOWN FAILURE"
    UNEXPECTED_PASS = "UNEXPECTED PASS"


BROKEN = frozenset({Verdict.FAIL, Verdict.ERROR})
"""The verdicts of a claim that does not hold: they fold to a broken ancestor."""


ORDER = (
    *(Verdict.FAIL, Verdict.ERROR, Verdict.UNEXPECTED_PASS, Verdict.VACUOUS, Verdict.BLOCKED, Verdict.KNOWN_FAILURE),
    *(Verdict.NOTE, Verdict.NOT_PROVIDED, Verdict.PASS),
)
"""The verdicts as reports list them: what needs attention first."""

SHOWN_IN_FULL = ORDER[:4]
"""The verdicts that fail a run by themselves."""

HELD = frozenset({Verdict.PASS, Verdict.NOTE})
"""The verdicts that fail no run although the claim was tested."""


@dataclass(frozen=True)
class Result:
    """One claim's outcome, in words and numbers that can cross a process boundary (JSON).

    what, expected, got: the assertion that decided and its two sides, as text. error, bound, reason: how far apart
    and how far was allowed, and why; `margin` is bound / error. example: the named values of the deciding example,
    the smallest failing one if any failed. examples: how many ran. message: what happened, where there is no
    evidence. diagnosis: what is wrong, in one sentence. place: the line of the user's code, as `conformance.places`
    writes it. mend: the change that would mend it. pictures: small matrices by name. roles: the components that the
    claim is about. attributes: conventions of those that were built, by role. notes: what the implementation said about
    itself for the first time, such as what an adapter inferred; untested: what of it could not be tested. root: the
    claim whose failure explains this one, when BLOCKED.
    """

    claim: str
    verdict: Verdict
    what: str = ""
    expected: str = ""
    got: str = ""
    error: float = 0.0
    bound: float = 0.0
    reason: str = ""
    example: Mapping[str, Any] = field(default_factory=dict)
    examples: int = 0
    message: str = ""
    diagnosis: str = ""
    place: str = ""
    mend: str = ""
    pictures: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)
    seconds: float = 0.0
    roles: Sequence[str] = ()
    attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    notes: Sequence[str] = ()
    untested: Sequence[str] = ()
    root: str = ""

    @property
    def margin(self) -> float:
        """bound / error: above 1 the claim held, and by how much; inf when exact."""
        return float("inf") if self.error == 0 else self.bound / self.error

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON values; read back by `from_json`."""
        return {**asdict(self), "verdict": self.verdict.value}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Result:
        return cls(**{**values, "verdict": Verdict(values["verdict"])})


def judged(result: Result, claim: Claim) -> Result:
    """The result in the light of what the claim is: what does otherwise than a convention is noted."""
    if claim.verdict == "convention" and result.verdict is Verdict.FAIL:
        return replace(result, verdict=Verdict.NOTE)
    return result


def counts(results: Mapping[str, Result]) -> dict[Verdict, int]:
    """How many results have each verdict, every verdict present."""
    return {verdict: sum(r.verdict is verdict for r in results.values()) for verdict in Verdict}
