"""Judge `conformance watch` on a folder of training scripts and their mutants: `python -m tools.watch_trials FOLDER`.

    FOLDER/NAME/train.py                  a script that is right, with the files that it needs beside it
    FOLDER/NAME/mutants/MUTANT/train.py   the files that are others in a mutant
    FOLDER/NAME/mutants.json              {"mutants": [{"name", "class", "file", "line", "what"}, ...]}

A class is "defect", "equivalent" or "convention". Each script runs as a user would run it: `conformance watch train.py`
in a copy of its folder, in a process of its own. What was seen of each is a line of the results file as soon as it is
known. A run that was stopped goes on where it was, and what has changed since is run again.

A mutant is caught where a claim fails that does not fail on its original, and noted where that is a note.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from conformance.places import file_and_line

ROOT = str(Path(__file__).parents[1])
SCRIPT, MUTANTS, LISTING = "train.py", "mutants", "mutants.json"
CLASSES = ("defect", "equivalent", "convention")
NEAR = 5
"""So many lines away a finding is still near the change."""

SECONDS = 300.0
"""When a script and the report on it must be over; `conformance watch` itself ends a script after 120."""


@dataclass(frozen=True)
class Case:
    """A script, or a mutant of it. kind: "original" or one of the classes. file, line: where it was changed."""

    script: str
    mutant: str
    kind: str
    file: str = ""
    line: int = 0
    what: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.script, self.mutant


@dataclass(frozen=True)
class Seen:
    """What watching one case said.

    digest: of the files that ran. steps: how many were watched. seconds: of processor time. fails, notes: claim -> its
    place. problem: why it was not judged, in words; "" where it was.
    """

    script: str
    mutant: str
    digest: str
    steps: int = 0
    seconds: float = 0.0
    fails: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class Judged:
    """A case in the light of its original. fails, notes: those that the original has not. distance: of the nearest line
    that is named first by a failure; None where none is in the file of the change."""

    case: Case
    seen: Seen
    fails: Mapping[str, str]
    notes: Mapping[str, str]
    distance: int | None


def cases(folder: Path) -> Iterator[Case]:
    """The scripts of a folder, each followed by its mutants. Raises ValueError, in a sentence, for a wrong layout."""
    scripts = sorted(path.parent for path in folder.glob(f"*/{SCRIPT}"))
    if not scripts:
        raise ValueError(f"there is no NAME/{SCRIPT} in {folder}")
    for script in scripts:
        yield Case(script.name, "", "original")
        listing = script / LISTING
        for entry in _listed(listing) if listing.is_file() else []:
            name, kind = str(entry.get("name")), str(entry.get("class"))
            if kind not in CLASSES:
                raise ValueError(f"{listing}: {name!r} has the class {kind!r}, which is none of {', '.join(CLASSES)}")
            if not (script / MUTANTS / name).is_dir():
                raise ValueError(f"{listing}: there is no folder {MUTANTS}/{name}")
            line = entry.get("line")
            yield Case(
                script.name,
                name,
                kind,
                str(entry.get("file") or SCRIPT),
                line if isinstance(line, int) else 0,
                str(entry.get("what", "")),
            )


def _listed(listing: Path) -> list[Mapping[str, Any]]:
    try:
        found = json.loads(listing.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{listing} is no JSON: {error}") from None
    found = found.get("mutants") if isinstance(found, dict) else found
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise ValueError(f'{listing} should hold {{"mutants": [{{"name": ..., "class": ...}}, ...]}}')
    return found


def files_of(case: Case, folder: Path) -> dict[str, Path]:
    """The files that a case runs with, by their path in its folder."""
    own = folder / case.script
    skipped = (MUTANTS, LISTING, "__pycache__", ".git")
    found = {
        str(path.relative_to(own)): path
        for path in sorted(own.rglob("*"))
        if path.is_file() and path.relative_to(own).parts[0] not in skipped and "__pycache__" not in path.parts
    }
    if case.mutant:
        other = own / MUTANTS / case.mutant
        found |= {
            str(path.relative_to(other)): path
            for path in sorted(other.rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts
        }
    return found


def digest_of(files: Mapping[str, Path]) -> str:
    found = hashlib.sha256()
    for name, path in files.items():
        found.update(name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def watch(case: Case, folder: Path, seconds: float = SECONDS) -> Seen:
    """Watch one case. What keeps it from being judged is the result's problem."""
    files = files_of(case, folder)
    digest = digest_of(files)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        at, report = Path(name) / case.script, Path(name) / "report.json"
        for relative, path in files.items():
            (at / relative).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, at / relative)
        order = [sys.executable, "-m", "conformance", "watch", "--claims-report", str(report), SCRIPT]
        environment = {**os.environ, "PYTHONPATH": ROOT, "MPLBACKEND": "Agg", "CUDA_VISIBLE_DEVICES": ""}
        out = Path(name) / "out.txt"
        code, used = _run(order, at, environment, out, seconds)
        said = out.read_text(encoding="utf-8", errors="replace")
        if not report.is_file():
            last = next((line for line in reversed(said.splitlines()) if line.strip()), "it said nothing")
            over = f"it took more than {seconds:g} s" if code is None else f"exit code {code}: {last.strip()[:300]}"
            return Seen(case.script, case.mutant, digest, seconds=used, problem=over)
        claims = json.loads(report.read_text(encoding="utf-8"))["claims"]
    steps = re.search(r"^--- watched .*: (\d+) optimizer steps", said, re.MULTILINE)
    return Seen(
        case.script,
        case.mutant,
        digest,
        int(steps[1]) if steps else 0,
        used,
        {one["slug"]: one["place"] for one in claims if one["verdict"] in ("FAIL", "ERROR")},
        {one["slug"]: one["place"] or one["got"] for one in claims if one["verdict"] == "NOTE"},
    )


