"""One implementation of a run (`Subject`): its processes, its results, and what pytest reports of its claims.

A run of a whole file has one for each class, function and instance in it; only one of them has processes at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from conformance.adapters import SpecificationError
from conformance.catalogue import Claim
from conformance.known import Known, expect, is_stale
from conformance.supervisor import Supervisor
from conformance.verdict import HELD, Result, Verdict, judged


class Subject:
    """impl: its specification. name: what its node id begins with; empty where it is the only one of its run.

    supervise: makes the supervisor of its processes. known: the failures that are known of it. kind: what it says it
    is, once it was opened. refused: why it cannot be loaded, once that was tried.
    """

    def __init__(self, impl: str, name: str, supervise: Callable[[], Supervisor], known: Mapping[str, Known]) -> None:
        self.impl, self.name, self.known = impl, name, known
        self.kind: str | None = None
        self.refused = ""
        self.claims: list[str] = []
        """The slugs that were collected, in their order."""
        self.results: dict[str, Result] = {}
        self.outcomes: dict[str, str] = {}
        """What pytest reports of each claim, by slug: passed, failed or skipped."""
        self._supervise = supervise
        self._supervisor = supervise()

    def open(self) -> None:
        """Load it. Where it cannot be loaded, `refused` says why."""
        try:
            self._supervisor.start()
        except SpecificationError as error:
            self.refused = str(error)
        else:
            self.kind = self._supervisor.kind

    def run_ahead(self) -> None:
        """Let its processes begin with the claims that were collected. It must be open."""
        self._supervisor.submit(self.claims)

    def close(self) -> None:
        """End its processes; it can be opened again."""
        self._supervisor.close()
        self._supervisor = self._supervise()

    def adapter(self, path: Path) -> str:
        """The source of its inferred adapter, after it was opened without claims. Raises SpecificationError."""
        return self._supervisor.adapter(path)

    def run(self, claim: Claim) -> Result:
        """A claim's result in the light of what the claim is, and of the known failures, once it was opened."""
        if self.refused:
            return Result(claim.slug, Verdict.NOT_PROVIDED, message=self.refused, untested=[self.refused])
        return expect(judged(self._supervisor.result(claim.slug), claim), self.known)

    def add(self, claim: str, outcome: str, values: Mapping[str, Any] | None) -> None:
        """Take in what pytest reports of a claim, and the fields of the result that comes with it."""
        self.outcomes[claim] = outcome
        if values is not None:
            result = Result.from_json(values)
            self.results[result.claim] = result

    def disagreement(self, runs_known: bool) -> str:
        """One sentence when the results say something else than pytest reports; else nothing.

        runs_known: whether pytest was told to report known failures as failures.
        """
        ours = {claim: self._outcome(result, runs_known) for claim, result in self.results.items()}
        differing = [claim for claim in {**self.outcomes, **ours} if self.outcomes.get(claim) != ours.get(claim)]
        if not differing:
            return ""
        first = differing[0]
        return (
            f"this run cannot be trusted: pytest counts {_counted(self.outcomes)}, and the results {_counted(ours)}; "
            f"the first difference is {first}: {self.outcomes.get(first, 'no report')}, not "
            f"{ours.get(first, 'a result')} (does another plugin change outcomes? -p no:NAME leaves one out)"
        )

    def _outcome(self, result: Result, runs_known: bool) -> str:
        """What pytest must report of a result."""
        if result.verdict in HELD:
            return "passed"
        if result.verdict is Verdict.KNOWN_FAILURE:
            return "failed" if runs_known else "skipped"
        missing = result.verdict is Verdict.NOT_PROVIDED and not is_stale(result, self.known)
        return "skipped" if missing else "failed"


def _counted(outcomes: Mapping[str, str]) -> str:
    """How many claims had each outcome: "3 passed, 1 failed"."""
    numbers = Counter(outcomes.values())
    return ", ".join(f"{numbers[outcome]} {outcome}" for outcome in ("passed", "failed", "skipped"))
