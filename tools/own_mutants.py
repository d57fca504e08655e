"""How many mistakes in our own code our tests catch: `python -m tools.own_mutants` (Linux, as administrator; hours).

Draws one-line mutations of minigrad, conformance and transformer by lot, records once which tests run them, and runs
for each mutant the tests that run it, quickest first, until one fails. All in a copy of the tree, and in processes
that can harm nothing. What is known of a test file or a mutant is a line of a file as soon as it is known, and a run
that was stopped goes on where it was.

    python -m tools.own_mutants                  300 mutants; `--count 20` are the first 20 of them
    python -m tools.own_mutants --again survived    after new tests: those that were not caught
    python -m tools.own_mutants --show           the table of what is known, nothing is run
"""

from __future__ import annotations

import argparse
import compileall
import hashlib
import json
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from tools.mutate import explanations
from tools.mutation import apart
from tools.mutation.drawn import HITS, PACKAGES, Drawn, draw, write_probes
from tools.mutation.trials import BROKEN, KILLED, STUCK, SURVIVED

ROOT = Path(__file__).parents[1]
EQUIVALENT = ROOT / "tools" / "mutation" / "equivalent.toml"
UNRUN = "no test runs it"

KINDS = "not slow and not deep and not browser and not gpu"
"""The tests that are asked: those of README's command."""

FILES = 12
"""So many test files at most are read for one mutant."""


@dataclass(frozen=True)
class Recorded:
    """A test file on unmutated code. passed: test -> seconds. failed: tests that fail apart. hits: the number of a
    mutation -> the tests that run it, "" where it runs on loading, or in a process that knows no test. over: whether
    the file has more tests than its time allowed."""

    file: str
    digest: str
    passed: Mapping[str, float] = field(default_factory=dict)
    failed: Sequence[str] = ()
    hits: Mapping[str, Sequence[str]] = field(default_factory=dict)
    over: bool = False


@dataclass(frozen=True)
class Tried:
    """What became of a mutant. by: the test that failed or hung. asked, ran: how many tests were chosen, and ran."""

    file: str
    line: int
    before: str
    after: str
    operator: str
    outcome: str
    by: str = ""
    asked: int = 0
    ran: int = 0

    @property
    def key(self) -> tuple[str, int, str, str]:
        return self.file, self.line, self.before, self.after


def read(path: Path, kind: type) -> Iterator[Any]:
    """The rows of a file of results; a line that was not written whole is left out."""
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError, TypeError):
                yield kind(**json.loads(line))


def add(path: Path, row: Any) -> None:
    """Add a row to a file of results, behind whatever a killed process has left of a line."""
    text = json.dumps(asdict(row)) + "\n"
    with path.open("a+b") as file:
        if file.tell():
            file.seek(-1, 2)
            text = text if file.read(1) == b"\n" else "\n" + text
        file.write(text.encode())


# --- which tests run a mutation ---------------------------------------------------------------------


def plan(
    number: int, drawn: Drawn, recorded: Sequence[Recorded], texts: Mapping[str, str], seconds: float
) -> list[str]:
    """The tests to run for a mutation: those that run it, quickest first, and of each test function one before the
    second of any. Where it runs on loading only: the tests of files that load it, those that name its module first.

    texts: test file -> its text. No more tests than take so many seconds, of no more than FILES files.
    """
    ranked = []
    for each in recorded:
        tests = each.hits.get(str(number), ())
        direct = [name for name in tests if name in each.passed]
        stem = Path(drawn.file).parent.name if drawn.file.endswith("__init__.py") else Path(drawn.file).stem
        rank = 0 if direct else 1 if stem in texts.get(each.file, "") else 2
        seen: Counter[str] = Counter()
        for name in sorted(direct or (each.passed if tests else ()), key=lambda name: each.passed[name]):
            function = name.partition("[")[0]
            seen[function] += 1
            ranked.append((rank, seen[function], each.passed[name], name, each.file))
    chosen, files, total = [], set[str](), 0.0
    for _, _, takes, name, file in sorted(ranked):
        if file in files or len(files) < FILES:
            files.add(file)
            chosen.append(name)
            total += takes
        if total > seconds:
            break
    return chosen


