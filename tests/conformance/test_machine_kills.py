"""The kill matrix: what counts as a kill, which checks run, and mutants that are patches."""

from __future__ import annotations

import conformance.checks  # noqa: F401 (registers them)
from conformance.adapters.reference import ReferenceImplementation
from conformance.check import CHECKS
from conformance.kills import ERROR, KILLED, NOT_PROVIDED, SURVIVED, Row, checks_of, matrix, outcome
from conformance.mutants import MUTANTS
from conformance.protocol import NotProvided

SCALED = "attention-is-scaled-by-sqrt-d-k"


def test_the_outcomes_are_told_apart():
    class Raises:
        def build(self, role, config):
            raise RuntimeError

    class Nothing:
        def build(self, role, config):
            raise NotProvided

    assert outcome(SCALED, ReferenceImplementation()) == SURVIVED
    assert outcome(SCALED, MUTANTS["Unscaled"].implementation()) == KILLED
    assert outcome(SCALED, Raises()) == ERROR
    assert outcome(SCALED, Nothing()) == NOT_PROVIDED


def test_the_checks_of_broken_claims_come_first():
    mutant = MUTANTS["Unscaled"]
    checks = checks_of(mutant)
    assert checks[: len(mutant.breaks)] == list(mutant.breaks)
    assert all(mutant.role in CHECKS[claim].roles for claim in checks[len(mutant.breaks) :])
    assert {claim for claim, check in CHECKS.items() if mutant.role in check.roles} <= set(checks)


def test_a_row_tells_killers_from_escaped_claims():
    row = Row("M", "A defect.", "", ("a", "b", "c"), {"a": KILLED, "b": SURVIVED, "d": ERROR}, ("c",))
    assert (row.killers, row.escaped) == (["a", "d"], ["b", "c"])
    assert Row("M", "A defect.", "", ("a",), {"a": KILLED}).escaped == []
    assert Row("M", "A defect.", "", (), {"a": KILLED}).escaped != []


def test_the_matrix_runs_in_processes_and_reports_progress():
    seen = []
    rows = matrix(["Unscaled"], seen.append, processes=1)
    assert rows == seen
    assert rows[0].escaped == []
