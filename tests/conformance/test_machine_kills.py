"""The kill matrix and the honesty of checks: what they declare is what they do."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import conformance.checks  # noqa: F401 (registers them)
from conformance.adapters.reference import ReferenceImplementation
from conformance.check import CHECKS
from conformance.draw import Draw, Pinned
from conformance.kills import ERROR, KILLED, NOT_PROVIDED, SURVIVED, Row, checks_of, matrix, outcome, row_of
from conformance.mutants import MUTANTS
from conformance.protocol import ROLES, NotProvided

SCALED = "attention-is-scaled-by-sqrt-d-k"


class Bare:
    """The reference with nothing optional: the first output of each role alone, no `vjp`."""

    def __init__(self):
        self.reference = ReferenceImplementation()
        self.built = set()

    def build(self, role, config):
        self.built.add(role)
        subject = self.reference.build(role, config)
        first = next(iter(ROLES[role].outputs))

        class BareSubject:
            dtype, attributes = subject.dtype, subject.attributes
            params, load, train = staticmethod(subject.params), staticmethod(subject.load), staticmethod(subject.train)

            def __call__(self, **inputs):
                return {first: subject(**inputs)[first]}

        return BareSubject()


@pytest.mark.parametrize("claim", sorted(CHECKS))
def test_a_check_declares_what_it_builds_and_needs(claim):
    check, bare = CHECKS[claim], Bare()
    provided = outcome(claim, bare)
    assert provided == (NOT_PROVIDED if check.needs else SURVIVED)
    assert bare.built <= set(check.roles)
    assert bare.built
    for need in check.needs:
        role, _, name = need.partition(".")
        assert role in check.roles
        assert name in (*ROLES[role].outputs, "vjp", "params", "load", "train")


@pytest.mark.parametrize("claim", sorted(CHECKS))
def test_a_check_states_its_claim(claim):
    assert (CHECKS[claim].function.__doc__ or "").strip()


def test_a_pinned_example_is_always_the_same():
    first, second = Draw(Pinned()), Draw(Pinned())
    assert np.array_equal(first.normal("x", (3, 4)), second.normal("x", (3, 4)))
    assert not np.array_equal(first.normal("x", (3, 4)), first.normal("y", (3, 4)))


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
    checks = checks_of(mutant, full=False)
    assert checks[: len(mutant.breaks)] == list(mutant.breaks)
    assert all(mutant.role in CHECKS[claim].roles for claim in checks[len(mutant.breaks) :])
    assert set(checks_of(mutant, full=True)) == set(CHECKS)


def test_a_row_tells_killers_from_escaped_claims():
    row = Row("M", "A defect.", "", ("a", "b", "c"), {"a": KILLED, "b": SURVIVED, "d": ERROR}, ("c",))
    assert (row.killers, row.escaped) == (["a", "d"], ["b", "c"])
    assert Row("M", "A defect.", "", ("a",), {"a": KILLED}).escaped == []
    assert Row("M", "A defect.", "", (), {"a": KILLED}).escaped != []


def test_a_mutant_that_is_a_patch_holds_while_it_is_active(monkeypatch):
    active = []

    class Patch:
        breaks, role, known_as, defect = (SCALED,), "attention", "", "It is not scaled."

        @contextlib.contextmanager
        def active(self):
            active.append(True)
            yield
            active.pop()

        def implementation(self):
            assert active
            return MUTANTS["Unscaled"].implementation()

    monkeypatch.setitem(MUTANTS, "Patch", Patch())
    assert row_of("Patch").escaped == []
    assert not active


def test_the_matrix_runs_in_processes_and_reports_progress():
    seen = []
    rows = matrix(["Unscaled"], False, seen.append, processes=1)
    assert rows == seen
    assert rows[0].escaped == []
