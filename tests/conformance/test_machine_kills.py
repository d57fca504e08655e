"""The kill matrix: what counts as a kill, which checks run, and mutants that are patches."""

from __future__ import annotations

import argparse

import pytest

import conformance.checks  # noqa: F401 (registers them)
from conformance.adapters.reference import ReferenceImplementation
from conformance.check import CHECKS, Check
from conformance.cli import mutants as mutants_command
from conformance.evidence import true
from conformance.kills import ERROR, KILLED, NOT_PROVIDED, SURVIVED, Row, checks_of, matrix, outcome
from conformance.mutants import MUTANTS
from conformance.protocol import NotProvided
from conformance.runner import evidence_of

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


@pytest.mark.slow
def test_the_matrix_runs_in_processes_and_reports_progress():
    seen = []
    rows = matrix(["Unscaled"], seen.append, processes=1)
    assert rows == seen
    assert rows[0].escaped == []


def test_a_check_that_draws_nothing_has_one_example():
    calls = []
    once = Check("once", (), (), 10, lambda impl, draw: (calls.append(1), true("it holds", True))[1])
    evidence_of(once, ReferenceImplementation())
    assert len(calls) == 1


def test_mutants_of_whole_models_are_left_out_in_one_sentence_without_torch(monkeypatch, capsys):
    monkeypatch.setattr(mutants_command, "is_installed", lambda package: package != "torch")
    assert mutants_command.run(argparse.Namespace(names=["NoCausalMask"], table=False, processes=1)) == 2
    assert (
        "1 mutants of whole models and training scripts are left out: torch is not installed" in capsys.readouterr().err
    )


def test_what_a_mutant_of_a_text_changes_stands_once_in_it():
    from conformance.mutants.source import SourceMutant

    texts = [mutant for mutant in MUTANTS.values() if isinstance(mutant, SourceMutant)]
    assert len(texts) > 150
    assert [mutant.name for mutant in texts if mutant.specimen.source.count(mutant.old) != 1] == []
