"""The gallery: each mistake is one edit of a right model, and the page shows what the suite says of it."""

from __future__ import annotations

import ast
import re

import pytest

from tools.gallery import PAGE, first_failure, mistakes, page, run_suite, says, section

pytest.importorskip("torch")

ALL = mistakes()
IN_CI = ("A gradient that is cut", "Padding of the source is read by the decoder")
TEXT = PAGE.read_text(encoding="utf-8")


def shown(mistake):
    """The page's part about a mistake."""
    (part,) = re.findall(rf"^## {re.escape(mistake.title)}\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    return part


@pytest.mark.parametrize("mistake", ALL, ids=lambda mistake: mistake.title)
def test_each_mistake_is_an_edit_that_still_is_python_and_has_its_place_on_the_page(mistake):
    ast.parse(mistake.code)
    assert mistake.code.splitlines()[mistake.line - 1] != mistake.tutorial.mended.splitlines()[mistake.line - 1]
    part = shown(mistake)
    assert f"`{mistake.tutorial.pointed[0]}`, line {mistake.line}:" in part
    assert mistake.why in part
    assert f"+{mistake.wrong.strip()}" in part


def test_the_page_has_its_mistakes_in_the_order_of_the_list_and_counts_them():
    assert re.findall(r"^## (.*)$", TEXT, re.MULTILINE) == [mistake.title for mistake in ALL]
    assert f"It fails {TEXT.count('FAIL ')} of the {len(ALL)} mistakes." in TEXT


@pytest.mark.slow
@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(mistake, marks=[] if mistake.title in IN_CI else [pytest.mark.deep], id=mistake.title)
        for mistake in ALL
        if "claim     " in shown(mistake)
    ],
)
def test_the_suite_says_what_the_page_shows(mistake):
    part = shown(mistake)
    (claim,) = re.findall(r"^    claim     (.*)$", part, re.MULTILINE)
    found = first_failure(run_suite(mistake, [claim]))
    assert found is not None
    assert found["slug"] == claim
    assert f"FAIL {says(found)}\n" in part
    assert f"    at        {found['place']}\n" in part


def test_a_line_that_is_not_there_once_is_refused():
    from dataclasses import replace

    with pytest.raises(ValueError, match="the line is 0 times in gpt"):
        _ = replace(ALL[0], right="no such line").code


def test_a_mistake_that_is_not_failed_is_said_to_be():
    text = page([(ALL[0], None)])
    assert "It fails 0 of the 1 mistakes." in text
    assert "**The suite does not fail it.**" in section(ALL[0], None)
