"""Many submissions graded: `grade`. The store is asked first, the rest is given to an executor.

An executor is anything with the interface of `concurrent.futures`. A task that is lost with its worker is given out
again; a result that comes twice is stored once.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from conformance.catalogue import load
from conformance.grading import work
from conformance.grading.archive import Archive, packed
from conformance.grading.cheats import suspicions
from conformance.grading.local import LocalExecutor
from conformance.grading.store import Store
from conformance.grading.submissions import GradingError, Submission
from conformance.settings import BUDGETS

TRIES = 5
"""How often a submission is given out whose worker was lost."""


@dataclass(frozen=True)
class Options:
    """How submissions are graded; part of what an outcome is kept by.

    budget: see `conformance.settings`. seed: of the examples. claims: a selection, as --claims takes it; all where it
    is empty. seconds: of processor time that a submission may take; by the clock three times as many. until_broken:
    stop at the first claim that is broken. forbidden: names such as "torch.nn.MultiheadAttention" that raise
    when they are called. sandbox: whether submissions are shut in (Linux).
    """

    budget: str = "quick"
    seed: int = 0
    claims: str = ""
    seconds: float = 30.0
    until_broken: bool = False
    forbidden: tuple[str, ...] = ()
    sandbox: bool = True

    def check(self) -> None:
        """Raises GradingError, and CatalogueError for a selection that names no claim."""
        if self.budget not in BUDGETS:
            raise GradingError(f"the budget is {self.budget!r}; choose one of {', '.join(BUDGETS)}")
        if not self.seconds > 0:
            raise GradingError(f"a submission may take {self.seconds:g} seconds; give a number above 0")
        if not self.slugs():
            raise GradingError(f"the claims {self.claims} are about the documents only; select claims that are tested")

    def slugs(self) -> list[str]:
        """The claims that are tested, in the catalogue's order."""
        catalogue = load()
        chosen = catalogue.select(self.claims) if self.claims else catalogue.tested()
        return [claim.slug for claim in chosen if claim.is_tested]


@dataclass(frozen=True)
class Progress:
    """One more submission is done. known: whether the store knew the answer."""

    id: str
    broken: int
    refused: bool
    known: bool
    seconds: float


def grade(
    submissions: Sequence[Submission],
    store: Store,
    options: Options | None = None,
    *,
    executor: Executor | None = None,
    in_flight: int | None = None,
    fresh: bool = False,
    notice: Callable[[Progress], None] = lambda _: None,
) -> int:
    """Grade submissions; returns the number of the run in the store.

    executor: what runs them; else a process for each core of this machine. in_flight: how many are given out at a
    time (default 4 for each worker that is known, else 64). fresh: grade again what the store knows. notice:
    called as each is done. Raises GradingError.
    """
    options = options or Options()
    options.check()
    run = store.begin(submissions, asdict(options))
    go_on(run, store, executor=executor, in_flight=in_flight, fresh=fresh, notice=notice)
    return run


def go_on(
    run: int,
    store: Store,
    *,
    executor: Executor | None = None,
    in_flight: int | None = None,
    fresh: bool = False,
    notice: Callable[[Progress], None] = lambda _: None,
) -> None:
    """Grade what a run has left. Arguments: as for `grade`."""
    values = store.options(run)
    options = Options(**{**values, "forbidden": tuple(values["forbidden"])})
    waiting = store.waiting(run)
    with contextlib.ExitStack() as stack:
        if executor is None:
            executor = stack.enter_context(LocalExecutor())
        _Grading(run, store, options, executor, fresh, notice).all(waiting, in_flight or _flight(executor))


def _flight(executor: Executor) -> int:
    workers = getattr(executor, "workers", getattr(executor, "_max_workers", 16))
    return 4 * workers if isinstance(workers, int) else 64