def _run(
    order: Sequence[str], at: Path, environment: Mapping[str, str], out: Path, seconds: float
) -> tuple[int | None, float]:
    """The exit code of a command, None where its time was over, and the processor time of what it started. What is
    left of it is ended with it."""
    with out.open("wb") as file:
        process = subprocess.Popen(
            order,
            cwd=at,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        end, used, status = time.monotonic() + seconds, 0.0, None
        while status is None and time.monotonic() < end:
            found, code, usage = os.wait4(process.pid, os.WNOHANG)
            if found:
                status, used = os.waitstatus_to_exitcode(code), usage.ru_utime + usage.ru_stime
                process.returncode = status
            else:
                time.sleep(0.05)
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        if status is None:
            _, _, usage = os.wait4(process.pid, 0)
            process.returncode, used = -signal.SIGKILL, usage.ru_utime + usage.ru_stime
        return status, used


def read_results(path: Path) -> dict[tuple[str, str], Seen]:
    """What a results file holds; a line that was not written whole is left out."""
    found = {}
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError, TypeError):
                seen = Seen(**json.loads(line))
                found[seen.script, seen.mutant] = seen
    return found


def judged(case: Case, seen: Seen, original: Seen | None) -> Judged:
    """A case beside its original; the original beside nothing."""
    known = original or Seen("", "", "")
    fails = {claim: place for claim, place in seen.fails.items() if claim not in known.fails}
    notes = {claim: place for claim, place in seen.notes.items() if claim not in known.notes}
    places = (file_and_line(place) for place in fails.values())
    distances = [abs(line - case.line) for place in places if place and place[0] == case.file for line in place[1:]]
    return Judged(case, seen, fails, notes, min(distances, default=None) if case.line else None)


