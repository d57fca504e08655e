"""The claims that are asked of a row, and what both sides answer."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np

import conformance.checks  # noqa: F401 (registers them)
from conformance.catalogue import load
from conformance.check import CHECKS
from conformance.runner import run_check
from conformance.verdict import ABSENT, HELD, Result, Verdict, judged
from tools.families.rows import Row
from tools.families.sides import Side, ours, theirs


def claims_of(kind: str) -> list[str]:
    """The slugs of the claims that are asked of a model of this kind: all about whole models."""
    roles = {"module", "model", kind}
    return [c.slug for c in load().claims.values() if c.is_tested and roles & {*CHECKS[c.slug].roles}]


def results(side: Side) -> dict[str, Result]:
    """The result of each claim that is asked of a side, by its slug."""
    claims = load().claims
    return {slug: judged(run_check(CHECKS[slug], side, "quick"), claims[slug]) for slug in claims_of(side.kind)}


@dataclass(frozen=True)
class Answer:
    """What both sides answer to one claim."""

    claim: str
    ours: Result
    theirs: Result

    @property
    def verdicts(self) -> tuple[Verdict, Verdict]:
        return self.ours.verdict, self.theirs.verdict

    @property
    def skipped(self) -> tuple[Result, ...]:
        """The results of the sides of which the claim cannot be asked; their messages say why."""
        return tuple(result for result in (self.ours, self.theirs) if result.verdict in ABSENT)

    @property
    def agrees(self) -> bool:
        """Whether no side breaks the claim, and both have the same verdict where it can be asked of both."""
        holds = all(verdict in HELD | ABSENT for verdict in self.verdicts)
        return holds and (bool(self.skipped) or self.ours.verdict is self.theirs.verdict)

    def __str__(self) -> str:
        sides = zip(("minigrad", "transformers"), (self.ours, self.theirs), strict=True)
        each = (f"{name} {r.verdict}: {r.diagnosis or r.message or r.got}".rstrip(": ") for name, r in sides)
        return f"{self.claim}: {'; '.join(each)}"


@dataclass(frozen=True)
class Answers:
    """A row with both sides' answers. difference: the largest one between their results on one input, in units of the
    largest number there."""

    row: Row
    each: Sequence[Answer]
    difference: float

    @property
    def is_one_model(self) -> bool:
        """Whether both sides gave the same numbers, where the library computes some of them in float32."""
        return self.difference < 1e-5

    @property
    def disagreeing(self) -> list[Answer]:
        return [answer for answer in self.each if not answer.agrees]


def ask(row: Row, library: ModuleType) -> Answers:
    """Ask both sides everything. library: the module `transformers`."""
    mine = ours(row)
    with tempfile.TemporaryDirectory() as folder:
        other = theirs(row, mine, Path(folder), library)
    one, two = (side.whole(**side.whole.example())["out"] for side in (mine, other))
    own, foreign = results(mine), results(other)
    each = [Answer(slug, own[slug], foreign[slug]) for slug in own]
    return Answers(row, each, float(np.abs(one - two).max() / np.abs(two).max()))
