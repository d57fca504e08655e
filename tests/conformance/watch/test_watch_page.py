"""docs/tutorials/too-well.md: its script fails as the page shows, at the line that it names, and passes once mended."""

import re
import runpy
from pathlib import Path

import pytest

pytest.importorskip("torch")

from conformance.mutated import run_of
from conformance.summary import broken_lines
from conformance.verdict import Verdict
from conformance.watch.verdicts import report_of, results_of

PAGE = (Path(__file__).parents[3] / "docs" / "tutorials" / "too-well.md").read_text(encoding="utf-8")
SCRIPT, ASKING = re.findall(r"^```python\n(.+?)^```", PAGE, re.MULTILINE | re.DOTALL)


def failures(text):
    results = results_of(run_of(text, "reverse.py").run)
    report = report_of("reverse.py", "conformance watch reverse.py", results)
    return [line for r in results.values() if r.verdict is Verdict.FAIL for line in broken_lines(report, r)]


def test_the_script_fails_as_the_page_shows():
    [shown] = re.findall(r"^FAIL .*\n(?: {4}.+\n)+", PAGE, re.MULTILINE)
    told = [re.sub(r"(at |and)       .*/reverse", r"\1       reverse", line) for line in failures(SCRIPT)]
    assert told == shown.splitlines()


def test_the_mended_script_breaks_nothing():
    assert failures(mended()) == []


def mended():
    wrong, right = re.findall(r"^[-+](    logits.*\n)", PAGE, re.MULTILINE)
    assert SCRIPT.count(wrong) == 1
    return SCRIPT.replace(wrong, right)


@pytest.mark.slow
def test_the_mended_script_keeps_as_many_claims_as_the_page_says():
    results = results_of(run_of(mended(), "reverse.py", steps=200).run).values()
    [kept] = re.findall(r"^(\d+) of \1 claims kept", PAGE, re.MULTILINE)
    assert sum(r.verdict is Verdict.PASS for r in results) == int(kept)


@pytest.mark.slow
@pytest.mark.parametrize("is_mended", [False, True])
def test_the_script_prints_and_translates_as_the_page_says(is_mended, tmp_path, capsys):
    path = tmp_path / "reverse.py"
    path.write_text((mended() if is_mended else SCRIPT) + ASKING)
    runpy.run_path(str(path), run_name="__main__")
    *losses, words = capsys.readouterr().out.splitlines()
    shown = re.findall(r"^\$ python reverse.py\n((?:\d.*\n)+)", PAGE, re.MULTILINE)[is_mended].splitlines()
    assert [line.split()[0] for line in losses] == [line.split()[0] for line in shown]
    for told, printed in zip(losses, shown, strict=True):
        assert float(told.split()[1]) == pytest.approx(float(printed.split()[1]), abs=0.3)
    share = float(re.findall(r"`right words: (.+?)`", PAGE)[is_mended])
    assert float(words.rpartition(" ")[2]) == pytest.approx(share, abs=0.1)
