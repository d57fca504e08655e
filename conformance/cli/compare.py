"""Compare runs by their reports (pytest --claims-report FILE.json): what got worse, what got better.

The first report is compared with each of the others: the same implementation before and after a change, or several
implementations. A claim got worse when it is BROKEN and was not, or LOST: it was kept and is no longer provided. -o
writes a page with the verdicts side by side.
"""

from __future__ import annotations

import argparse
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.comparison import KINDS, Change, changes
from conformance.files import write_text
from conformance.page import to_html
from conformance.report import ReportError, read_reports

Report = Mapping[str, Any]

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
    files = [read_reports(path) for path in arguments.reports]
    worse, blocks = 0, []
    for path, later in zip(arguments.reports[1:], files[1:], strict=True):
        for first, other in _pairs(files[0], later):
            found = changes(first, other)
            worse += sum(change.is_worse for change in found)
            title = f"{_title(arguments.reports[0], first)} -> {_title(path, other)}"
            blocks.append("\n".join([title, *map(_lines, found), _counts(found, other)]))
    print("\n\n".join(blocks))
    if arguments.output is not None:
        try:
            write_text(arguments.output, to_html([report for reports in files for report in reports]) + "\n")
        except OSError as error:
            raise ReportError(f"{arguments.output} cannot be written: {error.strerror}") from error
        print(f"the page is {arguments.output}")
    return 1 if worse else 0


def _pairs(before: Sequence[Report], after: Sequence[Report]) -> list[tuple[Report, Report]]:
    """The reports of the same subject in two files; one alone in each is compared whatever it is called.

    Raises ReportError when the files have no subject in common.
    """
    if len(before) == len(after) == 1:
        return [(before[0], after[0])]
    names = {report["implementation"]: report for report in before}
    pairs = [(names[one["implementation"]], one) for one in after if one["implementation"] in names]
    if not pairs:
        raise ReportError(
            "the reports are of files that have no class, function or instance of the same name in common"
        )
    return pairs


def _title(path: Path, report: Report) -> str:
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


def _counts(found: list[Change], report: Report) -> str:
    numbers = Counter(change.kind for change in found)
    same = report["total"] - len(found) + numbers["GONE"]
    return ", ".join([*(f"{numbers[kind]} {kind.lower()}" for kind in KINDS if numbers[kind]), f"{same} unchanged"])
