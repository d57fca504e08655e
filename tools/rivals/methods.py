"""The methods: how each is run on one file, in a process of its own with a limit of time, and what it said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

from conformance.places import file_and_line
from tools.rivals.cases import SUBJECT, Case
from tools.zoo.trial import ROOT, USAGE_ERROR, finished, refusal

SUITE, TORCH, PANGOLINN, PLAIN = "conformance", "pytest-torch", "pangolinn", "plain properties"
METHODS = (SUITE, TORCH, PANGOLINN, PLAIN)
RIVALS = METHODS[1:]
PACKAGES = {TORCH: ("pytest_torch", "1.1.1"), PANGOLINN: ("pangolinn", "0.0.1")}
"""Method -> its module, and the version that is measured."""

_NOTHING_APPLIES = 5
_HERE = Path(__file__).parent


@dataclass
class Said:
    """What a method said of a file.

    failed, noted: name of a check -> its words. unexplained: what fails in the suite without a diagnosis. errors: the
    checks that broke, with what was raised. raised: why it could not judge at all, such as an exception or its time.
    untested: what it says that it did not test. at: the lines that it names.
    """

    failed: dict[str, str] = field(default_factory=dict)
    unexplained: dict[str, str] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    noted: dict[str, str] = field(default_factory=dict)
    raised: str = ""
    untested: list[str] = field(default_factory=list)
    at: list[int] = field(default_factory=list)
    seconds: float = 0.0


def said_of(method: str, case: Case, python: str, limit: float) -> Said:
    """Run a method on a case. python: the interpreter that has the rivals."""
    run = {SUITE: _suite, TORCH: _pytest_torch, PANGOLINN: _pangolinn, PLAIN: _plain}[method]
    with case.alone() as file, TemporaryDirectory() as scratch:
        began = time.perf_counter()
        said = run(case, file, Path(scratch), python, limit)
        said.seconds = round(time.perf_counter() - began, 2)
        said.untested = [_without(text, file.parent) for text in said.untested]
        for words in (said.failed, said.unexplained, said.errors, said.noted):
            words |= {name: _without(text, file.parent) for name, text in words.items()}
        said.raised = _without(said.raised, file.parent)
    return said


def missing(method: str, python: str) -> str:
    """Why a method cannot run with this interpreter, in a sentence; empty when it can."""
    if method not in PACKAGES:
        return ""
    module, version = PACKAGES[method]
    code = f"import {module}, importlib.metadata as m; print(m.version({method!r}))"
    try:
        asked = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False, env=_environment())
    except OSError as error:
        return f"{method} is left out: {python} cannot be run: {error.strerror}."
    if asked.returncode:
        return f"{method} is left out: {python} cannot import it; install {method}=={version} there, beside torch."
    if (found := asked.stdout.strip()) != version:
        return f"{method} is left out: {python} has {found}, and {version} is what is measured."
    return ""


def _without(text: str, folder: Path) -> str:
    """The text without the folder of the copy, whose name is new each time; as one line."""
    return " ".join(text.replace(f"{folder}{os.sep}", "").split())[:400]


def _environment(**more: str) -> dict[str, str]:
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", **more}


def _too_long(limit: float) -> Said:
    return Said(raised=f"it ran longer than {limit:.0f} s")


# --- the suite, with zero code --------------------------------------------------------------------


def _suite(case: Case, file: Path, scratch: Path, python: str, limit: float) -> Said:
    target = scratch / "report.json"
    command = [sys.executable, "-m", "pytest", "--pyargs", "conformance", "--impl", f"model.py:{case.entry}", "-q"]
    command += ["-p", "no:cacheprovider", "--claims-budget", "quick", "--claims-report", str(target)]
    code, written = finished(command, file.parent, _environment(), limit)
    if code is None:
        return _too_long(limit)
    if code == USAGE_ERROR or not target.is_file():
        return Said(raised=refusal(written))
    return of_report(json.loads(target.read_text(encoding="utf-8")))


def of_report(report: Mapping[str, object]) -> Said:
    """What a report of the suite says."""
    said = Said(untested=list(report["untested"]))  # type: ignore[call-overload]
    for claim in report["claims"]:  # type: ignore[attr-defined]
        seen = f"{claim['what']}: {claim['message'] or claim['got']}"
        if claim["verdict"] == "FAIL" and claim["diagnosis"]:
            said.failed[claim["slug"]] = claim["diagnosis"]
            if found := file_and_line(claim["place"]):
                said.at.append(found[1])
        elif claim["verdict"] in ("FAIL", "VACUOUS"):
            said.unexplained[claim["slug"]] = seen
        elif claim["verdict"] == "NOTE":
            said.noted[claim["slug"]] = seen
        elif claim["verdict"] == "ERROR":
            said.errors[claim["slug"]] = claim["message"]
    return said


# --- the rivals -----------------------------------------------------------------------------------


def _pytest_torch(case: Case, file: Path, scratch: Path, python: str, limit: float) -> Said:
    tests = _HERE / "pytest_torch_suite.py"
    return _by_pytest(case, file, scratch, [python, str(tests), f"--torch-model={tests}:build"], limit)


def _pangolinn(case: Case, file: Path, scratch: Path, python: str, limit: float) -> Said:
    return _by_pytest(case, file, scratch, [python, str(_HERE / "pangolinn_suite.py")], limit)


def _by_pytest(case: Case, file: Path, scratch: Path, asked: list[str], limit: float) -> Said:
    """What tests under pytest say: a failed test is a find, an error outside of one is not."""
    python, *options = asked
    results, settings = scratch / "results.xml", scratch / "pytest.ini"
    settings.write_text("[pytest]\n", encoding="utf-8")
    command = [python, "-m", "pytest", "-q", "-p", "no:conformance", "-p", "no:cacheprovider", *options]
    command += ["-c", str(settings), "--rootdir", str(scratch), f"--junitxml={results}"]
    environment = _environment(**{SUBJECT: f"{file}:{case.make} {case.kind}"})
    code, written = finished(command, scratch, environment, limit)
    if code is None:
        return _too_long(limit)
    if code == _NOTHING_APPLIES:
        return Said(untested=["none of its tests applies"])
    if not results.is_file():
        return Said(raised=refusal(written))
    return of_junit(results.read_text(encoding="utf-8"))


def of_junit(text: str) -> Said:
    """What a JUnit file says; where the tests could not be read, or the model not be built, only that."""
    said = Said()
    for test in ElementTree.fromstring(text).iter("testcase"):
        name = test.get("name", "").partition("[")[0]
        for outcome in test:
            words = (outcome.get("message") or "").strip()
            if words in ("", "collection failure"):
                words = next((line for line in reversed((outcome.text or "").splitlines()) if line.strip()), "")
            if outcome.tag in ("error", "failure") and name in ("", "test_builds"):
                return Said(raised=words)
            if outcome.tag == "error":
                said.errors[name] = words
            elif outcome.tag == "failure":
                said.failed[name] = words
    return said


def _plain(case: Case, file: Path, scratch: Path, python: str, limit: float) -> Said:
    found = scratch / "found.json"
    command = [sys.executable, "-m", "tools.rivals.plain", f"{file}:{case.make}", case.kind, str(found)]
    code, written = finished(command, scratch, _environment(), limit)
    if code is None:
        return _too_long(limit)
    if not found.is_file():
        return Said(raised=refusal(written))
    return Said(failed={name: wrong for name, wrong in json.loads(found.read_text("utf-8")).items() if wrong})
