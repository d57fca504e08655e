"""Folding of failures to their root cause, and known failures."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from conformance.catalogue import Catalogue, Claim
from conformance.known import KnownFailuresError, expect, is_stale, load_known
from conformance.verdict import Result, Verdict, counts, fold, judged


def a_claim(slug, *depends):
    return Claim(slug, "It holds.", "topic", "implementation", "property", "true", (), (), depends)


CHAIN = Catalogue({c.slug: c for c in (a_claim("root"), a_claim("middle", "root"), a_claim("leaf", "middle"))}, {})


def results(**verdicts):
    return {slug: Result(slug, verdict) for slug, verdict in verdicts.items()}


@pytest.mark.parametrize("order", list(itertools.permutations(["root", "middle", "leaf"])))
def test_failures_fold_to_the_root_in_whatever_order_they_came(order):
    folded = fold({slug: Result(slug, Verdict.FAIL) for slug in order}, CHAIN)
    assert {slug: (r.verdict, r.root) for slug, r in folded.items()} == {
        "root": (Verdict.FAIL, ""),
        "middle": (Verdict.BLOCKED, "root"),
        "leaf": (Verdict.BLOCKED, "root"),
    }


def test_a_failure_is_blocked_through_an_ancestor_that_passed():
    folded = fold(results(root=Verdict.ERROR, middle=Verdict.PASS, leaf=Verdict.FAIL), CHAIN)
    assert (folded["leaf"].verdict, folded["leaf"].root) == (Verdict.BLOCKED, "root")
    assert folded["middle"].verdict is Verdict.PASS


def test_only_broken_claims_are_blocked_and_only_by_broken_ones():
    given = results(root=Verdict.VACUOUS, middle=Verdict.FAIL, leaf=Verdict.NOT_PROVIDED)
    assert fold(given, CHAIN) == given


def test_a_failure_whose_ancestor_did_not_run_stands():
    assert fold(results(leaf=Verdict.FAIL), CHAIN)["leaf"].verdict is Verdict.FAIL


def test_a_known_failure_explains_what_depends_on_it():
    folded = fold(results(root=Verdict.KNOWN_FAILURE, leaf=Verdict.FAIL), CHAIN)
    assert (folded["root"].verdict, folded["leaf"].verdict) == (Verdict.KNOWN_FAILURE, Verdict.BLOCKED)


def test_otherwise_than_a_convention_is_a_note_and_an_error_stays_one():
    convention = replace(a_claim("leaf"), verdict="convention")
    assert judged(Result("leaf", Verdict.FAIL, got="4"), convention) == Result("leaf", Verdict.NOTE, got="4")
    for verdict in set(Verdict) - {Verdict.FAIL}:
        assert judged(Result("leaf", verdict), convention).verdict is verdict
    assert judged(Result("leaf", Verdict.FAIL), a_claim("leaf")).verdict is Verdict.FAIL


def test_counts_hold_every_verdict():
    numbers = counts(results(root=Verdict.PASS, leaf=Verdict.PASS))
    assert list(numbers) == list(Verdict)
    assert sum(numbers.values()) == numbers[Verdict.PASS] == 2


@pytest.mark.parametrize(
    ("verdict", "becomes", "stale"),
    [
        (Verdict.FAIL, Verdict.KNOWN_FAILURE, False),
        (Verdict.ERROR, Verdict.KNOWN_FAILURE, False),
        (Verdict.PASS, Verdict.UNEXPECTED_PASS, True),
        (Verdict.NOT_PROVIDED, Verdict.NOT_PROVIDED, True),
        (Verdict.VACUOUS, Verdict.VACUOUS, True),
        (Verdict.NOTE, Verdict.UNEXPECTED_PASS, True),
    ],
)
def test_known_failures_are_strict(verdict, becomes, stale):
    known = {"leaf": "it is so"}
    result = expect(Result("leaf", verdict), known)
    assert (result.verdict, is_stale(result, known)) == (becomes, stale)
    assert ("remove the entry" in result.message) == stale
    other = Result("root", verdict)
    assert expect(other, known) == other


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[[known]\n", "is not valid TOML"),
        ("known = 3\n", r"must hold \[\[known\]\] tables"),
        ('[[known]]\nclaim = "root"\nreason = "x"\n[more]\n', r"must hold \[\[known\]\] tables"),
        ('[[known]]\nclaim = "root"\n', "entry 1 must have a claim and a reason"),
        ('[[known]]\nclaim = "root"\nreason = " "\n', "entry 1 must have a claim and a reason"),
        ('[[known]]\nclaim = "root"\nreason = "x"\nwhen = "y"\n', "entry 1 must have a claim and a reason"),
        ('[[known]]\nclaim = "rot"\nreason = "x"\n', "entry 1 names 'rot', which is no claim"),
        ('[[known]]\nclaim = "root"\nreason = "x"\n' * 2, "lists 'root' twice"),
    ],
)
def test_a_malformed_file_is_refused_with_one_sentence(tmp_path, text, complaint):
    path = tmp_path / "known.toml"
    path.write_text(text)
    with pytest.raises(KnownFailuresError, match=complaint):
        load_known(path, CHAIN)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(KnownFailuresError, match="cannot be read: No such file"):
        load_known(tmp_path / "none.toml", CHAIN)


def test_a_file_is_read(tmp_path):
    path = tmp_path / "known.toml"
    path.write_text('[[known]]\nclaim = "root"\nreason = "on purpose"\n')
    assert load_known(path, CHAIN) == {"root": "on purpose"}
