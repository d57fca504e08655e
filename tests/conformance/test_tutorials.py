"""The tutorials' own steps: each model fails as its page shows, at the line that it names, and passes once mended.

A page holds the file as blocks of Python, the command, what it prints, and the mend as a diff.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import conformance

pytest.importorskip("torch")
pytest_plugins = ["pytester"]

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "tutorial.md", *sorted((DOCS / "tutorials").glob("*.md"))]


@dataclass(frozen=True)
class Tutorial:
    """A page. code: its file with the mistake. command: the first one. failure: what it prints of the mistake."""

    text: str

    @property
    def code(self):
        return "\n\n".join(re.findall(r"^```python\n(.+?)^```", self.text, re.MULTILINE | re.DOTALL))

    @property
    def mended(self):
        (diff,) = re.findall(r"^```diff\n(.+?)^```", self.text, re.MULTILINE | re.DOTALL)
        wrong, right = (
            "".join(f"{line}\n" for line in re.findall(rf"^\{sign}(.*)$", diff, re.MULTILINE)) for sign in "-+"
        )
        assert self.code.count(wrong) == 1
        return self.code.replace(wrong, right)

    @property
    def command(self):
        return shlex.split(re.findall(r"^\$ (pytest .+)$", self.text, re.MULTILINE)[0])

    @property
    def file(self):
        return self.pointed[0]

    @property
    def pointed(self):
        """The file and the class that --impl names."""
        return self.command[self.command.index("--impl") + 1].split(":")

    @property
    def failure(self):
        (failure,) = re.findall(r"^FAIL .*\n(?: {4}.+\n)+", self.text, re.MULTILINE)
        return failure

    @property
    def claim(self):
        (claim,) = re.findall(r"^    claim +([a-z0-9-]+): ", self.failure, re.MULTILINE)
        return claim


@pytest.fixture(params=PAGES, ids=[page.stem for page in PAGES])
def tutorial(request):
    return Tutorial(request.param.read_text(encoding="utf-8"))


def rough(line):
    """A line with two digits of each number: the others may be another processor's rounding."""
    return re.sub(r"\d+\.\d+(e-\d+)?", lambda number: f"{float(number[0]):.2g}", line)


def test_the_mistake_fails_as_its_page_shows(tutorial, pytester, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("LINES", "60")  # room for the failure in full
    pytester.path.joinpath(tutorial.file).write_text(tutorial.code, encoding="utf-8")
    asked = [word for word in tutorial.command[1:] if word not in ("--claims-report", "before.json")]
    ran = pytester.runpytest_subprocess(*asked, "-p", "no:cacheprovider", "--claims", tutorial.claim)
    printed = set(map(rough, ran.outlines))
    for line in tutorial.failure.splitlines():
        assert rough(line.partition("  (explains")[0]) in printed


def test_the_mended_model_passes(tutorial, tmp_path, monkeypatch):
    file = tmp_path / f"mended_{tutorial.file}"
    file.write_text(tutorial.mended, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, file.stem, module)
    spec.loader.exec_module(module)
    report = conformance.check(getattr(module, tutorial.pointed[1]), claims=tutorial.claim)
    assert "1 of 1 claims kept: 1 PASS" in str(report)


@pytest.mark.deep
def test_the_mended_model_keeps_every_claim(tutorial, pytester):
    pytester.path.joinpath(tutorial.file).write_text(tutorial.mended, encoding="utf-8")
    ran = pytester.runpytest_subprocess(*tutorial.command[1:], "-p", "no:cacheprovider")
    assert ran.ret == 0
    ran.stdout.fnmatch_lines(["*claims kept: *PASS, 0 FAIL*"])
