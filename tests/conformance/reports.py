"""Reports made without a run, for the tests of what is made from reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.catalogue import load
from conformance.report import Report, to_json
from conformance.verdict import Result, Verdict

CATALOGUE = load()
SCALED = "attention-is-scaled-by-sqrt-d-k"
BLOCKED = next(claim.slug for claim in CATALOGUE.tested() if SCALED in claim.depends and claim.topic == "attention")
POSITIONS = next(claim.slug for claim in CATALOGUE.tested() if claim.topic == "positions")
HOSTILE = "<img src=x onerror=\"document.title='hacked'\"></script><script>document.title='hacked'</script>"

FAILED = Result(
    SCALED,
    Verdict.FAIL,
    what="scores",
    expected="0.5",
    got="1",
    error=0.5,
    bound=1e-6,
    reason="rounding",
    example={"d_k": 4},
    examples=3,
    diagnosis="The scores are not divided by sqrt(d_k).",
    place="model.py:12",
    mend="divide the scores by sqrt(d_k)",
    pictures={"expected": [[1.0, 0.0], [0.5, 0.5]], "got": [[float("nan"), 0.0], [0.25, 0.75]]},
)


def a_report(implementation: str, verdicts: Mapping[str, Verdict | Result]) -> Report:
    """A report on claims by slug with their verdict, or their whole result."""
    results = {slug: v if isinstance(v, Result) else Result(slug, v) for slug, v in verdicts.items()}
    chosen = CATALOGUE.select("attention,positions")
    return Report(
        implementation, None, "default", 0, results, CATALOGUE, chosen, lambda claim: f"pytest --claims {claim}"
    )


def report(implementation: str, verdicts: Mapping[str, Verdict | Result]) -> dict[str, Any]:
    """The same in JSON."""
    return to_json(a_report(implementation, verdicts))


def broken(implementation: str = "broken") -> dict[str, Any]:
    """One root cause, one claim that it explains, one that is not provided."""
    return report(
        implementation, {SCALED: FAILED, BLOCKED: Verdict.ERROR, POSITIONS: Result(POSITIONS, Verdict.NOT_PROVIDED)}
    )


def kept(implementation: str = "kept") -> dict[str, Any]:
    """The claims of `broken`, all kept."""
    return report(implementation, dict.fromkeys((SCALED, BLOCKED, POSITIONS), Verdict.PASS))
