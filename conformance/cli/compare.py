"""Compare runs by their reports (pytest --claims-report FILE.json): what got worse, what got better.

The first report is compared with each of the others: the same implementation before and after a change, or several
implementations. A claim got worse when it is BROKEN and was not, or LOST: it was kept and is no longer provided. -o
writes a page with the verdicts side by side.
"""

from __future__ import annotations

import argparse
import textwrap
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conformance.comparison import KINDS, Change, changes
from conformance.page import to_html
from conformance.report import ReportError, read_report

HELP = "show what changed between runs"
EXAMPLES = """  conformance compare before.json after.json              what changed; exit code 1 if anything got worse
  conformance compare torch.json mine.json -o page.html   also a page with the verdicts side by side
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("reports", nargs="+", type=Path, metavar="FILE.json", help="two reports or more")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE.html", help="write the page to this file")


def run(arguments: argparse.Namespace) -> int:
    if len(arguments.reports) < 2:
        raise ReportError("give two reports or more; one alone has nothing to be compared with")
    first, *others = reports = [read_report(path) for path in arguments.reports]
    worse = 0
    for path, other in zip(arguments.reports[1:], others, strict=True):
        found = changes(first, other)
        worse += sum(change.is_worse for change in found)
        print(f"{_title(arguments.reports[0], first)} -> {_title(path, other)}")
        print("\n".join([*map(_lines, found), _counts(found, other)]), end="\n\n" if other is not others[-1] else "\n")
    if arguments.output is not None:
        try:
            arguments.output.write_text(to_html(reports) + "\n", encoding="utf-8")
        except OSError as error:
            raise ReportError(f"{arguments.output} cannot be written: {error.strerror}") from error
        print(f"the page is {arguments.output}")
    return 1 if worse else 0


def _title(path: Path, report: Mapping[str, Any]) -> str:
    return f"{report['implementation']} ({path}, {report['counts']['PASS']} of {report['about']} kept)"


def _lines(change: Change) -> str:
    """The change, and for what broke the evidence and the line that replays it."""
    claim = change.claim
    before, after = (verdict or "not tested" for verdict in (change.before, change.after))
    lines = [f"{change.kind:8} {claim['slug']}: {before} -> {after}"]
    if change.is_worse and change.is_broken:
        statement = textwrap.shorten(claim["says"], 160, placeholder=" ...")
        seen = f"expected {claim['expected']}, got {claim['got']}" if claim["what"] else claim["message"]
        lines += [f"    wrong     {claim['diagnosis']}"] if claim["diagnosis"] else []
        lines += [f"    at        {claim['place']}"] if claim["place"] else []
        lines += [f"    seen      {seen}", f"    claim     {statement} [{claim['cited'][0]}]"]
        lines.append(f"    replay    {claim['replay']}")
    return "\n".join(lines)


def _counts(found: list[Change], report: Mapping[str, Any]) -> str:
    numbers = Counter(change.kind for change in found)
    same = report["total"] - len(found) + numbers["GONE"]
    return ", ".join([*(f"{numbers[kind]} {kind.lower()}" for kind in KINDS if numbers[kind]), f"{same} unchanged"])
