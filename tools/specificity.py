"""Run the suite on correct implementations of others: `python -m tools.specificity [NAME ...] [--markdown FILE]`.

A correct implementation must break no claim. Each is installed with pip, without torch, into a folder of its own
below `--cache`, and runs in a process of its own that sees only that folder; none of its code is kept here. What is
run is the table `IMPLEMENTATIONS` of `tools/specificity.toml`. Printed is a row for each: its roles, how it was
mapped, and the counts of verdicts; then the smallest example of each failure.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

import conformance.checks  # noqa: F401  (registers the checks)
from conformance import catalogue
from conformance.adapters import SpecificationError
from conformance.adapters.inference.facts import roles_in
from conformance.check import CHECKS
from conformance.roots import fold
from conformance.supervisor import Supervisor
from conformance.verdict import BROKEN, Result, Verdict

TABLE = Path(__file__).with_suffix(".toml")

_STAND_IN = '''"""Stands in for packages that an implementation imports and does not need: {names}."""
import importlib.machinery, sys
from unittest.mock import MagicMock

class _Module(MagicMock):
    __path__ = []
    __version__ = "0"

class _Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
    def create_module(self, spec):
        module = _Module(name=spec.name)
        module.__name__, module.__spec__ = spec.name, spec
        return module
    def exec_module(self, module):
        pass

sys.meta_path.append(_Finder())
'''


@dataclass(frozen=True)
class Subject:
    """One row of the table: `impl` is an `--impl` specification, `install` what pip installs for it.

    has: the roles that a whole model has, of which those that run are counted. version: the first requirement's.
    """

    name: str
    impl: str
    install: tuple[str, ...] = ()
    dependencies: bool = False
    stand_ins: tuple[str, ...] = ()
    has: tuple[str, ...] = ()
    faults: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Row:
    """What came of a subject. mapping: 'built in', 'inferred', or why it could not be."""

    subject: Subject
    version: str = ""
    roles: tuple[str, ...] = ()
    mapping: str = ""
    results: dict[str, Result] = field(default_factory=dict)

    @property
    def broken(self) -> list[Result]:
        return [result for result in self.results.values() if result.verdict in BROKEN]

    def count(self, verdict: Verdict) -> int:
        return Counter(result.verdict for result in self.results.values())[verdict]


def subjects(path: Path = TABLE) -> list[Subject]:
    """The table's rows; an `[[environment]]` names what is installed together for its implementations."""
    rows = []
    for environment in tomllib.loads(path.read_text(encoding="utf-8"))["environment"]:
        shared: dict[str, Any] = {
            "install": tuple(environment.get("install", ())),
            "dependencies": environment.get("dependencies", False),
            "stand_ins": tuple(environment.get("stand_ins", ())),
        }
        for row in environment["implementation"]:
            rows.append(
                Subject(
                    f"{environment['name']}: {row['impl'].rpartition('.')[2]}",
                    row["impl"],
                    has=tuple(row.get("has", ())),
                    faults=row.get("faults", {}),
                    **shared,
                )
            )
    return rows


def installed(subject: Subject, cache: Path) -> Path | None:
    """The folder with what the subject needs, installed unless it is there; None when it needs nothing.

    Raises RuntimeError with pip's last line.
    """
    if not subject.install:
        return None
    folder = cache / subject.install[0].partition("=")[0]
    done = folder / ".installed"
    wanted = "\n".join([*subject.install, *subject.stand_ins])
    if not (done.is_file() and done.read_text() == wanted):
        command = [sys.executable, "-m", "pip", "install", "-q", "--upgrade", "--target", str(folder), *subject.install]
        ran = subprocess.run(
            command if subject.dependencies else [*command, "--no-deps"], capture_output=True, text=True, check=False
        )
        if ran.returncode:
            raise RuntimeError((ran.stderr.strip().splitlines() or ["pip failed"])[-1])
        if subject.stand_ins:
            (folder / "sitecustomize.py").write_text(_STAND_IN.format(names=subject.stand_ins))
        done.write_text(wanted)
    return folder


