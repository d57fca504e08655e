"""What is made from results: JSON that keeps its schema, comparisons and their exit codes, the page as text."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from reports import BLOCKED, CATALOGUE, FAILED, HOSTILE, POSITIONS, SCALED, a_report, broken, kept, report

import conformance
from conformance.cli import main
from conformance.comparison import changes
from conformance.page import to_html
from conformance.page.pictures import pictures_of
from conformance.report import to_json
from conformance.summary import summary_lines
from conformance.verdict import ORDER, Result, Verdict

SCHEMA = json.loads((Path(conformance.__file__).parent / "schemas" / "report.schema.json").read_text())


@pytest.fixture
def written(tmp_path):
    """Write reports to files; the paths."""

    def write(*reports):
        paths = [tmp_path / f"{number}.json" for number in range(len(reports))]
        for path, values in zip(paths, reports, strict=True):
            path.write_text(json.dumps(values))
        return [str(path) for path in paths]

    return write


# --- JSON -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "made", [broken(), kept(), report("inf", {SCALED: replace(FAILED, error=float("inf"), bound=float("nan"))})]
)
def test_reports_keep_the_published_schema(made):
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(made, allow_nan=False)))


def test_the_schema_refuses_what_is_no_report():
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(SCHEMA)
    for spoiled in ({**kept(), "total": "3"}, {**kept(), "surprise": 1}, {**kept(), "claims": [{"slug": SCALED}]}):
        assert list(validator.iter_errors(spoiled))


def test_errata_carry_correction_and_witness():
    errata = kept()["errata"]
    assert errata
    for erratum in errata:
        assert erratum["correction"]
        assert erratum["witness"]["ok"], erratum["slug"]


# --- comparison -----------------------------------------------------------------------------------


def test_changes_are_named_by_what_became_of_the_claim():
    before = report("a", {SCALED: Verdict.PASS, BLOCKED: Verdict.NOT_PROVIDED, POSITIONS: Verdict.PASS})
    after = report("a", {SCALED: Verdict.FAIL, BLOCKED: Verdict.PASS, POSITIONS: Verdict.NOT_PROVIDED})
    assert {c.claim["slug"]: c.kind for c in changes(before, after)} == {
        SCALED: "BROKEN",
        BLOCKED: "BETTER",
        POSITIONS: "LOST",
    }
    partial = report("a", {SCALED: Verdict.ERROR})
    assert {c.claim["slug"]: (c.kind, c.is_worse) for c in changes(partial, after)} == {
        SCALED: ("CHANGED", False),
        BLOCKED: ("NEW", False),
        POSITIONS: ("NEW", False),
    }
    assert [(c.kind, c.is_worse) for c in changes(after, partial)] == [
        ("CHANGED", False),
        ("GONE", False),
        ("GONE", False),
    ]
    assert [c.is_worse for c in changes(report("a", {}), partial)] == [True]
    assert changes(before, before) == []


def test_compare_shows_what_broke_and_ends_with_1(written, capsys):
    assert main(["compare", *written(kept(), broken())]) == 1
    out = capsys.readouterr().out
    assert f"BROKEN   {SCALED}: PASS -> FAIL\n    wrong     The scores are not divided by sqrt(d_k).\n" in out
    assert "    at        model.py:12\n    seen      expected 0.5, got 1\n    claim     " in out
    assert f"    replay    pytest --claims {SCALED}\n" in out
    assert f"LOST     {POSITIONS}: PASS -> NOT PROVIDED\n" in out
    assert out.endswith("2 broken, 1 lost, 0 unchanged\n")


def test_compare_of_what_got_better_ends_with_0(written, capsys):
    assert main(["compare", *written(broken(), kept(), broken())]) == 0
    assert "3 better, 0 unchanged\n" in capsys.readouterr().out


def test_compare_writes_the_page(written, tmp_path, capsys):
    page = tmp_path / "page.html"
    main(["compare", *written(kept("one"), broken("two")), "-o", str(page)])
    assert "PASS / FAIL" in page.read_text()
    assert str(page) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "cannot be read: No such file or directory"),
        ("{", "is not JSON"),
        ("[]", "is no report of schema 2"),
        ('{"schema": 99}', "is no report of schema 2"),
    ],
)
def test_compare_refuses_other_files_in_one_sentence(written, tmp_path, capsys, content, sentence):
    path = tmp_path / "other.json"
    if content is not None:
        path.write_text(content)
    assert main(["compare", *written(kept()), str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert sentence in line


def test_compare_needs_two(written, capsys):
    assert main(["compare", *written(kept())]) == 2
    assert "two reports or more" in capsys.readouterr().err


# --- the page as text -----------------------------------------------------------------------------


class Elements(HTMLParser):
    """The tags and attributes of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def test_the_page_asks_for_nothing_outside_itself():
    page = to_html([broken(), kept()])
    assert not [tag for tag, _ in Elements(page).found if tag in ("link", "img", "iframe", "object")]
    assert not [a for _, attributes in Elements(page).found for a in attributes if a == "src"]
    assert not re.search(r"https?://|@import|url\(", page)


def test_hostile_names_and_messages_stay_text():
    spoiled = Result(
        SCALED,
        Verdict.ERROR,
        message=HOSTILE,
        place=HOSTILE,
        diagnosis=HOSTILE,
        mend=HOSTILE,
        pictures={HOSTILE: [[1.0]]},
        untested=[HOSTILE],
        what=HOSTILE,
        expected=HOSTILE,
        got=HOSTILE,
        reason=HOSTILE,
        bound=1.0,
        error=2.0,
        example={HOSTILE: HOSTILE},
        attributes={"attention": {HOSTILE: HOSTILE}},
        notes=[f"! {HOSTILE}"],
    )
    page = to_html([report(HOSTILE, {SCALED: spoiled})])
    elements = Elements(page).found
    assert [tag for tag, _ in elements].count("script") == 1
    assert not [tag for tag, _ in elements if tag == "img"]
    assert page.count("&lt;img src=x") >= 10
    assert not [a for _, attributes in elements for a in attributes if a.startswith("on")]


