"""The summary on the terminal: what was not tested, what is wrong, notes, counts (`summary_lines`).

A failure is told in the order in which it is mended: what is wrong in words, the line of the user's code, the change
that would mend it, what was expected beside what came; then the claim, its source, and the command that replays it.
The page (`conformance.page`) keeps the same order.
"""

from __future__ import annotations

import math
import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence

from conformance.catalogue import Claim
from conformance.heatmap import heat_maps
from conformance.report import Report
from conformance.verdict import SHOWN_IN_FULL, Result, Verdict, counts


def summary_lines(report: Report, height: int) -> list[str]:
    """The summary in about `height` lines. Failures are shown in full as far as they fit, then by name."""
    results = report.folded()
    blocked = _blocked(results)
    tail = [
        *_known_lines(results, blocked),
        *_noted_lines(report, results),
        *_said_lines(report.notes, height // 4),
        *_missing_lines([results[slug] for slug in report.about()], Verdict.NOT_PROVIDED),
        *_missing_lines(list(results.values()), Verdict.NOT_SEEN),
        counts_line(report, results),
    ]
    return [*_wrong_lines(report, results, height - len(tail)), *tail]


def several_lines(reports: Sequence[Report], height: int) -> list[str]:
    """The summary of several subjects: a line each, failures first; then what is wrong, in about `height` lines."""
    ordered = sorted(reports, key=lambda report: (not report.broken, report.tested and not report.untested))
    wrong = [report for report in ordered if report.tested and (report.broken or report.untested)]
    lines = [_subject_line(report) for report in ordered]
    for report in wrong:
        room = max((height - len(lines)) // len(wrong), 4)
        lines += [f"--- {report.implementation}", *_wrong_lines(report, report.folded(), room)]
    return lines


def _subject_line(report: Report) -> str:
    """A subject in one line: its counts, or why nothing of it was tested."""
    if report.tested:
        return f"{report.implementation}  {counts_line(report, report.folded())}"
    reasons = Counter(result.message for result in report.results.values()).most_common(1)
    return f"{report.implementation}  NOT TESTED: {(report.untested or [reasons[0][0]])[0]}"


def _blocked(results: Mapping[str, Result]) -> Counter[str]:
    """How many claims each root explains."""
    return Counter(result.root for result in results.values() if result.verdict is Verdict.BLOCKED)


# --- what is wrong --------------------------------------------------------------------------------


def _wrong_lines(report: Report, results: Mapping[str, Result], height: int) -> list[str]:
    """What was not tested and what is broken, in about `height` lines."""
    blocked = _blocked(results)
    lines = [f"NOT TESTED: {sentence}" for sentence in report.untested]
    left = []
    for slug, result in results.items():
        if result.verdict in SHOWN_IN_FULL:
            full = broken_lines(report, result, blocked[slug])
            if len(lines) + len(full) <= height:
                lines += full
            else:
                left.append(slug)
    named = max(height - len(lines) - 1, 3)
    lines += [_headline(results[slug], blocked[slug]) for slug in left[:named]]
    if left[named:]:
        lines.append(
            f"... and {len(left) - named} more: -rf lists them, --tb=short or --claims-report FILE.html shows all"
        )
    return lines


def broken_lines(report: Report, result: Result, explains: int = 0) -> list[str]:
    """One claim that does not hold, from what is wrong to the command that replays it."""
    claim = report.catalogue.claims[result.claim]
    fields = [
        ("message", result.message),
        ("at", result.place),
        *(("and", line) for line in result.also),
        ("mend", result.mend),
        ("expected", f"{result.what}: {result.expected}" if result.what else ""),
        ("got", f"{result.got}{_distance(result)}" if result.what else ""),
        *(("", line) for line in heat_maps(result.pictures)),
        ("example", ", ".join(f"{name}={value}" for name, value in result.example.items())),
        ("claim", f"{claim.slug}: {_statement(claim, 200)}" if result.diagnosis else _statement(claim, 200)),
        ("source", _sources(report.catalogue.cited(claim))),
        ("replay", report.replay(result.claim)),
    ]
    return [_headline(result, explains), *(f"    {name:8}  {text}" for name, text in fields if text)]


def _headline(result: Result, explains: int) -> str:
    """What is wrong, where the check knows it; else which claim is not kept."""
    follows = f"  (explains {explains} more)" if explains else ""
    return f"{result.verdict} {result.diagnosis or result.claim}{follows}"


def _statement(claim: Claim, width: int) -> str:
    return textwrap.shorten(claim.says, width, placeholder=" ...")


def _sources(cited: Sequence[str]) -> str:
    """The first source, and how many more there are."""
    more = f"; and {len(cited) - 1} more" if len(cited) > 1 else ""
    return f"{cited[0]}{more}" if cited else ""


def _distance(result: Result) -> str:
    if not math.isfinite(result.error) or result.error == 0:
        return ""
    return f" (off by {result.error:.3g}, bound {result.bound:.3g} by {result.reason}, margin {result.margin:.3g})"


# --- notes and counts -----------------------------------------------------------------------------


def _known_lines(results: Mapping[str, Result], blocked: Mapping[str, int]) -> list[str]:
    known = [slug for slug in blocked if results[slug].verdict is Verdict.KNOWN_FAILURE]
    return [f"{blocked[slug]} BLOCKED by the known failure {slug}" for slug in known]


def _noted_lines(report: Report, results: Mapping[str, Result], most: int = 6) -> list[str]:
    """Conventions that the implementation does otherwise, and facts that checks found: a line each."""
    noted = [result for result in results.values() if result.verdict is Verdict.NOTE]
    lines = [f"    {_noted(result, report.catalogue.claims[result.claim])}" for result in noted]
    more = [f"    ... and {len(lines) - most} more in the report"] if len(lines) > most else []
    return [f"{Verdict.NOTE} ({len(noted)}, none of them a failure):", *lines[:most], *more] if noted else []


def _noted(result: Result, claim: Claim) -> str:
    if claim.verdict != "convention":
        return result.diagnosis or f"{result.what}: {result.got}"
    return f"not by the convention: {_statement(claim, 90)} ({result.what}: {result.got})"


def _said_lines(notes: Sequence[str], room: int) -> list[str]:
    """What the implementation said about itself; where there is no room for all, headings and doubts come first."""
    if len(notes) <= room:
        return list(notes)
    heads = [i for i, note in enumerate(notes) if not note.startswith(" ")]
    rest = [i for i, note in enumerate(notes) if note.startswith(" ")]
    chosen = [notes[i] for i in sorted([*heads, *rest][:room])]
    return [*chosen, f"... and {len(notes) - room} more lines in --claims-report FILE.html"]


def _missing_lines(results: Sequence[Result], verdict: Verdict, reasons: int = 6) -> list[str]:
    """What could not be tested of an implementation's components, or of a run: the most frequent reasons."""
    missing = Counter(r.message or "no reason given" for r in results if r.verdict is verdict)
    if not missing:
        return []
    more = f", {len(missing) - reasons} other reasons in the report" if len(missing) > reasons else ""
    return [
        f"{verdict} ({missing.total()} claims{more}):",
        *(f"    {number:4} x {reason}" for reason, number in missing.most_common(reasons)),
    ]


def counts_line(report: Report, results: Mapping[str, Result]) -> str:
    """How many claims are kept, of those that speak about what the implementation has; the rest in one number."""
    about = report.about()
    numbers = counts({slug: results[slug] for slug in about})
    parts = [f"{number} {verdict}" for verdict, number in numbers.items() if number or verdict in _ALWAYS_COUNTED]
    unseen = sum(result.verdict is Verdict.NOT_SEEN for result in results.values())
    rest = len(results) - len(about) - unseen
    others = f"; {rest} claims speak about components that it does not have" if rest else ""
    later = f"; the moment of {unseen} others did not come" if unseen else ""
    return f"{numbers[Verdict.PASS]} of {len(about)} claims kept: {', '.join(parts)}{others}{later}"


_ALWAYS_COUNTED = (Verdict.PASS, Verdict.FAIL, Verdict.NOT_PROVIDED)
