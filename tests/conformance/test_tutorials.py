"""The tutorials' own steps: each model fails as its page shows, at the line that it names, and passes once mended."""

from __future__ import annotations

import importlib.util
import re
import sys

import pytest
from slow import slow_but

import conformance
from tools.tutorials import COLUMNS, DOCS, LINES, PAGES, Tutorial

pytest.importorskip("torch")
pytest_plugins = ["pytester"]

ALL = [DOCS / "tutorial.md", *PAGES]
"""The first one belongs to the tests that run each time."""


@pytest.fixture(params=slow_but(ALL, lambda page: page is ALL[0]), ids=[page.stem for page in ALL])
def tutorial(request):
    return Tutorial(request.param.read_text(encoding="utf-8"))


def rough(line):
    """A line with two digits of each number: the others may be another processor's rounding."""
    return re.sub(r"\d+\.\d+(e-\d+)?", lambda number: f"{float(number[0]):.2g}", line)


def test_the_mistake_fails_as_its_page_shows(tutorial, pytester, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.setenv("LINES", str(LINES))
    pytester.path.joinpath(tutorial.pointed[0]).write_text(tutorial.code, encoding="utf-8")
    asked = [word for word in tutorial.command[1:] if word not in ("--claims-report", "before.json")]
    ran = pytester.runpytest_inprocess(*asked, "-p", "no:cacheprovider", "--claims", tutorial.claim)
    printed = set(map(rough, ran.outlines))
    for line in tutorial.failure.splitlines():
        assert rough(line.partition("  (explains")[0]) in printed


def test_the_mended_model_passes(tutorial, tmp_path, monkeypatch):
    name, cls = tutorial.pointed
    file = tmp_path / f"mended_{name}"
    file.write_text(tutorial.mended, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, file.stem, module)
    spec.loader.exec_module(module)
    report = conformance.check(getattr(module, cls), claims=tutorial.claim)
    assert "1 of 1 claims kept: 1 PASS" in str(report)


@pytest.mark.deep
def test_the_mended_model_keeps_every_claim(tutorial, pytester):
    pytester.path.joinpath(tutorial.pointed[0]).write_text(tutorial.mended, encoding="utf-8")
    ran = pytester.runpytest_subprocess(*tutorial.command[1:], "-p", "no:cacheprovider")
    assert ran.ret == 0
    ran.stdout.fnmatch_lines(["*claims kept: *PASS, 0 FAIL*"])


RUN = """
s.F [100%]
=== claims: m.py:M ===
FAIL It leaks.
    at  m.py:1
NOTE (1, none of them a failure):
    a window
M as language_model
  call: ids
1 of 2 claims kept: 1 PASS, 1 FAIL
=== 1 failed ===
"""


def test_outputs_are_put_into_a_page():
    block = "```text\n$ pytest --impl m.py:M\nold\n```\n"
    page = f"Text.\n\n{block}\nMore.\n\n{block}End.\n"
    text = Tutorial(page).with_outputs(RUN, RUN.replace("FAIL It leaks.\n    at  m.py:1\n", ""))
    first, second = re.findall(r"^```text\n(.+?)^```", text, re.MULTILINE | re.DOTALL)
    assert first == "$ pytest --impl m.py:M\n...\n" + RUN.partition("[100%]\n")[2]
    assert second == (
        "$ pytest --impl m.py:M\n...\n=== claims: m.py:M ===\nNOTE (1, none of them a failure):\n    a window\n...\n"
        "1 of 2 claims kept: 1 PASS, 1 FAIL\n=== 1 failed ===\n"
    )
    assert (text.startswith("Text."), text.endswith("\nEnd.\n")) == (True, True)
    with pytest.raises(ValueError, match="tested nothing"):
        Tutorial(page).with_outputs("ERROR: no such file", RUN)


def test_every_page_is_what_the_program_would_write():
    """But for the numbers of claims, which grow, and seconds."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        first, second = re.findall(r"^```text\n(.+?)^```", text, re.MULTILINE | re.DOTALL)
        assert Tutorial(text).with_outputs(first, second.replace("\n...\n=", "\n=", 1)) == text


def test_a_diff_that_fits_nothing_is_refused():
    with pytest.raises(ValueError, match="not in the file"):
        _ = Tutorial("```python\nx = 1\n```\n```diff\n-x = 2\n+x = 3\n```\n").mended
