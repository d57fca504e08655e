"""One entry, run as a user would run it, in a process of its own; and whether the suite reached it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import conformance.checks  # noqa: F401  (registers the checks)
from conformance.adapters.inference.facts import roles_in
from conformance.adapters.whole.names import families_of
from conformance.check import CHECKS
from tools.zoo.syntax import Checkout
from tools.zoo.table import Entry, Repository

ROOT = Path(__file__).parents[2]
CORE = Path(__file__).parents[1] / "zoo_core.toml"
PACKAGES = ".packages/site-packages"
"""The folder of the sources in which pip installs what the repositories import: named so that it is known for that."""

UNTESTED = {"NOT PROVIDED", "VACUOUS", "ERROR"}
BROKEN = {"FAIL", "ERROR"}
USAGE_ERROR, NOTHING_TESTED = 4, 5
"""Exit codes of pytest with the suite."""


OFFLINE = re.compile(
    r"importing it raised .*(connect to|Connection ?(error|refused)|Max retries|name resolution|URLError)",
    re.IGNORECASE,
)
"""The suite's words about a file whose import asks the network for something, such as a tokenizer."""


@dataclass
class Outcome:
    """What came of an entry, a line of the results.

    why: why it was not reached, empty when it was. said: what the suite said when it refused. missing: what it imports
    and what cannot be had here: packages, for which it was not run, or the network. broken: the claims that ended FAIL
    or ERROR; known: those of them that are right by the table as it is when the results are read, so no part of the
    line.
    """

    repository: str
    commit: str
    part: str
    impl: str
    kind: str
    reached: bool = False
    why: str = ""
    said: str = ""
    missing: list[str] = field(default_factory=list)
    roles: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def whole(self) -> bool:
        return self.kind not in ("component", "function")

    def line(self) -> str:
        return json.dumps({name: value for name, value in asdict(self).items() if name != "known"})


def core_claims(path: Path = CORE) -> dict[str, Any]:
    """Under "kind", "role" and "family": kind of whole model, role, or what a run shows -> what it takes ("always",
    "mask", "cache") -> claims; under "module" those of any running component.

    Raises ValueError for a claim without a check.
    """
    tables: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    named = [item for part in ("kind", "role", "family") for item in tables[part].items()]
    for name, table in [*named, ("module", tables["module"])]:
        if unknown := {claim for claims in table.values() for claim in claims} - set(CHECKS):
            raise ValueError(f"{path.name}, {name}: no check has the name {', '.join(sorted(unknown))}")
    return tables


def why_not(entry: Entry, report: Mapping[str, Any], core: Mapping[str, Any]) -> str:
    """Why the run of a report did not reach the entry; empty when it did.

    Reached: the suite says of nothing that it was untested, the core claims of a whole model's kind or of a component
    were decided, and less than a third of all claims that apply to a component is untested. A component is tested in
    the roles that were found, or by a run of it that shows what its name says. A whole model is of the kind that the
    suite takes it for.
    """
    verdicts = {claim["slug"]: claim["verdict"] for claim in report["claims"]}
    if report["kind"]:
        return why_no_model(entry, report, core["kind"][report["kind"]], verdicts)
    if entry.whole:
        return next(iter(report["untested"]), "the suite does not take it for a whole model")
    if report["untested"]:
        return str(report["untested"][0])
    unrun = why_no_run(entry, core, verdicts)
    return unrun and (why_no_roles(report, entry, core, verdicts) if roles_in(report["notes"]) else unrun)


def why_no_roles(report: Mapping[str, Any], entry: Entry, core: Mapping[str, Any], verdicts: Mapping[str, str]) -> str:
    """Why a component was not reached in the roles that it plays; empty when it was."""
    roles = roles_in(report["notes"])
    tables = [core["role"].get(role, {}) for role in roles]
    wanted = {claim for table in tables for when in ("always", *entry.takes) for claim in table.get(when, ())}
    return _open(wanted, verdicts) or _too_few(
        wanted | {claim for claim in verdicts if claim in CHECKS and {*CHECKS[claim].roles} <= {*roles}}, verdicts
    )


def why_no_run(entry: Entry, core: Mapping[str, Any], verdicts: Mapping[str, str]) -> str:
    """Why a component was not reached by a run of it; empty when the run showed what its name says, and was judged."""
    seen = {family for family, table in core["family"].items() if not _open(table["always"], verdicts)}
    named = families_of(entry.entry)
    if not seen & named:
        return f"neither a role nor a run of it was tested: its run shows no {' or '.join(sorted(named))}"
    always = core["module"]["always"]
    return _open(core["module"]["core"], verdicts) or _too_few(
        {*always, *(claim for family in seen for claim in core["family"][family]["always"])}, verdicts
    )


