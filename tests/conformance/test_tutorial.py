"""The tutorial's own steps: its GPT fails as its page shows, and passes once mended."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest_plugins = ["pytester"]

PAGE = (Path(__file__).parents[2] / "docs" / "tutorial.md").read_text(encoding="utf-8")
(FAILURE,) = re.findall(r"^FAIL .*\n(?: {4}.+\n)+", PAGE, re.MULTILINE)
(CLAIM,) = re.findall(r"^    claim +([a-z-]+): ", FAILURE, re.MULTILINE)
WRONG, RIGHT = re.findall(r"^scores = (.+?) +# ", PAGE, re.MULTILINE)


def rough(line):
    """A line with two digits of each number: the others may be another processor's rounding."""
    return re.sub(r"\d+\.\d+(e-\d+)?", lambda number: f"{float(number[0]):.2g}", line)


@pytest.fixture
def claims(pytester, monkeypatch):
    """Runs the claim that fails on the tutorial's page, in a folder with its gpt.py or the mended one."""
    attention, rest, *_ = re.findall(r"^```python\n(.+?)^```", PAGE, re.MULTILINE | re.DOTALL)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("LINES", "60")  # room for the failure in full

    def run(scores):
        assert attention.count(WRONG) == 1
        pytester.makepyfile(gpt=attention.replace(WRONG, scores) + "\n\n" + rest)
        options = ("-p", "no:cacheprovider", "--pyargs", "conformance", "--impl", "gpt.py:GPT", "--claims", CLAIM)
        return pytester.runpytest_subprocess(*options).outlines

    return run


def test_the_bug_of_the_tutorial_fails_as_its_page_shows(claims):
    lines = claims(WRONG)
    for line in FAILURE.splitlines():
        assert rough(line.partition("  (explains")[0]) in map(rough, lines)


def test_the_mended_model_passes(claims):
    assert "1 of 1 claims kept: 1 PASS, 0 FAIL, 0 NOT PROVIDED" in claims(RIGHT)
