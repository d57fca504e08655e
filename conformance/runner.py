"""Runs one check against one implementation: the pinned example, then explored ones, the smallest failure kept.

`run_check` explores with hypothesis, which shrinks a failure to its smallest example, and returns a `Result`.
`evidence_of` explores with a seeded generator and does not shrink: it is for runs by the thousand (mutants). Both
are deterministic.
"""

from __future__ import annotations

import contextlib
import random
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import numpy as np

from conformance.blame import blamed
from conformance.check import Check
from conformance.draw import Draw, Pinned, Recorded, Seeded, Source
from conformance.evidence import Evidence, shown
from conformance.lookalike import lookalike
from conformance.observed import Observed
from conformance.places import innermost_line, is_a_refusal, is_of_the_suite, with_source
from conformance.protocol import NotProvided, Refused
from conformance.seeds import seed_everything
from conformance.settings import BUDGETS
from conformance.verdict import BROKEN, Result, Verdict

SHRINK_CALLS = 300
SHRINK_SECONDS = 3.0
"""Shrinking stops after this many calls of the check, or this much processor time; the smallest failure so far is
reported."""


def evidence_of(check: Check, impl: Any, examples: int | None = None) -> tuple[Evidence, Draw]:
    """The first failing example, or the last one: the pinned example, then seeded random ones.

    Whatever the implementation raises passes through, NotProvided by the pinned example among it. A check that draws
    nothing has one example only.
    """
    observed = Observed(impl)
    draw = Draw(Pinned())
    evidence = observed.asked(check, draw)
    for seed in range(check.examples if examples is None else examples):
        if not evidence.ok or not draw.values:
            break
        following = Draw(Seeded(seed))
        try:
            evidence = observed.asked(check, following)
        except NotProvided:
            continue
        draw = following
    return evidence, draw


def run_check(check: Check, impl: Any, budget: str = "default", seed: int = 0, *, is_explained: bool = False) -> Result:
    """The verdict on one claim: PASS, FAIL, ERROR, NOTE, NOT PROVIDED or VACUOUS.

    budget: a key of BUDGETS. seed: where exploration starts; the same seed gives the same examples. is_explained: a
    claim that this one depends on is broken, so that a failure here needs no smallest example and no diagnosis: the
    first one that is found is enough.
    """
    started = time.perf_counter()
    run = _Run(check, Observed(impl))
    decisive = run.example(Pinned())
    elsewhere = isinstance(decisive.error, Refused)  # these sizes: it may take others
    goes_on = decisive.verdict is not Verdict.NOT_PROVIDED or elsewhere
    if goes_on and decisive.draw.values and not (is_explained and decisive.verdict in BROKEN):
        kind = decisive.verdict if decisive.verdict in BROKEN else None
        count = round(check.examples * BUDGETS[budget])
        decisive = _explore(run, count, seed, kind, shrink=not is_explained) or decisive
    if decisive.verdict not in BROKEN:
        decisive = run.noted or run.closest or decisive
    result = decisive.result(check.claim)
    never = [what for what, bitten in run.bitten.items() if not bitten]
    if result.verdict is Verdict.PASS and never:
        why = f"no example met the precondition: {', '.join(never)}"
        verdict = Verdict.NOT_PROVIDED if run.impl.infers else Verdict.VACUOUS  # how it was called is no one's mistake
        result = Result(check.claim, verdict, message=why, example={})
    if result.verdict is Verdict.FAIL and not result.diagnosis and not is_explained:
        alike = lookalike(check, run.impl, decisive.choices)
        asked = not (alike.usual and run.impl.infers)
        result = replace(result, verdict=Verdict.FAIL if asked else Verdict.NOTE, diagnosis=alike.words)
    return replace(
        result,
        place=result.place
        or (with_source(blamed(run.place, check.claim, result.diagnosis)) if result.verdict is Verdict.FAIL else ""),
        examples=run.count,
        roles=check.roles,
        attributes={role: dict(values) for role, values in run.impl.attributes.items()},
        seconds=time.perf_counter() - started,
    )


LONGEST = 2000
"""How many characters of an error that the implementation raises are shown."""


@dataclass(frozen=True)
class _Example:
    """One example's outcome. choices: what its source chose, to ask the same again."""

    verdict: Verdict
    draw: Draw
    evidence: Evidence | None = None
    error: Exception | SystemExit | None = None
    choices: tuple[int, ...] = ()

    def result(self, claim: str) -> Result:
        example = {name: _plain(value) for name, value in self.draw.values.items()}
        if self.error is not None:
            message = str(self.error)
            if self.verdict is Verdict.ERROR:
                message = f"{type(self.error).__name__}: {message}" if message else type(self.error).__name__
                if len(message) > LONGEST:
                    message = f"{message[:LONGEST]}... ({len(message):,} characters)"
            place = "" if self.verdict is Verdict.NOT_PROVIDED else innermost_line(self.error)
            return Result(claim, self.verdict, message=message, place=place, example=example)
        assert self.evidence is not None
        expected, got = self.evidence.sides()
        return Result(
            claim,
            self.verdict,
            what=self.evidence.what,
            expected=expected,
            got=got,
            error=float(self.evidence.error),
            bound=float(self.evidence.bound),
            reason=self.evidence.reason,
            example=example,
            diagnosis=self.evidence.diagnosis,
            place=with_source(blamed(self.evidence.place, claim, self.evidence.diagnosis)),
            also=[with_source(place) for place in self.evidence.also],
            mend=self.evidence.mend,
            pictures=self.evidence.pictures if self.evidence.ok else self.evidence.pictured(),
        )