def _open(claims: Iterable[str], verdicts: Mapping[str, str]) -> str:
    open_ = sorted(claim for claim in claims if verdicts.get(claim, "NOT PROVIDED") in UNTESTED)
    return f"core claims untested: {', '.join(open_)}" if open_ else ""


def _too_few(applies: Collection[str], verdicts: Mapping[str, str]) -> str:
    untested = sum(verdicts.get(claim, "NOT PROVIDED") in UNTESTED for claim in applies)
    if 3 * untested >= len(applies):
        return f"a third or more untested: {untested} of the {len(applies)} claims that apply"
    return ""


def why_no_model(
    entry: Entry, report: Mapping[str, Any], wanted: Mapping[str, Any], verdicts: Mapping[str, str]
) -> str:
    """Why a whole model was not reached: a core claim is open, or the suite itself says that something is untested."""
    slugs = {claim for when in ("always", *entry.takes) for claim in wanted.get(when, ())}
    return _open(slugs, verdicts) or next(iter(report["untested"]), "")


def environment(sources: Path) -> dict[str, str]:
    """For a user's shell with the suite and the repositories' packages; one thread, for two run at a time."""
    places = [str(ROOT), str((sources / PACKAGES).resolve()), os.environ.get("PYTHONPATH", "")]
    changed = {"PYTHONPATH": os.pathsep.join(filter(None, places)), "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
    return {**os.environ, **changed}


@cache
def importable(package: str, sources: Path) -> bool:
    command = [sys.executable, "-c", f"import {package}"]
    with tempfile.TemporaryDirectory() as empty:
        ran = subprocess.run(command, cwd=empty, env=environment(sources), capture_output=True, check=False)
    return ran.returncode == 0


@cache
def checkout(folder: Path) -> Checkout:
    return Checkout(folder)


def finished(command: list[str], folder: Path, env: Mapping[str, str], limit: float) -> tuple[int | None, str]:
    """(exit code, or None when its time was over, what it wrote); nothing of it runs on."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        written, _ = process.communicate(timeout=limit)
        return process.returncode, written
    except subprocess.TimeoutExpired:
        return None, ""
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def refusal(written: str) -> str:
    """The suite's own words in what a refused run wrote: pytest's ERROR line, else the last line."""
    lines = [line.strip() for line in written.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("ERROR:")]
    return " ".join((told or lines or ["it wrote nothing"])[-1].split())[:400]


def run(
    entry: Entry, repository: Repository, sources: Path, core: Mapping[str, Any], budget: str, limit: float
) -> Outcome:
    """Run the suite on an entry with zero code. Of a sealed repository only verdicts are kept, no words on its code."""
    folder = repository.folder(sources)
    outcome = Outcome(repository.name, repository.commit, repository.part, entry.impl, entry.kind)
    packages = checkout(folder).packages(entry.path)
    outcome.missing = sorted(package for package in packages if not importable(package, sources))
    if outcome.missing:
        outcome.why = "what it imports cannot be imported on this machine"
        return outcome
    with tempfile.TemporaryDirectory() as place:
        target = Path(place) / "report.json"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "--pyargs",
            "conformance",
            "--impl",
            entry.impl,
            "-q",
            "-o",
            "addopts=",
        ]
        command += ["-p", "no:cacheprovider", "--claims-report", str(target), "--claims-budget", budget]
        began = time.perf_counter()
        code, written = finished(command, folder, environment(sources), limit)
        outcome.seconds = round(time.perf_counter() - began, 2)
        report = json.loads(target.read_text(encoding="utf-8")) if target.is_file() else None
    if report is not None:
        outcome.counts = {verdict: n for verdict, n in report["counts"].items() if n}
        outcome.roles = list(roles_in(report["notes"]))
        outcome.broken = sorted(claim["slug"] for claim in report["claims"] if claim["verdict"] in BROKEN)
    if code is None:
        outcome.why = f"it ran longer than {limit:.0f} s"
    elif code == USAGE_ERROR or report is None:
        outcome.why = "the suite refused it" if code == USAGE_ERROR else f"no report came of it (exit code {code})"
        outcome.said = "" if repository.part == "sealed" else refusal(written)
        outcome.missing = ["the network"] if OFFLINE.search(refusal(written)) else []
    elif code == NOTHING_TESTED:
        outcome.why = "nothing was tested"
    else:
        outcome.why = why_not(entry, report, core)
    outcome.reached = not outcome.why
    return outcome