class _Grading:
    """The submissions of a run on their way through an executor."""

    def __init__(
        self,
        run: int,
        store: Store,
        options: Options,
        executor: Executor,
        fresh: bool,
        notice: Callable[[Progress], None],
    ) -> None:
        self._run, self._store, self._options, self._executor = run, store, options, executor
        self._fresh, self._notice = fresh, notice
        self._claims = in_order(options.slugs(), store.failures_of_claims())
        self._flying: dict[Future[Any], tuple[Submission, Archive, str]] = {}
        self._alike: dict[str, list[Submission]] = {}
        self._lost: Counter[str] = Counter()
        self._given_up: list[str] = []
        self._why = ""

    def all(self, submissions: Sequence[Submission], in_flight: int) -> None:
        files = frozenset(file for submission in submissions if (file := submission.file) is not None)
        rest: Iterator[Submission] = iter(submissions)
        try:
            while True:
                for submission in rest:
                    self._begin(submission, files)
                    if len(self._flying) >= in_flight:
                        break
                if not self._flying:
                    break
                done, _ = wait(self._flying, return_when=FIRST_COMPLETED)
                for future in done:
                    self._end(future)
        except BaseException:
            for future in self._flying:
                future.cancel()
            raise
        if self._given_up:
            raise GradingError(
                f"{len(self._given_up)} submissions are not graded, {self._given_up[0]} first: a worker was lost with "
                f"each {TRIES} times ({self._why}); --resume tries them again"
            )

    def _begin(self, submission: Submission, files: frozenset[Path]) -> None:
        try:
            archive = packed(submission, files)
        except GradingError as error:
            refused = {"parts": [], "refused": str(error), "suspicions": [], "seconds": 0.0}
            self._store.add(self._run, submission.id, f"refused {self._run} {submission.id}", refused)
            self._notice(Progress(submission.id, 0, True, False, 0.0))
            return
        key = self._key(submission, archive, work.processor())
        if key in self._alike:  # the same files are on their way
            self._alike[key].append(submission)
        elif not self._fresh and archive.is_complete and self._store.knows(key):
            self._done(submission, key, known=True)
        else:
            self._give_out(submission, archive, key)
            self._alike[key] = []

    def _give_out(self, submission: Submission, archive: Archive, key: str) -> None:
        task = {**asdict(self._options), "claims": self._claims, "archive": archive}
        self._flying[self._executor.submit(work.graded, task)] = submission, archive, key

    def _end(self, future: Future[Any]) -> None:
        submission, archive, key = self._flying.pop(future)
        try:
            outcome = future.result()
        except Exception as error:
            self._lost[submission.id] += 1
            if self._lost[submission.id] < TRIES:
                self._give_out(submission, archive, key)
                return
            self._given_up += [submission.id, *(one.id for one in self._alike.pop(key))]
            self._why = str(error)
            return
        if outcome["versions"] != work.versions():
            differing = next(n for n, value in work.versions().items() if outcome["versions"].get(n) != value)
            raise GradingError(
                f"a worker has another version of {differing} than this machine "
                f"({outcome['versions'].get(differing)!r:.40}, not {work.versions()[differing]!r:.40}); "
                "install the same"
            )
        alike = self._alike.pop(key)
        key = self._key(submission, archive, outcome["processor"])
        outcome["suspicions"] = suspicions(archive)
        self._store.add(self._run, submission.id, key, outcome)
        self._done(submission, key, known=False)
        for other in alike:
            self._done(other, key, known=True)

    def _done(self, submission: Submission, key: str, *, known: bool) -> None:
        self._store.answer(self._run, submission.id, key)
        broken, refused, seconds = self._store.brief(key)
        self._notice(Progress(submission.id, broken, refused, known, 0.0 if known else seconds))

    def _key(self, submission: Submission, archive: Archive, processor: str) -> str:
        """What decides the outcome: the submission's files, and how and with what they are graded."""
        what = {**asdict(self._options), "impl": archive.impl, "files": archive.digest, "role": submission.role}
        if not archive.is_complete:  # what is installed may change unseen
            what["run"] = f"{self._run} {submission.id}"
        text = json.dumps([what, work.versions(), processor], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def in_order(claims: Sequence[str], failures: dict[str, int]) -> list[str]:
    """The claims with those first that broke most often before, then those that most known mistakes break: who has a
    mistake shall show it early. Before each stand the claims that it depends on: where one of them is broken, no time
    is spent on a diagnosis of what follows from it."""
    from conformance.mutants import MUTANTS

    named = Counter(claim for mutant in MUTANTS.values() for claim in mutant.breaks)
    waiting = sorted(claims, key=lambda claim: (-failures.get(claim, 0), -named[claim]))
    depends = {slug: claim.depends for slug, claim in load().claims.items()}
    seen: set[str] = set()
    order: list[str] = []

    def place(claim: str) -> None:
        if claim not in seen:
            seen.add(claim)
            for before in depends.get(claim, ()):
                place(before)
            order.append(claim)

    for claim in waiting:
        place(claim)
    chosen = set(claims)
    return [claim for claim in order if claim in chosen]
