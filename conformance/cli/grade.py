"""Grade many implementations: a class's hand-ins, a benchmark's answers, every model of a repository.

SUBJECTS is a folder (each file and each folder in it is one), a glob, a list (.toml, .csv, .jsonl with the columns id,
impl, role, group), or - for a list on standard input. Results are kept in a database; what did not change is not graded
again.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from conformance.cli.tables import show_table
from conformance.settings import BUDGETS

if TYPE_CHECKING:
    from conformance.grading.rubric import Rubric
    from conformance.grading.store import Store

HELP = "grade many implementations, with points and a page of results"
EXAMPLES = """  conformance grade handins/                            each file and folder of a class
  conformance grade handins/ --rubric rubric.toml       with points; --feedback FOLDER writes a text for each author
  conformance grade list.csv -o results.html            a list (id,impl,role,group), and a page of all results
  conformance grade 'models/*.py' --resume              go on with a run that was broken off
  conformance grade --query 'SELECT claim, count(*) FROM claims WHERE verdict = "FAIL" GROUP BY claim'
  conformance grade list.csv --dask tcp://host:8786     on a cluster of Dask
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("subjects", nargs="?", metavar="SUBJECTS", help="folder, glob, list, or - (a list on stdin)")
    parser.add_argument(
        "--file", default="", metavar="FILE.py[:Class]", help="what is tested of each folder, or :Class"
    )
    parser.add_argument(
        "--store", type=Path, default=Path("grades.sqlite"), metavar="FILE", help="default grades.sqlite"
    )
    parser.add_argument("--rubric", type=Path, metavar="FILE.toml", help="what counts, and how much")
    parser.add_argument("--feedback", type=Path, metavar="FOLDER", help="write a text for each author there")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.html", help="a page of all results")
    parser.add_argument("--export", type=Path, metavar="FILE", help="all results as .csv or .parquet, a row a claim")
    parser.add_argument("--query", metavar="SQL", help="ask the database (tables claims, grades, submissions), and end")
    parser.add_argument("--resume", action="store_true", help="go on with the last run of the store")
    parser.add_argument("--fresh", action="store_true", help="grade again what did not change")
    parser.add_argument("--budget", default="quick", choices=list(BUDGETS))
    parser.add_argument("--claims", default="", metavar="SELECT", help="which claims; see conformance list")
    parser.add_argument(
        "--seed", default="0", metavar="N", help="of the examples; 'hidden' draws one that nobody knows"
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="processor time of a submission (default 30)")
    parser.add_argument("--until-broken", action="store_true", help="stop a submission at its first broken claim")
    parser.add_argument(
        "--no-sandbox", action="store_true", help="run them with your own rights (where they are yours)"
    )
    parser.add_argument("--workers", type=int, metavar="N", help="submissions at a time (default: one a core)")
    parser.add_argument("--dask", metavar="ADDRESS", help="a scheduler of Dask, tcp://host:8786, or 'local'")


