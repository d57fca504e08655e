"""The command `conformance`: what it prints and its exit codes."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from conformance.catalogue import load
from conformance.cli import COMMANDS, coverage, main
from conformance.cli.errata import verdict_of
from conformance.evidence import same
from conformance.verifications import VERIFICATIONS

SCALED = "attention-is-scaled-by-sqrt-d-k"


def test_list_shows_claims(capsys):
    assert main(["list", SCALED, "--rows"]) == 0
    out = capsys.readouterr().out
    assert SCALED in out
    assert load().claims[SCALED].sources[0] in out
    assert "1 claims, 1 of them tested on implementations" in out


def test_an_unknown_claim_is_one_sentence(capsys):
    assert main(["list", "no-such-claim"]) == 2
    assert capsys.readouterr().err == (
        "conformance list: there is no claim, topic, document or row 'no-such-claim'; "
        "`conformance list` shows them all.\n"
    )


def test_errata_prints_statement_correction_and_witness(capsys):
    slug = next(c.slug for c in load().claims.values() if c.verdict == "erratum" and c.slug in VERIFICATIONS)
    assert main(["errata", slug]) == 0
    out = capsys.readouterr().out
    assert f"ok     {slug}" in out
    assert "  written  " in out
    assert "  correct  " in out
    assert "  witness  " in out
    assert "1 claims verified, 1 of them errata, 0 failed" in out


def test_no_witness_expects_what_looks_like_what_it_got(capsys):
    assert main(["errata", "arithmetic,printed_numbers", "--all"]) == 0
    witnesses = re.findall(r"  witness  .*?(?=\n\n)", capsys.readouterr().out, re.DOTALL)
    assert len(witnesses) > 20
    assert not [w for w in witnesses if re.search(r"expected (.+), got \1$", " ".join(w.split()))]


@pytest.mark.parametrize("verification", [lambda: same("one", 1, 2), lambda: 1 / 0])
def test_a_verification_that_fails_or_raises_fails(capsys, monkeypatch, verification):
    slug = next(c.slug for c in load().claims.values() if c.slug in VERIFICATIONS)
    monkeypatch.setitem(VERIFICATIONS, slug, verification)
    ok, lines = verdict_of(load().claims[slug], verification)
    assert not ok
    assert lines[0].startswith("FAILED")
    assert main(["errata", slug]) == 1


def test_coverage_counts_rows():
    catalogue = load()
    cited = catalogue.claims[SCALED].sources
    covered = coverage.covered_rows(catalogue, {SCALED})
    assert covered == set(cited) - catalogue.untestable()
    *documents, everything = coverage.by_document(catalogue, covered)
    assert everything[2:6] == [1374, sum(row[3] for row in documents), 1204, len(covered)]
    assert coverage.by_topic(catalogue, {SCALED}, ())[-1][4] == 1


def test_coverage_explains_what_is_not_tested():
    catalogue = load()
    claim = catalogue.claims["pytorch-chooses-flash-attention-automatically"]
    assert coverage.explained(catalogue, set())[claim] == list(claim.sources)
    assert claim not in coverage.explained(catalogue, set(claim.sources))


def test_claims_from_elsewhere_are_counted_by_themselves(monkeypatch):
    catalogue = load()
    paper = replace(catalogue.claims[SCALED], origin="paper", where=(), sources=(), source=("A paper, section 3",))
    more = replace(catalogue, claims={**catalogue.claims, "another": replace(paper, slug="another")})
    covered = coverage.covered_rows(catalogue, catalogue.claims)
    assert coverage.covered_rows(more, more.claims) == covered
    assert coverage.by_document(more, covered) == coverage.by_document(catalogue, covered)
    assert coverage.rows_per_claim(more) == coverage.rows_per_claim(catalogue)
    before, after = (int(coverage.from_elsewhere(c).split()[0]) for c in (catalogue, more))
    assert after == before + 1


def test_list_names_the_documents_and_other_sources(capsys, monkeypatch):
    assert main(["list", SCALED]) == 0
    assert "000 is Chapter 2: Transformer architecture (第2章 Transformer 架构)" in capsys.readouterr().out
    catalogue = load()
    paper = replace(catalogue.claims[SCALED], origin="paper", where=(), sources=(), source=("A paper, section 3",))
    monkeypatch.setattr("conformance.cli.list.load", lambda: replace(catalogue, claims={SCALED: paper}))
    assert main(["list", "paper"]) == 0
    assert "A paper, section 3" in capsys.readouterr().out


def test_coverage_lists_what_is_missing():
    catalogue = load()
    claims = {slug: claim for slug, claim in catalogue.claims.items() if slug != SCALED}
    covered = coverage.covered_rows(catalogue, claims)
    alone = next(row for row in catalogue.claims[SCALED].sources if row not in covered)
    uncited = coverage.missing(replace(catalogue, claims=claims), covered, (), ())
    assert f"the row {alone} is cited by no claim" in uncited
    uncovered = coverage.missing(catalogue, covered, (), ())
    assert [problem.split()[2] for problem in uncovered if "is testable" in problem].count(alone) == 1
    idle = coverage.missing(catalogue, coverage.covered_rows(catalogue, catalogue.claims), {SCALED, "other"}, {"other"})
    assert idle == [f"{SCALED}: its check has no mutant that it must kill"]


def test_coverage_prints_tables_and_the_linter_decides(capsys, monkeypatch):
    assert main(["coverage"]) == 0
    out = capsys.readouterr().out
    assert "1201 of 1204 testable statements covered (1374 statements in all)" in out
    assert "1.9 statements a claim, at most 22 (sinusoid-formula); " in out
    assert re.search(r"\d{3} checks and \d{3,4} mutants; 0 checks have none that they must kill", out)
    assert "not tested: 002-343, 002-386, 002-346 (pytorch-chooses-flash-attention-automatically: which kernel" in out
    monkeypatch.setattr(coverage, "lint", lambda *_: ["a-claim: it is wrong"])
    assert main(["coverage"]) == 1
    assert capsys.readouterr().err == "catalogue: a-claim: it is wrong\n"


@pytest.mark.slow  # it proves all checks on what is unmutated first
def test_mutants_of_a_name_are_killed(capsys):
    assert main(["mutants", "CausalMaskIsStrict", "--table", "--processes", "1"]) == 0
    out = capsys.readouterr().out
    assert "CausalMaskIsStrict" in out
    assert "1 of 1 mutants killed by the claims that they break" in out


def test_an_unknown_mutant_is_one_sentence(capsys):
    assert main(["mutants", "Nobody"]) == 2
    assert "there is no mutant Nobody" in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_and_exit_codes(capsys, command):
    with pytest.raises(SystemExit) as left:
        main([command, "--help"])
    out = capsys.readouterr().out
    assert left.value.code == 0
    assert f"conformance {command}" in out[out.index("examples:") :]
    assert "exit codes:" in out