def record(file: str, digest: str, job: apart.Job) -> Recorded:
    """Run a test file with probes. Raises OSError."""
    hits = job.out / "hits.txt"
    hits.write_text("")
    ran = apart.run(job, {}, patience=120.0)
    found: dict[str, set[str]] = {}
    for line in hits.read_text(encoding="utf-8", errors="replace").splitlines():
        number, _, test = line.partition(" ")
        found.setdefault(number, set()).add(test)
    passed = {name: seconds for name, (outcome, seconds) in ran.tests.items() if outcome == "passed"}
    failed = [name for name, (outcome, _) in ran.tests.items() if outcome == "failed"]
    return Recorded(file, digest, passed, failed, {key: sorted(value) for key, value in found.items()}, ran.over)


# --- mutants ----------------------------------------------------------------------------------------


def tried(drawn: Drawn, wanted: Sequence[str], job: apart.Job, recorded: Sequence[Recorded]) -> Tried:
    """Run the chosen tests on a mutant. Raises OSError."""
    mutation = drawn.mutation
    row = Tried(*drawn.key, mutation.operator, UNRUN, asked=len(wanted))
    if not wanted:
        return row
    expected = {name: seconds for each in recorded for name, seconds in each.passed.items()}
    ran = apart.run(job, expected)
    outcome, by = judged(ran)
    return Tried(*drawn.key, mutation.operator, outcome, by, len(wanted), len(ran.tests))


def judged(ran: apart.Ran) -> tuple[str, str]:
    """The outcome of a mutant, and the test that decided."""
    for name, (outcome, _) in ran.tests.items():
        if outcome == "failed":
            return KILLED, name
    if ran.endless is not None:
        return STUCK, ran.endless
    if ran.exit in (0, 5) or ran.over:  # 5: its tests are gone, and nothing failed
        return SURVIVED, ""
    return BROKEN, "tests cannot be loaded" if ran.exit is not None else "the process of the tests ended"


def table(rows: Sequence[Tried], reasons: Mapping[tuple[str, str], str]) -> str:
    """Outcomes by package as a Markdown table, the share of those caught, and the survivors."""
    heads = (KILLED, BROKEN, STUCK, "equivalent", SURVIVED, UNRUN)
    lines = ["| package | mutants | " + " | ".join(heads) + " | caught of those that tests run |", "|---" * 9 + "|"]
    for package in (*PACKAGES, ""):
        own = [row for row in rows if row.file.startswith(package)]
        counts = Counter("equivalent" if is_equivalent(row, reasons) else row.outcome for row in own)
        caught = sum(counts[head] for head in (KILLED, BROKEN, STUCK))
        judged = caught + counts[SURVIVED]
        share = f"{caught} of {judged}" + (f", {caught / judged:.1%}" if judged else "")
        values = [len(own), *(counts[head] for head in heads), share]
        lines.append(f"| {package or '**all**'} | " + " | ".join(map(str, values)) + " |")
    for title in (SURVIVED, UNRUN):
        alive = [row for row in rows if row.outcome == title and not is_equivalent(row, reasons)]
        lines += ["", f"{title}:", ""] if alive else []
        for row in alive:
            lines.append(f"{row.file}:{row.line}, {row.operator}, {row.ran} of {row.asked} tests run")
            lines += ["```diff", f"- {row.before}", f"+ {row.after}", "```"]
    return "\n".join(lines)


def is_equivalent(row: Tried, reasons: Mapping[tuple[str, str], str]) -> bool:
    return row.outcome in (SURVIVED, UNRUN) and (row.before, row.after) in reasons


# --- the command ------------------------------------------------------------------------------------