def test_every_verdict_has_its_place_in_the_order():
    assert sorted(ORDER) == sorted(Verdict)


def test_the_page_begins_a_failure_with_what_is_wrong():
    text = to_html([broken()])
    claim = text[text.index(f'id="{SCALED}"') :]
    order = [
        FAILED.diagnosis, "model.py:12", FAILED.mend, "<dt>expected</dt>", "<dt>got</dt>", "<figure>", "d_k=4",
        "Chapter 2: Transformer architecture (document 000), 2.2.3", f"pytest --claims {SCALED}",
    ]  # fmt: skip
    found = [claim.index(part) for part in order]
    assert found == sorted(found)


def test_heat_maps_mark_where_two_matrices_differ_most_and_what_is_no_number():
    page = pictures_of({"expected": [[1.0, 0.0], [0.5, 0.5]], "got": [["nan", 0.0], [0.25, 1.5]]})
    assert page.count('<td class="worst" style="--v: 0.333" title="0.5">0.5</td>') == 1
    assert page.count('<td class="worst" style="--v: 1.000" title="1.5">1.5</td>') == 1
    assert page.count('class="worst"') == 2
    assert '<td title="nan">nan</td>' in page
    large = pictures_of({"got": [[float(i + j) for j in range(9)] for i in range(9)]})
    assert large.count("<td ") == 81
    assert 'title="16"></td>' in large
    assert pictures_of({}) == pictures_of({"got": [["nan"]]}) == ""


def test_what_was_not_tested_stands_at_the_head_and_doubts_stand_open():
    said = replace(
        FAILED, untested=["generate() raised ValueError"], notes=["Attention", "! looks like: no scale", "  x: 1"]
    )
    page = to_html([report("mine", {SCALED: said})])
    head = page[page.index("<header>") : page.index("</header>")]
    assert "<strong>Not tested:</strong> generate() raised ValueError" in head
    opened = re.sub(r"<details>.*?</details>", "", head, flags=re.DOTALL)
    assert "Attention: looks like: no scale" in opened
    assert "x: 1" not in opened
    assert "x: 1" in head


def test_counts_are_of_the_claims_about_what_the_implementation_has():
    missing = Result(POSITIONS, Verdict.NOT_PROVIDED, roles=("sinusoidal_positions",))
    optional = Result(BLOCKED, Verdict.NOT_PROVIDED, roles=("attention",))
    made = report(
        "mine",
        {
            SCALED: replace(FAILED, roles=("attention",), attributes={"attention": {}}),
            BLOCKED: optional,
            POSITIONS: missing,
        },
    )
    assert (made["total"], made["about"]) == (3, 2)
    assert "<strong>0 of 2 claims kept</strong> (budget default): 1 FAIL, 1 NOT PROVIDED; 1 claims" in to_html([made])


def test_terminal_and_page_show_failures_in_the_same_order():
    claims = [
        claim.slug for claim in CATALOGUE.select("attention,masks,softmax") if claim.is_tested and not claim.depends
    ][:6]
    verdicts = [Verdict.ERROR, Verdict.FAIL, Verdict.NOTE, Verdict.FAIL, Verdict.VACUOUS, Verdict.FAIL]
    made = a_report("mine", dict(zip(claims, verdicts, strict=True)))
    lines = "\n".join(summary_lines(made, 200))
    page = to_html([to_json(made)])
    broken_claims = [slug for slug, v in zip(claims, verdicts, strict=True) if v is not Verdict.NOTE]
    by_line = sorted(broken_claims, key=lambda slug: re.search(rf"^[A-Z]+ {slug}$", lines, re.MULTILINE).start())
    assert by_line == sorted(broken_claims, key=lambda slug: page.index(f'id="{slug}"'))
    assert [dict(zip(claims, verdicts, strict=True))[slug] for slug in by_line] == sorted(
        (v for v in verdicts if v is not Verdict.NOTE), key=ORDER.index
    )


def test_the_terminal_tells_a_failure_in_the_order_in_which_it_is_mended():
    made = a_report("mine", {SCALED: replace(FAILED, untested=["generate() raised ValueError"])})
    lines = summary_lines(made, 60)
    assert lines[0] == "NOT TESTED: generate() raised ValueError"
    assert lines[1] == f"FAIL {FAILED.diagnosis}"
    assert [line[4:12].strip() for line in lines[2:-1]] == [
        "at", "mend", "expected", "got", "", "", "", "", "example", "claim", "source", "replay",
    ]  # fmt: skip
    assert f"    claim     {SCALED}: Scores are divided by" in lines[-4]


def test_the_page_shows_claims_that_only_one_implementation_was_asked_about():
    page = to_html([report("one", {SCALED: Verdict.PASS}), report("two", {POSITIONS: Verdict.PASS})])
    assert f'id="{SCALED}" data-verdicts="PASS|-"' in page
    assert f'id="{POSITIONS}" data-verdicts="-|PASS"' in page


def test_a_failure_is_told_in_full_where_it_just_fits():
    made = a_report("mine", {SCALED: FAILED})
    whole = summary_lines(made, 60)
    assert summary_lines(made, len(whole)) == whole
    assert len(summary_lines(made, len(whole) - 1)) < len(whole)
