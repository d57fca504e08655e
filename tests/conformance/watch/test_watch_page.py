"""docs/watch.md: its script fails as the page shows, at the line that it names, and passes once mended."""

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from conformance.mutants.training_runs import run_of
from conformance.summary import broken_lines
from conformance.verdict import Verdict
from conformance.watch.verdicts import report_of, results_of

PAGE = (Path(__file__).parents[3] / "docs" / "watch.md").read_text(encoding="utf-8")
[SCRIPT] = [block for block in re.findall(r"^```python\n(.+?)^```", PAGE, re.MULTILINE | re.DOTALL) if "class" in block]


def failures(text):
    results = results_of(run_of(text, "reverse.py").run)
    report = report_of("reverse.py", "conformance watch reverse.py", results)
    return [line for r in results.values() if r.verdict is Verdict.FAIL for line in broken_lines(report, r)]


def test_the_script_fails_as_the_page_shows():
    [shown] = re.findall(r"^FAIL .*\n(?: {4}.+\n)+", PAGE, re.MULTILINE)
    told = [re.sub(r"(at |and)       .*/reverse", r"\1       reverse", line) for line in failures(SCRIPT)]
    assert told == shown.splitlines()


def test_the_mended_script_breaks_nothing():
    wrong, right = re.findall(r"^[-+](    logits.*\n)", PAGE, re.MULTILINE)
    assert SCRIPT.count(wrong) == 1
    assert failures(SCRIPT.replace(wrong, right)) == []
