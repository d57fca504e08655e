"""Grading measured with thousands of subjects.

python -m tools.many here FOLDER --count 2000             made in FOLDER, graded here: the rate, and what it takes
python -m tools.many there FOLDER                         the same list over a scheduler and four workers, one of
                                                          which is killed and one stopped; the tables are compared
python -m tools.many hostile FOLDER                       what a few that do harm cost a hundred others
python -m tools.many model                                what a million cost on a hundred machines
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from conformance.grading.run import Options
from conformance.grading.submissions import GradingError
from tools.many import hostile, model, runs, subjects

HERE, THERE, FIGURES = "here.sqlite", "there.sqlite", "figures.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 when the tables differ, 2 for wrong use."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.many", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("here", "there", "hostile", "model"))
    parser.add_argument("folder", type=Path, nargs="?", default=Path("many"))
    parser.add_argument("--count", type=int, help="how many subjects (2,000 here, 300 for model)")
    parser.add_argument("--workers", type=int, help="at a time (2 here, 4 there)")
    parser.add_argument("--claims", default="", metavar="SELECT", help="which claims (all)")
    parser.add_argument("--each", type=float, default=1.0, metavar="S", help="processor time of a subject, for model")
    options = parser.parse_args(arguments)
    try:
        return {"here": _here, "there": _there, "hostile": _hostile, "model": _model}[options.what](options)
    except (GradingError, OSError) as error:
        print(f"many: {error}", file=sys.stderr)
        return 2


def _here(options: argparse.Namespace) -> int:
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    path = subjects.write(folder / "subjects", options.count or 2000)
    figures = runs.here(path, folder / HERE, options.workers or 2, Options(claims=options.claims))
    print(f"{runs.HEADING}\n{figures.row()}")
    (folder / FIGURES).write_text(json.dumps(runs.values(figures), indent=1) + "\n", encoding="utf-8")
    return 0


def _there(options: argparse.Namespace) -> int:
    from tools.many.cluster import there

    folder = options.folder
    seconds = there(
        folder / "subjects" / "list.csv", folder / THERE, options.workers or 4, Options(claims=options.claims)
    )
    tables = [runs.table_of(folder / name) for name in (HERE, THERE)]
    for name, table in zip((HERE, THERE), tables, strict=True):
        print(f"{name}: {len(table.splitlines()):,} lines, {len(table):,} bytes, SHA-256 {runs.digest(table)}")
    print(f"{'equal' if tables[0] == tables[1] else 'different'}; over the cluster in {seconds:.0f} s")
    return 0 if tables[0] == tables[1] else 1


def _hostile(options: argparse.Namespace) -> int:
    print(hostile.table(options.folder, options.workers or 2, Options(claims=options.claims)))
    return 0


def _model(options: argparse.Namespace) -> int:
    print(
        model.table(model.measured(options.folder, Options(claims=options.claims), options.count or 300), options.each)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