def version_of(subject: Subject, folder: Path | None) -> str:
    if folder is None:
        import torch

        return str(torch.__version__)
    name = subject.install[0].partition("=")[0].replace("-", "_").lower()
    found = [path.name for path in folder.glob("*.dist-info") if path.name.lower().startswith(f"{name}-")]
    return found[0].removesuffix(".dist-info").rpartition("-")[2] if found else ""


def run(subject: Subject, cache: Path, budget: str) -> Row:
    """Run the claims of the roles that the subject plays."""
    row = Row(subject)
    try:
        folder = installed(subject, cache)
    except RuntimeError as error:
        row.mapping = f"not installed: {error}"
        return row
    row.version = version_of(subject, folder)
    os.environ["PYTHONPATH"] = str(folder or "")
    try:
        with Supervisor(subject.impl, budget=budget, children=1) as supervisor:
            first = next(iter(CHECKS))
            supervisor.submit([first])
            told = supervisor.result(first).notes
            row.roles = roles_in(told)
            claims = [claim for claim, check in CHECKS.items() if not told or set(row.roles) & set(check.roles)]
            supervisor.submit([claim for claim in claims if claim != first])
            results = {claim: supervisor.result(claim) for claim in claims}
    except SpecificationError as error:
        row.mapping = str(error).split(": ", 2)[-1]
        return row
    row.results = fold(results, catalogue.load())
    row.mapping = "inferred" if told else "built in"
    return row


def table(rows: Sequence[Row]) -> str:
    """The rows as a Markdown table."""
    lines = ["| implementation | version | roles | mapping | PASS | FAIL | ERROR | NOT PROVIDED |"]
    lines.append("|---|---|---|---|---:|---:|---:|---:|")
    for row in rows:
        failing = sum(r.verdict in BROKEN and r.verdict is not Verdict.ERROR for r in row.results.values())
        roles = ", ".join(row.roles) or ("all that torch has" if row.mapping == "built in" else "-")
        if row.subject.has:
            kept = [role for role in row.subject.has if role in row.roles]
            roles += f" ({len(kept)} of the {len(row.subject.has)} that it has)"
        counts = [row.count(Verdict.PASS), failing, row.count(Verdict.ERROR), row.count(Verdict.NOT_PROVIDED)]
        mapping = " ".join(row.mapping.split())[:120].replace("|", "/")
        cells = [row.subject.name, row.version, roles, mapping, *map(str, counts)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def failures(rows: Sequence[Row]) -> Iterator[str]:
    """Each failure with its smallest example, and whose fault it is where the table says so."""
    for row in rows:
        for result in row.broken:
            yield f"- **{row.subject.name}**: {result.verdict} `{result.claim}`. " + (
                result.message
                if result.verdict is Verdict.ERROR
                else f"{result.what}: expected {result.expected}, got {result.got}"
            )
            yield f"  Smallest example: {', '.join(f'{k} = {v}' for k, v in result.example.items())}."
            yield f"  {row.subject.faults.get(result.claim, 'NOT EXPLAINED.')}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when no implementation breaks a claim without an explanation in the table, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tools.specificity", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="only these implementations, by name or pattern")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "conformance-specificity")
    parser.add_argument("--budget", default="default", choices=("quick", "default", "deep"))
    parser.add_argument("--markdown", type=Path, help="write the table and the failures to this file, too")
    options = parser.parse_args(arguments)
    chosen = [
        s
        for s in subjects()
        if not options.names or any(fnmatchcase(s.name.lower(), f"*{n.lower()}*") for n in options.names)
    ]
    rows = []
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=len(chosen))
        for subject in chosen:
            progress.update(task, description=subject.name)
            rows.append(run(subject, options.cache, options.budget))
            progress.advance(task)
    text = "\n".join([table(rows), "", *failures(rows)])
    print(text)
    if options.markdown:
        options.markdown.write_text(text + "\n", encoding="utf-8")
    return int(any(result.claim not in row.subject.faults for row in rows for result in row.broken))


if __name__ == "__main__":
    sys.exit(main())
