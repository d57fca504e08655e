"""What changed between two runs, from their reports as JSON: claim by claim, worse first (`changes`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from conformance.verdict import HELD, Verdict

_UNDECIDED = frozenset({Verdict.NOT_PROVIDED, Verdict.NOT_SEEN, Verdict.KNOWN_FAILURE})


@dataclass(frozen=True)
class Change:
    """A claim whose verdict differs: `before` or `after` is None where a run did not test it.

    claim: the claim with its result as the later report has it, or as the earlier one where the later has none.
    """

    claim: Mapping[str, Any]
    before: Verdict | None
    after: Verdict | None

    @property
    def kind(self) -> str:
        """What became of it.

        BROKEN: kept or not provided before. LOST: kept before, and no longer provided. CHANGED: from one way of not
        holding to another. BETTER; NEW: not tested before; GONE: no longer tested.
        """
        if self.before is None or self.after is None:
            return "GONE" if self.after is None else "NEW"
        difference = _standing(self.after) - _standing(self.before)
        if difference < 0:
            return "LOST" if self.after in _UNDECIDED else "BROKEN"
        return "BETTER" if difference > 0 else "CHANGED"

    @property
    def is_worse(self) -> bool:
        """Whether the claim does not stand as well as before: BROKEN, LOST, or NEW and broken."""
        return self.kind in ("BROKEN", "LOST") or (self.kind == "NEW" and self.is_broken)

    @property
    def is_broken(self) -> bool:
        """Whether the claim does not hold now."""
        return self.after is not None and _standing(self.after) == 0


KINDS = ("BROKEN", "LOST", "NEW", "CHANGED", "BETTER", "GONE")


def _standing(verdict: Verdict) -> int:
    """2 kept, or a note; 1 nothing is known or expected of it; 0 broken."""
    return 2 if verdict in HELD else 1 if verdict in _UNDECIDED else 0


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Change]:
    """The claims whose verdicts differ between two reports, by kind, then in the order of the reports."""
    old, new = ({claim["slug"]: claim for claim in report["claims"]} for report in (before, after))
    found = [
        Change(new.get(slug) or old[slug], _verdict(old.get(slug)), _verdict(new.get(slug)))
        for slug in dict.fromkeys([*new, *old])
    ]
    differing = [change for change in found if change.before is not change.after]
    return sorted(differing, key=lambda change: KINDS.index(change.kind))


def _verdict(claim: Mapping[str, Any] | None) -> Verdict | None:
    return None if claim is None else Verdict(claim["verdict"])