@dataclass
class _Run:
    """The examples of one check so far: how many, what preconditions held, the first that is a note, the pass that came
    closest to its bound."""

    check: Check
    impl: Observed
    count: int = 0
    bitten: dict[str, bool] = field(default_factory=dict)
    noted: _Example | None = None
    closest: _Example | None = None

    @property
    def place(self) -> str:
        """Where the code of the first component stands that the check is about."""
        return next((self.impl.places[role] for role in self.check.roles if self.impl.places.get(role)), "")

    def example(self, source: Source) -> _Example:
        seed_everything()
        self.count += 1
        recorded = Recorded(source)
        draw = Draw(recorded)
        try:
            evidence = self.impl.asked(self.check, draw)
            if not isinstance(evidence, Evidence):
                raise TypeError(f"the check {self.check.name} returned {shown(evidence)}, not Evidence")
        except NotProvided as error:
            return _Example(Verdict.NOT_PROVIDED, draw, error=error)
        except (Exception, SystemExit) as error:
            if self.impl.is_large and "can't allocate memory" in str(error):
                too_large = NotProvided("it is too large for the memory that a claim may take")
                return _Example(Verdict.NOT_PROVIDED, draw, error=too_large)
            if self.impl.infers and is_of_the_suite(error):
                told = f"the suite itself failed: {type(error).__name__}: {' '.join(str(error).split())}"
                return _Example(Verdict.NOT_PROVIDED, draw, error=NotProvided(f"{told} at {innermost_line(error)}"))
            if self.impl.infers and is_a_refusal(error):  # of inputs that were guessed
                told = f"it refuses what it is given here: {' '.join(str(error).split())[:200]}"
                return _Example(Verdict.NOT_PROVIDED, draw, error=NotProvided(f"{told} at {innermost_line(error)}"))
            return _Example(Verdict.ERROR, draw, error=error)
        for what, bitten in draw.bitten.items():
            self.bitten[what] = self.bitten.get(what, False) or bitten
        if evidence.ok and evidence.is_note:
            self.noted = self.noted or _Example(Verdict.NOTE, draw, evidence)
            return _Example(Verdict.NOTE, draw, evidence)
        outcome = _Example(
            Verdict.PASS if evidence.ok else Verdict.FAIL, draw, evidence, choices=tuple(recorded.choices)
        )
        if evidence.ok and (self.closest is None or evidence.margin < _margin(self.closest)):
            self.closest = outcome
        return outcome


def _margin(example: _Example) -> float:
    assert example.evidence is not None
    return example.evidence.margin


def _explore(run: _Run, count: int, seed: int, kind: Verdict | None, *, shrink: bool) -> _Example | None:
    """Search `count` examples for a broken one (of `kind`, if given), and `shrink` it; None when none is broken."""
    if not count:
        return None
    from hypothesis import HealthCheck, Phase, Verbosity, find, reject, settings
    from hypothesis import strategies as st
    from hypothesis.errors import Flaky, NoSuchExample, Unsatisfiable

    smallest: _Example | None = None
    shrinks, deadline = 0, 0.0

    def breaks(data: Any) -> bool:
        nonlocal smallest, shrinks, deadline, kind
        if smallest is not None:
            shrinks += 1
            if shrinks > SHRINK_CALLS or time.process_time() > deadline:
                raise _Enough
        outcome = run.example(_Explored(lambda low, high: data.draw(st.integers(low, high))))
        if outcome.verdict is Verdict.NOT_PROVIDED:
            reject()
        # Shrinking must not slip from the failure that was found into another kind of failure.
        broken = outcome.verdict in BROKEN and outcome.verdict is (kind or outcome.verdict)
        if broken:
            if smallest is None:
                kind, deadline = outcome.verdict, time.process_time() + SHRINK_SECONDS
            smallest = outcome
        return broken

    quiet = settings(
        database=None,
        deadline=None,
        derandomize=False,
        max_examples=count,
        phases=[Phase.generate, Phase.shrink] if shrink else [Phase.generate],
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    start = random.Random(zlib.crc32(f"{run.check.claim} {seed}".encode()))
    with without_foreign_constants(), contextlib.suppress(_Enough, NoSuchExample, Unsatisfiable, Flaky):
        find(st.data(), breaks, settings=quiet, random=start)
    return smallest


def without_foreign_constants() -> contextlib.AbstractContextManager[Any]:
    """Keep hypothesis from drawing numbers that it reads in the source of the modules loaded so far: a claim that runs
    alone must see the examples that it sees among others. (There is no setting for it; older versions do not do it.)
    """
    from hypothesis.internal.conjecture import providers

    if not hasattr(providers, "_get_local_constants"):
        return contextlib.nullcontext()
    from hypothesis.internal.constants_ast import Constants

    return mock.patch.object(providers, "_get_local_constants", Constants)


class _Enough(BaseException):
    """Ends hypothesis's search; not an Exception, which it would take for a failing example."""


@dataclass(frozen=True)
class _Explored:
    """A `Source` whose choices hypothesis makes."""

    choose: Callable[[int, int], int]

    def integer(self, low: int, high: int, pin: int) -> int:
        return self.choose(low, high)


def _plain(value: Any) -> Any:
    """A drawn value as JSON can hold it."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)
