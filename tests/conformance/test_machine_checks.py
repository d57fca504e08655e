"""The honesty of checks: what they declare is what they do, and the reference keeps every claim."""

from __future__ import annotations

import subprocess
import sys
import zlib

import numpy as np
import pytest

import conformance.checks  # noqa: F401 (registers them)
from conformance.adapters.reference import ReferenceImplementation
from conformance.check import CHECKS
from conformance.draw import Draw, Pinned
from conformance.kills import ERROR, NOT_PROVIDED, SURVIVED, outcome
from conformance.protocol import AS_THEY_ARE, ROLES
from conformance.runner import run_check
from conformance.verdict import Verdict


def assert_kept(result):
    assert result.verdict is Verdict.PASS, (
        f"{result.verdict} with {dict(result.example)}: {result.message}{result.what}: "
        f"expected {result.expected}, got {result.got} (margin {result.margin:.3g})"
    )


OF_PARTS = sorted(claim for claim, check in CHECKS.items() if not set(check.roles) & set(AS_THEY_ARE))
"""The claims that the numpy reference plays a role in; specimens keep those of whole models."""


@pytest.mark.parametrize("claim", OF_PARTS)
def test_the_reference_keeps_the_claim(claim):
    """A failure here is a false alarm: an example in which a correct implementation breaks the check's bound."""
    assert_kept(run_check(CHECKS[claim], ReferenceImplementation()))


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("claim", OF_PARTS)
def test_the_reference_keeps_the_claim_in_many_examples(claim, seed):
    assert_kept(run_check(CHECKS[claim], ReferenceImplementation(), "deep", seed))


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


@pytest.mark.parametrize("claim", OF_PARTS)
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
def test_raising_is_no_way_to_keep_a_claim(claim):
    """A check that bad input is refused must first see that good input is accepted."""

    class Raises:
        def build(self, role, config):
            raise RuntimeError

    assert outcome(claim, Raises()) == ERROR


@pytest.mark.parametrize("claim", sorted(CHECKS))
def test_a_check_states_its_claim(claim):
    assert (CHECKS[claim].function.__doc__ or "").strip()


def test_checks_and_mutants_are_listed_without_torch():
    hidden = "import sys; sys.modules['torch'] = None; import conformance.checks, conformance.mutants"
    subprocess.run([sys.executable, "-c", hidden], check=True)


def test_drawn_numbers_are_those_of_numpy_s_own_generator_of_seed_and_name():
    draw = Draw(Pinned())
    for name in ("x", "y", "x"):
        numbers = np.random.default_rng([0, zlib.crc32(name.encode())]).normal(size=5)
        np.testing.assert_array_equal(draw.normal(name, (5,)), numbers)


def test_a_pinned_example_is_always_the_same():
    first, second = Draw(Pinned()), Draw(Pinned())
    assert np.array_equal(first.normal("x", (3, 4)), second.normal("x", (3, 4)))
    assert not np.array_equal(first.normal("x", (3, 4)), first.normal("y", (3, 4)))