def counted(rows: Sequence[Judged]) -> dict[str, Any]:
    """The figures of some cases, by the heads of the table."""
    defects = [row for row in rows if row.case.kind == "defect"]
    caught = [row for row in defects if row.fails]
    others = [row for row in rows if row.case.kind in ("equivalent", "convention")]
    return {
        "false": sum(len(row.seen.fails) for row in rows if row.case.kind == "original"),
        "defects": len(defects),
        "FAIL": len(caught),
        "note only": sum(bool(row.notes) and not row.fails for row in defects),
        "not seen": sum(not row.notes and not row.fails for row in defects),
        "line": sum(row.distance == 0 for row in caught),
        f"within {NEAR}": sum(row.distance is not None and row.distance <= NEAR for row in caught),
        "others": len(others),
        "others' FAIL": sum(bool(row.fails) for row in others),
        "not judged": sum(bool(row.seen.problem) for row in rows),
        "seconds": round(sum(row.seen.seconds for row in rows)),
    }


def table(rows: Sequence[Judged]) -> Iterator[str]:
    """Markdown: a line for each script and one for all; then what is false, missed and not judged."""
    names = list(dict.fromkeys(row.case.script for row in rows))
    heads = list(counted([]))
    yield "| script | " + " | ".join(heads) + " |"
    yield "|---" * (len(heads) + 1) + "|"
    for name in [*names, ""]:
        figures = counted([row for row in rows if name in ("", row.case.script)])
        yield f"| {name or 'all'} | " + " | ".join(str(figures[head]) for head in heads) + " |"
    yield ""
    for row in rows:
        case = row.case
        title = f"{case.script}{'/' + case.mutant if case.mutant else ''}"
        if row.seen.problem:
            yield f"- not judged: {title}: {row.seen.problem}"
        elif case.kind == "defect" and not row.fails:
            yield f"- {'noted' if row.notes else 'missed'}: {title}, {case.file}:{case.line}: {case.what}"
        elif case.kind != "defect" and row.fails:
            yield from (f"- false: {title}: {claim} at {place}" for claim, place in row.fails.items())


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge a folder; 0 where each case was judged, 1 where one was not, 2 for what the user can mend."""
    parser = argparse.ArgumentParser(prog="python -m tools.watch_trials", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the folder of scripts")
    parser.add_argument("--results", type=Path, metavar="FILE", help="JSON lines (watch_trials.jsonl)")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose SCRIPT/MUTANT holds TEXT")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="so many at a time (1)")
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="S", help=f"for one case ({SECONDS:g})")
    options = parser.parse_args(arguments)
    results = options.results or Path("watch_trials.jsonl")
    if options.jobs < 1 or not options.seconds > 0:
        parser.error("--jobs and --seconds must be above zero")
    if not results.absolute().parent.is_dir():
        parser.error(f"--results: there is no folder {results.absolute().parent}")
    try:
        chosen = [case for case in cases(options.folder) if options.only in "/".join(case.key)]
    except ValueError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    known = read_results(results)
    current = {case.key: digest_of(files_of(case, options.folder)) for case in chosen}
    seen = {key: known[key] for key in current if key in known and known[key].digest == current[key]}
    missing = [case for case in chosen if case.key not in seen]
    with results.open("a", encoding="utf-8") as file, Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("scripts", total=len(chosen), completed=len(seen))
        with ThreadPoolExecutor(options.jobs) as pool:
            waiting = [pool.submit(watch, case, options.folder, options.seconds) for case in missing]
            try:
                for done in as_completed(waiting):
                    one = done.result()
                    seen[one.script, one.mutant] = one
                    file.write(json.dumps(asdict(one)) + "\n")
                    file.flush()
                    progress.update(bar, advance=1, description="/".join(filter(None, (one.script, one.mutant))))
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    originals = {case.script: seen[case.key] for case in chosen if case.kind == "original"}
    rows = [judged(case, seen[case.key], originals.get(case.script) if case.mutant else None) for case in chosen]
    print("\n".join(table(rows)))
    return 1 if any(row.seen.problem for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
