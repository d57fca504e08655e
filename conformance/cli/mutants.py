"""Measure the suite: run the checks on implementations with one deliberate defect each (mutants).

Every mutant must be killed by the check of each claim that it breaks. It meets every check that builds its role; the
others cannot see it. With --own it meets only the checks of the claims that it breaks, which is all that must hold.
Mutants of whole models need torch, and are left out without it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatchcase

from conformance.catalogue import load
from conformance.cli.tables import show_table
from conformance.kills import ERROR, Row, broken_checks, is_installed, matrix

HELP = "run the checks on deliberately wrong implementations"
EXAMPLES = """  conformance mutants                  every mutant against every check that can see it
  conformance mutants Unscaled 'A*'    some, by name, published number or pattern
  conformance mutants --own            only the checks of the claims that each breaks: much faster
  conformance mutants --table          the table of all mutants, not only of those that got away
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="mutants by name, published number or pattern")
    parser.add_argument("--table", action="store_true", help="print a line for every mutant")
    parser.add_argument("--own", action="store_true", help="run only the checks of the claims that a mutant breaks")
    parser.add_argument("--processes", type=int, default=2, metavar="N", help="processes to use (default 2)")


def run(arguments: argparse.Namespace) -> int:
    import conformance.checks  # noqa: F401 (registers them)
    from conformance.check import CHECKS
    from conformance.mutants import MUTANTS

    chosen = _chosen(arguments.names)
    names = [name for name in chosen if is_installed(MUTANTS[name].needs or "numpy")]
    if len(names) < len(chosen):
        left = f"{len(chosen) - len(names)} mutants of whole models and training scripts"
        print(f"{left} are left out: torch is not installed", file=sys.stderr)
    if not names:
        print(f"conformance mutants: there is no mutant {' or '.join(arguments.names)}", file=sys.stderr)
        return 2
    started = time.perf_counter()
    tested = [claim.slug for claim in (*load().tested(), *load().watched()) if claim.slug in CHECKS]
    rows = matrix(names, _Progress(len(names)), arguments.processes, arguments.own)
    escaped = [row for row in rows if row.escaped]
    shown_rows = rows if arguments.table else escaped
    if shown_rows:
        title = "every mutant" if arguments.table else "mutants that escaped a check of a claim that they break"
        show_table(["mutant", "known as", "defect", "killed by", "escaped"], [_line(row) for row in shown_rows], title)
    kills = Counter(claim for row in rows for claim in row.killers)
    proven = [claim for claim in tested if kills[claim] or not arguments.names]  # of some mutants, what they die by
    broken = broken_checks(proven, arguments.processes)
    idle = [claim for claim in tested if not kills[claim]]
    if idle and not arguments.names:
        print(f"{len(idle)} of {len(tested)} checks kill no mutant: {', '.join(idle)}")
    for claim, outcome in broken.items():
        print(f"the check of {claim} proves nothing: it is {outcome} on what is unmutated", file=sys.stderr)
    seconds = time.perf_counter() - started
    print(f"{len(rows) - len(escaped)} of {len(rows)} mutants killed by the claims that they break, in {seconds:.0f} s")
    return 1 if escaped or broken else 0


def _chosen(wanted: Sequence[str]) -> list[str]:
    from conformance.mutants import MUTANTS

    return [
        name
        for name, mutant in MUTANTS.items()
        if not wanted or any(fnmatchcase(name, w) or fnmatchcase(mutant.known_as, w) for w in wanted)
    ]


class _Progress:
    """Counts on standard error, on one line of a terminal."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.escaped = total, 0, 0

    def __call__(self, row: Row) -> None:
        self.done += 1
        self.escaped += bool(row.escaped)
        if sys.stderr.isatty():
            end = "\n" if self.done == self.total else ""
            print(
                f"\r{self.done} of {self.total} mutants, {self.escaped} escaped", end=end, file=sys.stderr, flush=True
            )
        elif self.done % 50 == 0:
            print(f"{self.done} of {self.total} mutants, {self.escaped} escaped", file=sys.stderr, flush=True)


def _line(row: Row) -> list[str]:
    killers = [f"{claim} (error)" if row.outcomes[claim] == ERROR else claim for claim in row.killers]
    more = f" and {len(killers) - 3} more" if len(killers) > 3 else ""
    escaped = [f"{claim} (no check)" if claim in row.missing else claim for claim in row.escaped]
    return [row.mutant, row.known_as, row.defect, ", ".join(killers[:3]) + more, ", ".join(escaped)]
