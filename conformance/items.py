"""What pytest sees of a run of claims: the folder (`ClaimsFolder`), the subjects of a whole file, and an item a claim.

An item's node id does not depend on where the package lies: `conformance::<slug>`, and of a whole file
`conformance::<file>:<name>::<slug>`.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from conformance.catalogue import Claim
from conformance.known import is_stale
from conformance.session import ClaimsSession
from conformance.subject import Subject
from conformance.summary import broken_lines
from conformance.verdict import HELD, Result, Verdict

PACKAGE = Path(__file__).parent


class ClaimsFolder(pytest.Directory):
    """This package's folder, collected as its claims: of a whole file, those of each subject by themselves."""

    def __init__(self, *, session_of_claims: ClaimsSession, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.claims = session_of_claims

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        for subject in self.claims.subjects:
            if subject.name:
                yield ClaimsOfSubject.from_parent(self, name=subject.name, claims=self.claims, subject=subject)
            else:
                yield from _items(self, self.claims, subject)


class ClaimsOfSubject(pytest.Collector):
    """The claims of one subject of several."""

    def __init__(self, *, claims: ClaimsSession, subject: Subject, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.claims, self.subject = claims, subject

    def collect(self) -> Iterable[pytest.Item]:
        yield from _items(self, self.claims, self.subject)


def _items(parent: pytest.Collector, claims: ClaimsSession, subject: Subject) -> Iterable[ClaimItem]:
    for claim in claims.asked.selected:
        yield ClaimItem.from_parent(parent, name=claim.slug, claims=claims, subject=subject, claim=claim)


class ClaimBroken(Exception):
    """The claim of an item does not hold."""


class ClaimItem(pytest.Item):
    """One claim about one subject. `claim_result` is its result, once it ran."""

    def __init__(self, *, claims: ClaimsSession, subject: Subject, claim: Claim, **keywords: Any) -> None:
        super().__init__(**keywords)
        self.claims, self.subject, self.claim = claims, subject, claim
        self.claim_result: Result | None = None

    def runtest(self) -> None:
        result = self.claim_result = self.claims.run(self.subject, self.claim)
        known = self.subject.known
        self.user_properties.append(("verdict", result.verdict.value))
        if result.verdict is Verdict.KNOWN_FAILURE:
            pytest.xfail(f"KNOWN FAILURE: {known[self.claim.slug].reason}")
        if result.verdict is Verdict.NOT_PROVIDED and not is_stale(result, known):
            pytest.skip(f"NOT PROVIDED: {result.message}")
        if result.verdict not in HELD:
            raise ClaimBroken

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if not isinstance(excinfo.value, ClaimBroken) or self.claim_result is None:
            return super().repr_failure(excinfo, style)
        return "\n".join(broken_lines(self.claims.report(self.subject), self.claim_result))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return PACKAGE, None, self.name
