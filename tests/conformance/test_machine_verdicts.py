"""Folding of failures to their root cause, and known failures."""

from __future__ import annotations

import datetime
import itertools
from dataclasses import replace

import pytest

from conformance.catalogue import Catalogue, Claim, load
from conformance.known import Known, KnownFailuresError, expect, is_stale, load_known
from conformance.mutants import MUTANTS
from conformance.outcome import untested_core
from conformance.roots import fold, most_specific_first
from conformance.verdict import Result, Verdict, counts, judged


def entry(**changes):
    """An entry of a known-failures file, some of its fields changed; an empty one is left out."""
    fields = {"claim": '"root"', "subject": '"mine:Attention"', "reason": '"on purpose"', "expires": "2027-06-30"}
    return "[[known]]\n" + "".join(f"{name} = {value}\n" for name, value in {**fields, **changes}.items() if value)


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


@pytest.mark.parametrize(("other", "told"), [("a", "a"), ("", "a"), ("b", "")])
def test_a_failure_without_a_diagnosis_gets_the_one_of_all_that_follows_from_it(other, told):
    given = {slug: Result(slug, Verdict.FAIL) for slug in ("root", "middle", "leaf")}
    given |= {slug: replace(given[slug], diagnosis=says) for slug, says in (("middle", "a"), ("leaf", other))}
    assert fold(given, CHAIN)["root"].diagnosis == told


def test_a_failure_is_blocked_through_an_ancestor_that_passed():
    folded = fold(results(root=Verdict.ERROR, middle=Verdict.PASS, leaf=Verdict.FAIL), CHAIN)
    assert (folded["leaf"].verdict, folded["leaf"].root) == (Verdict.BLOCKED, "root")
    assert folded["middle"].verdict is Verdict.PASS


def test_only_broken_claims_are_blocked_and_only_by_broken_ones():
    given = results(root=Verdict.VACUOUS, middle=Verdict.FAIL, leaf=Verdict.NOT_PROVIDED)
    assert fold(given, CHAIN) == given


def test_a_convention_that_is_not_kept_may_follow_from_a_failure_and_a_fact_does_not():
    leaf = replace(CHAIN.claims["leaf"], verdict="convention")
    given = results(root=Verdict.FAIL, middle=Verdict.NOTE, leaf=Verdict.NOTE)
    folded = fold(given, replace(CHAIN, claims={**CHAIN.claims, "leaf": leaf}))
    assert [(r.verdict, r.root) for r in folded.values()] == [
        (Verdict.FAIL, ""),
        (Verdict.NOTE, ""),
        (Verdict.BLOCKED, "root"),
    ]


def test_a_failure_whose_ancestor_did_not_run_stands():
    assert fold(results(leaf=Verdict.FAIL), CHAIN)["leaf"].verdict is Verdict.FAIL


def test_a_known_failure_explains_what_depends_on_it():
    folded = fold(results(root=Verdict.KNOWN_FAILURE, leaf=Verdict.FAIL), CHAIN)
    assert (folded["root"].verdict, folded["leaf"].verdict) == (Verdict.KNOWN_FAILURE, Verdict.BLOCKED)


def test_failures_with_one_diagnosis_are_one_defect():
    loose = Catalogue({c.slug: c for c in (a_claim("first"), a_claim("second"), a_claim("third", "second"))}, {})
    said = {slug: Result(slug, Verdict.FAIL, diagnosis="It is upside down.") for slug in ("first", "second", "third")}
    folded = fold(said, loose)
    assert [(r.verdict, r.root) for r in folded.values()] == [
        (Verdict.FAIL, ""),
        (Verdict.BLOCKED, "first"),
        (Verdict.BLOCKED, "first"),
    ]
    other = fold({**said, "first": Result("first", Verdict.FAIL, diagnosis="It is another thing.")}, loose)
    assert [(r.verdict, r.root) for r in other.values()] == [
        (Verdict.FAIL, ""),
        (Verdict.FAIL, ""),
        (Verdict.BLOCKED, "second"),
    ]