def copied(root: Path, to: Path) -> None:
    """The files of the working tree that git knows or would take, compiled: no mutant has to do that."""
    shutil.rmtree(to, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=root, check=True, capture_output=True, text=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (root / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(root / name, to / name)
    compileall.compile_dir(to, quiet=2)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 where all was run that was asked, 2 for what the user can mend."""
    parser = argparse.ArgumentParser(prog="python -m tools.own_mutants", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=300, metavar="N", help="so many mutants (300)")
    parser.add_argument("--seed", type=int, default=0, help="of the draw (0)")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "own_mutants", help="where all is kept")
    parser.add_argument("--tests", default="", metavar="TEXT", help="only test files whose path has TEXT")
    parser.add_argument("--record", type=float, default=60.0, metavar="S", help="seconds for one test file (60)")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="seconds of tests for a mutant (60)")
    parser.add_argument("--again", choices=(SURVIVED, UNRUN, STUCK), help="run the mutants again that ended so")
    parser.add_argument("--only-record", action="store_true", help="record which tests run the mutations, and no more")
    parser.add_argument("--show", action="store_true", help="run nothing: the table of what is known")
    options = parser.parse_args(arguments)
    if options.count < 1 or not options.seconds > 0 or not options.record > 0:
        parser.error("--count, --seconds and --record must be above zero")
    folder = options.folder.resolve()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("reading", total=None)
        found, trees = draw(ROOT, options.count, options.seed, lambda name: progress.update(bar, advance=1))
        progress.remove_task(bar)
        try:
            if not options.show:
                folder.mkdir(parents=True, exist_ok=True)
                run(found, trees, folder, options, progress)
        except OSError as error:
            print(f"{parser.prog}: {error}", file=sys.stderr)
            return 2
    known = {row.key: row for row in read(folder / "mutants.jsonl", Tried)}
    print(table([known[one.key] for one in found if one.key in known], explanations(EQUIVALENT)))
    return 0


def run(found: Sequence[Drawn], trees: Mapping[str, Any], folder: Path, options: Any, progress: Progress) -> None:
    """Record what is not recorded, and try what is not tried. Raises OSError."""
    tree, layer, out = folder / "tree", folder / "probes", folder / "out"
    copied(ROOT, tree)
    shutil.rmtree(layer, ignore_errors=True)
    write_probes(found, trees, tree, layer)
    kernels = tree / ".pytest_cache" / "kernels"
    for each in (out, folder / "kernels", kernels):
        each.mkdir(parents=True, exist_ok=True)
    shutil.copytree(folder / "kernels", kernels, dirs_exist_ok=True)
    texts = {
        path.relative_to(tree).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted((tree / "tests").rglob("test_*.py"))
    }
    recorded = {row.digest: row for row in read(folder / "tests.jsonl", Recorded)}
    draws = repr([one.key for one in found])
    digests = {file: hashlib.sha256((draws + file + text).encode()).hexdigest()[:20] for file, text in texts.items()}
    bar = progress.add_task("", total=len(texts))
    for file, digest in digests.items():
        progress.update(bar, description=f"recording {Path(file).name}")
        if digest not in recorded and options.tests in file:
            job = apart.Job(
                tree, out, (file, f"-m {KINDS}"), layers=(layer, tree), kept=(kernels,), seconds=options.record,
                first_failure=False, environment={HITS: str(out / "hits.txt")},
            )  # fmt: skip
            recorded[digest] = record(file, digest, job)
            add(folder / "tests.jsonl", recorded[digest])
            shutil.copytree(kernels, folder / "kernels", dirs_exist_ok=True)
        progress.update(bar, advance=1)
    if options.only_record:
        return
    rows = [recorded[digest] for digest in digests.values() if digest in recorded]
    known = {row.key: row for row in read(folder / "mutants.jsonl", Tried)}
    bar = progress.add_task("mutants", total=len(found))
    for number, one in enumerate(found):
        if one.key not in known or known[one.key].outcome == options.again:
            wanted = plan(number, one, rows, texts, options.seconds)
            files = tuple(dict.fromkeys(name.partition("::")[0] for name in wanted))
            job = apart.Job(
                tree, out, (*files, f"-m {KINDS}"), tuple(wanted), edit=(one.file, one.mutation.source),
                seconds=options.seconds,
            )  # fmt: skip
            known[one.key] = tried(one, wanted, job, rows)
            add(folder / "mutants.jsonl", known[one.key])
        alive = sum(known[each.key].outcome == SURVIVED for each in found[: number + 1])
        progress.update(bar, advance=1, description=f"mutants, {alive} alive")


if __name__ == "__main__":
    sys.exit(main())
