"""The verdicts on a training run: `results_of`, and the report that shows them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import conformance.checks  # noqa: F401 (registers them)
from conformance.catalogue import Catalogue, load
from conformance.check import CHECKS
from conformance.protocol import NotProvided
from conformance.report import Report
from conformance.runner import run_check
from conformance.verdict import Result, Verdict, judged
from conformance.watch.record import Run


class Watched:
    """A run as an implementation of the one role "training_run"."""

    def __init__(self, run: Run, name: str = "training run") -> None:
        self.run, self.name = run, name

    def build(self, role: str, config: Mapping[str, Any]) -> Run:
        """The run. Raises NotProvided for any other role."""
        if role != "training_run":
            raise NotProvided(f"a training run is no {role}")
        return self.run


def results_of(run: Run) -> dict[str, Result]:
    """The result of each claim about training runs. A claim whose moment did not come is NOT SEEN."""
    results = {}
    for claim in load().watched():
        result = judged(run_check(CHECKS[claim.slug], Watched(run), "quick"), claim)
        if result.verdict is Verdict.NOT_PROVIDED:
            result = replace(result, verdict=Verdict.NOT_SEEN, place="")
        results[claim.slug] = result
    return results


def report_of(
    name: str,
    command: str,
    results: Mapping[str, Result],
    catalogue: Catalogue | None = None,
    course: Mapping[str, Any] | None = None,
) -> Report:
    """The report on a run. name: of the script; command: that watches it again; course: as `course_of` says."""
    found = catalogue or load()
    return Report(name, None, "quick", 0, results, found, found.watched(), lambda _: command, course or {})


def command_of(words: list[str]) -> str:
    return shlex.join(["conformance", "watch", *words])