def test_the_claim_that_a_mistake_is_about_is_the_root():
    mutant = MUTANTS["Unscaled"]
    meant, other = mutant.breaks[0], "softmax-formula"
    assert other not in mutant.breaks
    assert most_specific_first([other, meant], f"It looks like this mistake: {mutant.defect}")[0] == meant


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


KNOWN = Known("leaf", "mine:*", "it is so", datetime.date(9999, 1, 1))


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
    known = {"leaf": KNOWN}
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
        (entry() + "[more]\n", r"must hold \[\[known\]\] tables"),
        (entry(reason=""), "entry 1 must have claim, subject, reason, expires, and nothing else"),
        (entry(when='"y"'), "entry 1 must have claim, subject, reason, expires, and nothing else"),
        (entry(reason='" "'), "entry 1: reason must be a text that is not empty, not ' '"),
        (entry(subject="3"), "entry 1: subject must be a text that is not empty, not 3"),
        (entry(expires='"2027-06-30"'), "entry 1: expires must be a date without quotes, such as 2027-06-30"),
        (entry(expires="2027-06-30T10:00:00"), "entry 1: expires must be a date without quotes"),
        (entry(claim='"rot"'), "entry 1 names 'rot', which is no claim"),
        (entry() * 2, "entry 2 lists 'root' twice for mine:Attention"),
        (entry() + entry(subject='"mine:Att*"'), "entry 2 lists 'root' twice for mine:Attention"),
    ],
)
def test_a_malformed_file_is_refused_with_one_sentence(tmp_path, text, complaint):
    path = tmp_path / "known.toml"
    path.write_text(text)
    with pytest.raises(KnownFailuresError, match=complaint):
        load_known(path, CHAIN, "mine:Attention")


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(KnownFailuresError, match="cannot be read: No such file"):
        load_known(tmp_path / "none.toml", CHAIN, "mine:Attention")


def test_a_file_is_read_for_one_implementation(tmp_path):
    path = tmp_path / "known.toml"
    path.write_text(entry() + entry(subject='"other:*"', reason='"theirs"'))
    mine = Known("root", "mine:Attention", "on purpose", datetime.date(2027, 6, 30))
    assert load_known(path, CHAIN, "mine:Attention") == {"root": mine}
    assert load_known(path, CHAIN, "other:GPT")["root"].reason == "theirs"
    assert load_known(path, CHAIN, "third") == {}


def test_an_entry_counts_until_its_last_day():
    broken, known = Result("leaf", Verdict.FAIL), {"leaf": replace(KNOWN, expires=datetime.date(2027, 6, 30))}
    assert expect(broken, known, datetime.date(2027, 6, 30)).verdict is Verdict.KNOWN_FAILURE
    late = expect(broken, known, datetime.date(2027, 7, 1))
    assert late.verdict is Verdict.FAIL
    assert late.message == (
        "its entry in the known-failures file (it is so) expired on 2027-06-30: mend it, or renew it"
    )
    assert not is_stale(late, known)
    raised = expect(replace(broken, verdict=Verdict.ERROR, message="KeyError: 'x'"), known, datetime.date(2027, 7, 1))
    assert raised.message.startswith("KeyError: 'x'; its entry ")


def test_a_run_in_which_no_claim_could_be_tested_says_why():
    results = {
        slug: Result(slug, Verdict.NOT_PROVIDED, message=message)
        for slug, message in (("a", "no such role"), ("b", "no such role"), ("c", "another reason"))
    }
    (sentence,) = untested_core(None, [], results, load())
    assert sentence == "none of the 3 claims could be tested; of 2 the reason is: no such role"
    assert untested_core(None, [], {**results, "d": Result("d", Verdict.PASS)}, load()) == []
