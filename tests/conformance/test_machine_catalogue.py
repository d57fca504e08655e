"""The catalogue: what its loader refuses, what its linter finds, and that ours is clean."""

from __future__ import annotations

import hashlib

import pytest

import conformance.checks  # noqa: F401 (registers them)
from conformance.catalogue import CatalogueError, is_newer, load, read
from conformance.check import CHECKS
from conformance.lint import lint
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
PAPER = {"origin": '"paper"', "source": '"Somebody 2018, section 3.1"', "where": "", "sources": ""}
DOCUMENTS = f"""
same_as = [["000-001", "000-002"]]
[[document]]
number = "000"
title = "Eins"
english = "One"
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
        return read(tmp_path)

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
        ({"origin": '"rumour"'}, "origin is 'rumour'; it must be one of document, paper"),
        ({**PAPER, "source": ""}, "its origin is 'paper', so source must say in words where it stands"),
        ({**PAPER, "sources": '["000-001"]'}, "its origin is 'paper', so it has no where and no sources"),
        ({**PAPER, "where": '["000 2.1 L5-6"]'}, "its origin is 'paper', so it has no where and no sources"),
        ({**PAPER, "subject": '"document"'}, "a claim about the documents can only come from them"),
        ({**PAPER, "source": '[" "]'}, "source holds an empty text"),
        ({**PAPER, "source": '["a", "a"]'}, "source names something twice"),
        ({"source": "3"}, "source must be a list of strings"),
        ({"since": '"soon"'}, "since is 'soon'; it must be a version such as 0.2.0"),
        ({"core_of": '["Language Model"]'}, "core_of 'Language Model' does not read like \"language_model\""),
        (
            {"core_of": '["language_model"]', "verdict": '"untestable"', "why": '"History."'},
            "only a claim that is tested on implementations can be the core of one",
        ),
    ],
)
def test_a_malformed_claim_is_refused(catalogue, changes, complaint):
    with pytest.raises(CatalogueError, match=complaint):
        catalogue(claim(**changes))


def test_a_claim_may_come_from_elsewhere(catalogue):
    loaded = catalogue(claim(**PAPER, since='"0.2.0"', core_of='["language_model"]'), other())
    elsewhere = loaded.claims["a-claim"]
    assert elsewhere.source == ("Somebody 2018, section 3.1",)
    assert (elsewhere.origin, elsewhere.since, elsewhere.core_of) == ("paper", "0.2.0", ("language_model",))
    assert (elsewhere.is_tested, elsewhere.is_of_documents) == (True, False)
    assert lint(loaded, {"a-claim", "other"}, set()) == []
    assert [c.slug for c in loaded.select("paper")] == ["a-claim"]


def test_sources_are_told_in_words(catalogue):
    places = '["000 2.1 A section L5-6, 9", "000 L7"]'
    loaded = catalogue(claim(where=places, source='["A paper, section 3", "Its code"]'), other(where='["001 2 L3"]'))
    assert loaded.cited(loaded.claims["a-claim"]) == [
        "One (document 000), 2.1 A section, lines 5-6, 9",
        "One (document 000), line 7",
        "A paper, section 3",
        "Its code",
    ]
    assert loaded.cited(loaded.claims["other"]) == ["001 2 L3"]


@pytest.mark.parametrize(
    ("since", "version", "newer"),
    [
        ("0.2.0", "0.1.0", True),
        ("0.2.0", "0.2", False),
        ("0.2", "0.2.0", False),
        ("0.10.0", "0.9.3", True),
        ("1", "1.0.0", False),
        ("0.2.1", "0.2", True),
        ("0.1.0", "0", True),
    ],
)
def test_versions_are_compared_by_their_numbers(catalogue, since, version, newer):
    (loaded,) = catalogue(claim(since=f'"{since}"')).claims.values()
    assert is_newer(loaded, version) is newer


@pytest.mark.parametrize("version", ["", "soon", "1.", "v1"])
def test_what_is_no_version_is_refused(catalogue, version):
    (loaded,) = catalogue(claim()).claims.values()
    with pytest.raises(CatalogueError, match="is no version; give numbers joined by dots"):
        is_newer(loaded, version)


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
        ([claim()], set(), "a-claim: it is a claim about implementations or training runs without a check"),
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
