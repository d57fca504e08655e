"""The catalogue: what its loader refuses, what its linter finds, and that ours is clean."""

from __future__ import annotations

import hashlib

import pytest

import conformance.checks  # noqa: F401 (registers them)
from conformance.catalogue import CatalogueError, lint, load
from conformance.check import CHECKS
from conformance.verifications import VERIFICATIONS

CLAIM = {
    "slug": '"a-claim"',
    "says": '"It holds."',
    "topic": '"topic"',
    "subject": '"implementation"',
    "kind": '"property"',
    "verdict": '"true"',
    "where": '["000 2.1 L5-6"]',
    "sources": '["000-001"]',
}
DOCUMENTS = f"""
same_as = [["000-001", "000-002"]]
[[document]]
number = "000"
title = "One"
sha256 = "{hashlib.sha256(b"").hexdigest()}"
rows = 5
untestable = ["000-005"]
"""


def claim(**changes):
    rows = {**CLAIM, **changes}
    return "[[claim]]\n" + "".join(f"{name} = {value}\n" for name, value in rows.items() if value)


@pytest.fixture
def catalogue(tmp_path):
    """Load a catalogue with these claims."""

    def make(*claims, documents=DOCUMENTS):
        (tmp_path / "documents.toml").write_text(documents)
        (tmp_path / "topic.toml").write_text("\n".join(claims))
        return load(tmp_path)

    return make


def test_our_catalogue_is_consistent():
    assert lint(load(), CHECKS, VERIFICATIONS) == []


def test_our_documents_are_the_five_with_all_their_rows():
    documents = load().documents
    assert list(documents) == ["000", "001", "002", "003", "004"]
    assert sum(document.rows for document in documents.values()) == 1374
    assert sum(document.rows - len(document.untestable) for document in documents.values()) == 1204


def test_a_claim_is_typed(catalogue):
    loaded = catalogue(claim())
    (only,) = loaded.claims.values()
    assert only.slug == "a-claim"
    assert only.sources == ("000-001",)
    assert only.depends == ()
    assert only.is_tested
    assert lint(loaded, {"a-claim"}, set()) == []


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"colour": '"red"'}, "'a-claim': unknown field colour"),
        ({"says": ""}, "the field says is missing"),
        ({"says": '" "'}, "says is empty"),
        ({"says": "3"}, "says must be of type str, not 3"),
        ({"sources": '"000-001"'}, "sources must be a list of strings"),
        ({"sources": "[1]"}, "sources must be a list of strings"),
        ({"sources": '["000-1"]'}, "source '000-1' does not read like"),
        ({"sources": '["000-001", "000-001"]'}, "sources names something twice"),
        ({"slug": '"A claim"'}, "a slug is lower-case words joined by hyphens"),
        ({"kind": '"guess"'}, "kind is 'guess'; it must be one of identity"),
        ({"verdict": '"false"'}, "verdict is 'false'"),
        ({"subject": '"me"'}, "subject is 'me'"),
        ({"where": '["page 3"]'}, "where 'page 3' does not read like"),
        ({"verdict": '"erratum"'}, "an erratum, and nothing else, has a correction"),
        ({"correction": '"No."'}, "an erratum, and nothing else, has a correction"),
        ({"verdict": '"untestable"'}, "an untestable claim, and nothing else, has a why"),
        ({"why": '"Because."'}, "an untestable claim, and nothing else, has a why"),
    ],
)
def test_a_malformed_claim_is_refused(catalogue, changes, complaint):
    with pytest.raises(CatalogueError, match=complaint):
        catalogue(claim(**changes))


def test_a_slug_may_be_used_once(catalogue):
    with pytest.raises(CatalogueError, match="the slug 'a-claim' is used twice"):
        catalogue(claim(), claim())


@pytest.mark.parametrize("text", ["[[claim]\n", "[[claims]]\nslug = 'x'\n"])
def test_a_malformed_file_is_refused_by_name(catalogue, text):
    with pytest.raises(CatalogueError, match=r"topic.toml"):
        catalogue(text)


