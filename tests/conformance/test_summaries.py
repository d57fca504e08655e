"""What a run leaves in other people's projects: the Markdown summary, the badge, the action, the hook of pre-commit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from reports import BLOCKED, FAILED, HOSTILE, POSITIONS, SCALED, a_report, broken, kept, report

import conformance
from conformance.badge import to_badge
from conformance.markdown import SHOWN, to_markdown
from conformance.report import FORMS, to_json, write_reports
from conformance.verdict import Result, Verdict

ROOT = Path(conformance.__file__).parents[1]
NOTED = Result(POSITIONS, Verdict.NOTE, what="positions", got="none")


def test_markdown_says_what_is_wrong_where_and_how_to_mend_it():
    text = to_markdown([report("mine", {SCALED: FAILED, BLOCKED: Verdict.FAIL, POSITIONS: NOTED})])
    assert text.startswith("## mine: 1 mistake\n")
    assert "### FAIL: The scores are not divided by sqrt(d\\_k)." in text
    assert (
        "at        model.py:12\nmend      divide the scores by sqrt(d_k)\nexpected  scores: 0.5\ngot       1\n" in text
    )
    assert f"replay    pytest --claims {SCALED}" in text
    assert "It explains 1 more." in text
    assert "Notes, none of them a failure" in text
    assert "0 of 3 claims kept" in text


def test_markdown_of_a_good_run_and_of_one_that_is_not_wholly_tested():
    assert to_markdown([kept("a_b")]).startswith("## a\\_b: no mistake found\n")
    untested = {**kept("mine"), "untested": ["`forward` raised <ValueError>"]}
    text = to_markdown([untested])
    assert text.startswith("## mine: not wholly tested\n")
    assert "- **NOT TESTED:** \\`forward\\` raised &lt;ValueError&gt;" in text


def test_markdown_takes_nothing_literally_that_an_implementation_says():
    hostile = f"{HOSTILE}\n```\n[x](javascript:alert)"
    made = report(hostile, {SCALED: Result(SCALED, Verdict.FAIL, what=hostile, diagnosis=hostile, got=hostile)})
    fence, outside = "`" * 4, []
    inside = False
    for line in to_markdown([made]).splitlines():
        if line.startswith(fence):
            inside = not inside
        elif not inside:
            outside.append(line)
    assert not inside
    assert "<img" not in "\n".join(outside)
    assert "](javascript" not in "\n".join(outside).replace("\\]", "")


def test_markdown_tells_the_first_failures_in_full_and_names_the_others():
    slugs = [claim.slug for claim in a_report("mine", {}).catalogue.tested()][: SHOWN + 5]
    made = {**broken(), "claims": [{**broken()["claims"][0], "slug": slug, "verdict": "FAIL"} for slug in slugs]}
    text = to_markdown([made])
    assert text.count("### FAIL") == SHOWN
    assert f"5 more failures: `{slugs[SHOWN]}`" in text


@pytest.mark.parametrize(
    ("reports", "says", "colour"),
    [
        ([kept()], "3 kept", "#2e7d32"),
        ([kept(), broken()], "2 broken", "#c62828"),
        ([{**kept(), "untested": ["the core"]}], "not tested", "#6a6a6a"),
        ([report("absent", {SCALED: Verdict.NOT_PROVIDED})], "not tested", "#6a6a6a"),
    ],
)
def test_the_badge_says_how_many_claims_hold(reports, says, colour):
    if says == "2 broken":
        says = f"{sum(c['verdict'] in ('FAIL', 'ERROR') for r in reports for c in r['claims'])} broken"
    badge = to_badge(reports)
    root = ElementTree.fromstring(badge)
    assert root.attrib["aria-label"] == f"claims: {says}"
    assert colour in badge


def test_every_form_is_written(tmp_path):
    made = a_report("mine", {SCALED: FAILED, POSITIONS: NOTED})
    for suffix, form in FORMS.items():
        write_reports([made], tmp_path / f"run{suffix}")
        assert (tmp_path / f"run{suffix}").read_text(encoding="utf-8") == form([to_json(made)]) + "\n"


# --- the action -----------------------------------------------------------------------------------


def _script(step: str) -> str:
    """The shell script of a step of action.yml."""
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    found = re.search(rf"- name: {step}\n.*?run: \|\n((?: {{8}}.*\n|\n)+)", text, re.DOTALL)
    assert found, f"action.yml has no step {step!r} with a script"
    return textwrap.dedent(found[1])


@pytest.mark.slow
@pytest.mark.parametrize(("model", "code", "says"), [("Unscaled", 1, "1 mistake"), ("Correct", 0, "no mistake found")])
def test_the_actions_script_writes_every_report_and_ends_as_the_run_does(tmp_path, model, code, says):
    miniatures = Path(__file__).parent / "miniatures.py"
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "IMPL": f"{miniatures}:{model}",
        "CLAIMS": SCALED,
        "BUDGET": "quick",
        "ARGUMENTS": "-p no:cacheprovider",
        "REPORT": "claims-report",
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
    }
    ended = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", _script("Test the claims")],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ended.returncode == code, ended.stdout + ended.stderr
    written = sorted(path.name for path in (tmp_path / "claims-report").iterdir())
    assert written == ["claims.html", "claims.json", "claims.md", "claims.sarif", "claims.svg"]
    assert f": {says}" in (tmp_path / "summary.md").read_text()
    assert (tmp_path / "output").read_text() == f"report={tmp_path / 'claims-report'}\n"


@pytest.mark.slow
def test_the_hooks_command_is_a_run_of_the_claims(tmp_path):
    """The entry of the hook, in a project that names its model in pyproject.toml."""
    (entry,) = re.findall(r"entry: (.*)\n", (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    model = Path(__file__).parent / "miniatures.py"
    settings = f'[tool.conformance]\nimpl = "{model}:Unscaled"\nclaims = "{SCALED}"\n'
    (tmp_path / "pyproject.toml").write_text(settings)
    program, *arguments = entry.split()
    assert program == "pytest"
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ended.returncode == 1, ended.stdout + ended.stderr
    assert "0 of 1 claims kept" in ended.stdout
