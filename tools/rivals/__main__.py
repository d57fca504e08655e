"""Run the suite and its rivals on the same models and mutants: `python -m tools.rivals FOLDER`.

FOLDER holds NAME/model.py, NAME/mutants.json and NAME/mutants/*.py (see `tools.rivals.cases`). Each method runs on each
file afresh, with zero code, in a process of its own: the suite as a user would run it, pytest-torch and pangolinn with
the model and the inputs that they need, and a page of plain properties.

    python -m venv --system-site-packages rivals; rivals/bin/pip install pytest-torch==1.1.1 pangolinn==0.0.1
    python -m tools.rivals FOLDER --python rivals/bin/python --page docs/rivals.md

Results are JSON lines. What has a result for the same text of the file is not run again.
"""

from __future__ import annotations

import argparse
import hashlib
import shlex
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tools.bench import page as marks
from tools.rivals import page, results
from tools.rivals.cases import ORIGINAL, Case, CaseError, cases_in
from tools.rivals.methods import METHODS, SUITE, Said, missing, said_of
from tools.rivals.results import KILLED, Result, judge_all

Job = tuple[Case, str]


def waiting(cases: Sequence[Case], methods: Sequence[str], done: Sequence[Result]) -> list[Job]:
    """What has no result yet. Originals first, then mutants in an order that looks random: the first are a sample."""
    have = {(*result.key, result.digest) for result in done}
    jobs = [(c, m) for c in cases for m in methods if (c.model, c.mutant, m, c.digest) not in have]
    return sorted(jobs, key=lambda job: (job[0].sort != ORIGINAL, _digest(f"{job[0].model} {job[0].mutant}")))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def run(jobs: Sequence[Job], done: Sequence[Result], options: argparse.Namespace) -> list[Result]:
    """All results, new ones in the place of old; the file of results is whole after each.

    Where a method cannot judge an original, it is not run on the mutants.
    """
    found = {result.key: result for result in done}

    def one(job: Job) -> Result:
        case, method = job
        original = found.get((case.model, "", method))
        if case.mutant and original is not None and original.said.raised:
            return Result.of(case, method, Said(raised=f"the original cannot be judged: {original.said.raised}"))
        return Result.of(case, method, said_of(method, case, options.python, options.seconds))

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        ThreadPoolExecutor(options.processes) as pool,
        Progress(*columns, console=Console(stderr=True)) as progress,
    ):
        task = progress.add_task("", total=len(jobs))
        originals = [job for job in jobs if job[0].sort == ORIGINAL]
        for part in (originals, jobs[len(originals) :]):
            runs = [pool.submit(one, job) for job in part]
            try:
                for future in as_completed(runs):
                    result = future.result()
                    found[result.key] = result
                    results.write(options.results, list(found.values()))
                    told = f"{result.model} {result.mutant or ORIGINAL}: {result.method}"
                    progress.update(task, advance=1, description=told)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise
    return list(found.values())


def summary(found: Sequence[Result]) -> str:
    """A line for each mutant and method that did not kill it, and each false word: what to look into."""
    originals = [r for r in found if r.sort == ORIGINAL]
    lines = [f"{r.model}: {r.method} cannot judge it: {r.said.raised}" for r in originals if r.said.raised]
    lines += [f"{r.model}: {r.method} says {name}: {text}" for r in originals for name, text in r.broken.items()]
    for one in judge_all(found):
        r = one.result
        if r.method == SUITE and (one.outcome == KILLED) != (r.sort == "defect"):
            told = next(iter(one.new.values()), r.said.raised or "; ".join(r.said.untested))
            lines.append(f"{r.model} {r.mutant} ({r.sort}, line {r.line}: {r.what}): {one.outcome} {told}".rstrip())
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when it ran, 2 when it cannot run as asked."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.rivals", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="the folder with the models and their mutants")
    parser.add_argument("--python", default=sys.executable, metavar="FILE", help="the interpreter that has the rivals")
    parser.add_argument("--only", default="", metavar="NAME", help="only this model")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS, metavar="METHOD", help="only these")
    parser.add_argument("--again", nargs="+", choices=METHODS, default=(), metavar="METHOD", help="run these again")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="files that run at a time")
    parser.add_argument("--limit", type=int, metavar="N", help="run N jobs at most")
    parser.add_argument("--seconds", type=float, default=300, metavar="S", help="the time limit of a run")
    parser.add_argument("--results", type=Path, metavar="FILE", help="the JSON lines (default: FOLDER/rivals.jsonl)")
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the tables between the marks of this page")
    options = parser.parse_args(arguments)
    options.results = options.results or options.folder / "rivals.jsonl"
    if not options.folder.is_dir():
        parser.error(f"there is no folder {options.folder}; name the folder that holds the models")
    try:
        cases = cases_in(options.folder, options.only)
        done = [r for r in results.read(options.results) if r.method not in options.again]
        if options.page:
            marks.read(options.page)
    except (CaseError, ValueError, OSError) as error:
        parser.error(str(error))
    left_out = {method: why for method in options.methods if (why := missing(method, options.python))}
    for why in left_out.values():
        print(why, file=sys.stderr)
    jobs = waiting(cases, [m for m in options.methods if m not in left_out], done)
    found = run(jobs[: options.limit], done, options)
    known = {(c.model, c.mutant, c.digest) for c in cases}
    current = [r for r in found if (r.model, r.mutant, r.digest) in known]
    named = shlex.quote(options.folder.resolve().name)
    text = page.section(current, f"python -m tools.rivals {named} --python rivals/bin/python --page docs/rivals.md")
    print(summary(current), text, sep="\n\n")
    if options.page:
        marks.write(options.page, text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