def run(arguments: argparse.Namespace) -> int:
    from conformance.grading.submissions import GradingError

    try:
        return _run(arguments)
    except GradingError as error:
        print(f"conformance grade: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"conformance grade: {error.filename} cannot be read or written: {error.strerror}", file=sys.stderr)
        return 2


def _run(arguments: argparse.Namespace) -> int:
    from conformance.grading import rubric as rubrics
    from conformance.grading.progress import shown
    from conformance.grading.run import go_on
    from conformance.grading.store import Store
    from conformance.grading.submissions import GradingError

    if arguments.subjects is None and not (arguments.query or arguments.resume or arguments.output or arguments.export):
        raise GradingError("say what is to be graded: a folder, a glob, a list, or - for a list on standard input")
    rubric = rubrics.read(arguments.rubric) if arguments.rubric else None
    store = Store(arguments.store)
    try:
        if arguments.query:
            show_table(*store.query(arguments.query))
            return 0
        number = _begin(arguments, store, rubric)
        left = store.waiting(number)
        if left:
            with _executor(arguments) as executor, shown(len(left)) as notice:
                go_on(number, store, executor=executor, fresh=arguments.fresh, notice=notice)
        return _tell(arguments, store, number, rubric)
    finally:
        store.close()


def _begin(arguments: argparse.Namespace, store: Store, rubric: Rubric | None) -> int:
    """The number of the run: a new one, or the last one where it goes on or is shown."""
    from dataclasses import asdict

    from conformance.grading.run import Options
    from conformance.grading.submissions import GradingError, found

    if arguments.resume or arguments.subjects is None:
        return store.last_run()
    hidden = arguments.seed == "hidden"
    if not hidden and not arguments.seed.isdigit():
        raise GradingError(f"--seed {arguments.seed}: give a whole number, or hidden")
    options = Options(
        arguments.budget,
        secrets.randbelow(2**31) if hidden else int(arguments.seed),
        arguments.claims or (rubric.claims if rubric else ""),
        arguments.seconds,
        arguments.until_broken,
        rubric.forbidden if rubric else (),
        not arguments.no_sandbox and sys.platform == "linux",
    )
    options.check()
    text = sys.stdin.read() if arguments.subjects == "-" else ""
    return store.begin(found(arguments.subjects, text, arguments.file), asdict(options))


@contextmanager
def _executor(arguments: argparse.Namespace) -> Iterator[Executor]:
    from conformance.grading.local import LocalExecutor

    if arguments.dask:
        from conformance.grading.cluster import dask_executor

        with dask_executor(arguments.dask, arguments.workers) as executor:
            yield executor
        return
    with LocalExecutor(arguments.workers) as executor:
        yield executor


def _tell(arguments: argparse.Namespace, store: Store, number: int, rubric: Rubric | None) -> int:
    """The table, the feedback, the page and the export; exit code 1 when something is broken or could not be tested."""
    from conformance.files import write_text
    from conformance.grading import rubric as rubrics
    from conformance.grading.store import export

    grades = store.grades(number)
    scores, counted = {}, rubric or rubrics.default()
    for row in grades:
        results = store.results(number, row["id"])
        scores[row["id"]] = counted.score(results, row["refused"], rubrics.texts(row["suspicions"]))
    headings = ["id", "group", *(["points"] if rubric else []), "kept", "broken", "first mistake, or why not tested"]
    ranked = sorted(grades, key=lambda row: (-scores[row["id"]].value, row["id"]))
    rows = []
    for row in ranked:
        score = scores[row["id"]]
        points = [f"{score.value * score.points:.2f}"] if rubric else []
        first = next((m["diagnosis"] or m["what"] or m["message"] for m in score.mistakes), "")
        rows.append([row["id"], row["group"], *points, row["kept"], row["broken"], (row["refused"] or first)[:100]])
    show_table(headings, rows[:40])
    if len(rows) > 40:
        print(f"... and {len(rows) - 40} more; -o FILE.html shows all of them")
    broken = sum(bool(row["broken"]) for row in grades)
    refused = sum(bool(row["refused"]) for row in grades)
    print(
        f"{len(grades)} graded: {broken} break a claim, {refused} could not be tested; "
        f"run {number} in {arguments.store}"
    )
    if arguments.feedback:
        arguments.feedback.mkdir(parents=True, exist_ok=True)
        title = rubric.title if rubric else ""
        for id, score in scores.items():
            name = "".join(c if c.isalnum() or c in "-_." else "_" for c in id)
            write_text(arguments.feedback / f"{name}.txt", score.text(id, title) + "\n")
    if arguments.output:
        from conformance.grading.page import to_page

        write_text(arguments.output, to_page(store, number, scores))
    if arguments.export:
        headings, values = store.query(f"SELECT * FROM claims WHERE run = {number} ORDER BY id, part, claim")
        export(headings, values, arguments.export)
    return 1 if broken or refused else 0