def other(**changes):
    return claim(slug='"other"', **{"sources": '["000-003"]', **changes})


@pytest.mark.parametrize(
    ("claims", "checks", "complaint"),
    [
        ([claim(sources="[]", where="[]")], {"a-claim"}, "a-claim: it cites no row"),
        ([claim(sources='["000-006"]')], {"a-claim"}, "a-claim: the source 000-006 does not exist"),
        ([claim(where='["001 2 L3"]')], {"a-claim"}, "where names '001 2 L3', but no source is of that document"),
        ([claim(sources='["000-002", "000-003"]')], {"a-claim"}, "state 2 facts by same_as; say in merged_because"),
        ([claim(), other(sources='["000-001"]')], {"a-claim", "other"}, "the row 000-001 is cited by a-claim, other"),
        ([claim(depends='["nothing"]')], {"a-claim"}, "it depends on nothing, which does not exist"),
        (
            [claim(depends='["other"]'), other(depends='["a-claim"]')],
            {"a-claim", "other"},
            "in a circle: a-claim -> other -> a-claim",
        ),
        ([claim(depends='["a-claim"]')], {"a-claim"}, "in a circle: a-claim -> a-claim"),
        ([claim()], set(), "a-claim: it is a claim about implementations without a check"),
        ([claim()], {"a-claim", "stray"}, "the check of 'stray' tests no claim"),
        ([claim(subject='"document"')], set(), "a claim about the documents without a verification"),
        ([claim(subject='"document"')], {"a-claim"}, "a claim about the documents and has a check"),
        ([claim(verdict='"untestable"', why='"History."')], {"a-claim"}, "called untestable and has a check"),
        ([claim(verdict='"erratum"', correction='"No."')], {"a-claim"}, "an erratum without a verification"),
    ],
)
def test_the_linter_finds(catalogue, claims, checks, complaint):
    problems = lint(catalogue(*claims), checks, set())
    assert any(complaint in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("documents", "complaint"),
    [
        (DOCUMENTS.replace("000-005", "000-006"), "the untestable row 000-006 does not exist"),
        (DOCUMENTS.replace('"000-002"', '"000-009"'), "same_as names the row 000-009, which does not exist"),
        (DOCUMENTS.replace('"000-002"]', '"000-002"], ["000-001"]'), "names the row 000-001 in two groups"),
        (DOCUMENTS.replace('sha256 = "e3', 'sha256 = "x3'), "its sha256 is not 64 hexadecimal digits"),
    ],
)
def test_the_linter_reads_the_documents_too(catalogue, documents, complaint):
    assert any(complaint in problem for problem in lint(catalogue(claim(), documents=documents), {"a-claim"}, set()))


def test_reasons_silence_the_linter(catalogue):
    merged = claim(sources='["000-002", "000-003"]', merged_because='"one fact"')
    shared = claim(slug='"other"', sources='["000-003"]', shared_because='"the row states two facts"')
    assert lint(catalogue(merged, shared), {"a-claim", "other"}, set()) == []


def test_ancestors_are_listed_nearest_first_and_circles_end(catalogue):
    loaded = catalogue(
        claim(depends='["other"]'), other(depends='["third"]'), claim(slug='"third"', depends='["a-claim"]')
    )
    assert loaded.ancestors("a-claim") == ["other", "third"]


@pytest.mark.parametrize(
    ("selection", "slugs"),
    [
        ("a-claim", ["a-claim"]),
        ("other,a-claim", ["a-claim", "other"]),
        ("*he*", ["other"]),
        ("topic", ["a-claim", "other"]),
        ("000", ["a-claim", "other"]),
        ("000-003", ["other"]),
    ],
)
def test_selection(catalogue, selection, slugs):
    assert [chosen.slug for chosen in catalogue(claim(), other()).select(selection)] == slugs


@pytest.mark.parametrize("selection", ["nothing", "x*", "000-004", "", ","])
def test_a_selection_of_nothing_is_refused(catalogue, selection):
    with pytest.raises(CatalogueError, match=r"there is no claim|names no claim"):
        catalogue(claim()).select(selection)
