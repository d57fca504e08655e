"""What a run came to, for people and programs: the terminal summary, one HTML page, JSON.

JSON (schema 1): `schema`, `implementation`, `budget`, `notes`, `attributes` (role -> conventions of its subjects),
`counts` (verdict -> number, every verdict present), `total`, and `claims`: a list of objects with the claim (`slug`,
`says`, `topic`, `kind`, `claim_verdict`, `where`, `sources`) and its result (`verdict`, `what`, `expected`, `got`,
`error`, `bound`, `margin`, `reason`, `example`, `examples`, `message`, `place`, `seconds`, `root`; see
`conformance.verdict.Result`). Numbers that JSON lacks are the strings "inf", "-inf" and "nan".
"""

from __future__ import annotations

import html
import json
import math
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.catalogue import Catalogue, Claim
from conformance.verdict import Result, Verdict, counts, fold

SCHEMA = 1


@dataclass(frozen=True)
class Report:
    """The results of a run by slug, before folding, and what they are of."""

    implementation: str
    budget: str
    results: Mapping[str, Result]
    catalogue: Catalogue

    @property
    def notes(self) -> list[str]:
        """What the implementation said about itself, each line once."""
        return list(dict.fromkeys(note for result in self.results.values() for note in result.notes))

    @property
    def attributes(self) -> dict[str, dict[str, Any]]:
        """The conventions of the implementation's subjects, by role."""
        merged: dict[str, dict[str, Any]] = {}
        for result in self.results.values():
            for role, values in result.attributes.items():
                merged.setdefault(role, {}).update(values)
        return {role: values for role, values in sorted(merged.items()) if values}

    def folded(self) -> dict[str, Result]:
        """The results in catalogue order, failures folded to their root causes."""
        folded = fold(self.results, self.catalogue)
        return {slug: folded[slug] for slug in self.catalogue.claims if slug in folded}


# --- terminal -------------------------------------------------------------------------------------


def broken_lines(result: Result, claim: Claim, replay: str, blocks: int = 0) -> list[str]:
    """One claim that does not hold: in words, its place, expected and got, bound and margin, example, replay."""
    statement = textwrap.shorten(claim.says, 200, placeholder=" ...")
    lines = [_headline(result, blocks), f"    claim     {statement} [{_places(claim)}]"]
    if result.message:
        lines.append(f"    message   {result.message}")
    if result.place:
        lines.append(f"    at        {result.place}")
    if result.what:
        lines.append(f"    expected  {result.what}: {result.expected}")
        lines.append(f"    got       {result.got}{_distance(result)}")
    if result.example:
        lines.append(f"    example   {', '.join(f'{name}={value}' for name, value in result.example.items())}")
    lines.append(f"    replay    {replay}")
    return lines


def _places(claim: Claim) -> str:
    """The first place in the documents, and how many more there are."""
    more = f"; and {len(claim.where) - 1} more" if len(claim.where) > 1 else ""
    return f"{claim.where[0]}{more}" if claim.where else "no place"


def _headline(result: Result, blocks: int) -> str:
    return f"{result.verdict} {result.claim}" + (f"  (explains {blocks} more)" if blocks else "")


def _distance(result: Result) -> str:
    if not math.isfinite(result.error) or result.error == 0:
        return ""
    return f" (off by {result.error:.3g}, bound {result.bound:.3g} by {result.reason}, margin {result.margin:.3g})"


_SHOWN_IN_FULL = (Verdict.FAIL, Verdict.ERROR, Verdict.UNEXPECTED_PASS, Verdict.VACUOUS)


def summary_lines(report: Report, replay: Callable[[str], str], height: int) -> list[str]:
    """The summary in at most about `height` lines: counts, root causes in full as far as they fit, what is missing."""
    results = report.folded()
    blocked = Counter(result.root for result in results.values() if result.verdict is Verdict.BLOCKED)
    lines = [*_notes_lines(report.notes, height // 3), _counts_line(results)]
    tail = [*_known_lines(results, blocked), *_missing_lines(results)]
    roots = [slug for slug, result in results.items() if result.verdict in _SHOWN_IN_FULL]
    left = []
    for slug in sorted(roots, key=lambda slug: -blocked[slug]):
        full = broken_lines(results[slug], report.catalogue.claims[slug], replay(slug), blocked[slug])
        if len(lines) + len(full) + len(tail) <= height:
            lines += full
        else:
            left.append(slug)
    named = max(height - len(lines) - len(tail) - 1, 3)
    lines += [_headline(results[slug], blocked[slug]) for slug in left[:named]]
    if left[named:]:
        lines.append(
            f"... and {len(left) - named} more: -rf lists them, --tb=short or --claims-report FILE.html shows all"
        )
    return [*lines, *tail]


def _notes_lines(notes: Sequence[str], room: int) -> list[str]:
    more = [f"... and {len(notes) - room} more in --claims-report FILE.html"] if len(notes) > room else []
    return [*notes[:room], *more]


def _known_lines(results: Mapping[str, Result], blocked: Mapping[str, int]) -> list[str]:
    known = [slug for slug in blocked if results[slug].verdict is Verdict.KNOWN_FAILURE]
    return [f"{blocked[slug]} BLOCKED by the known failure {slug}" for slug in known]


def _missing_lines(results: Mapping[str, Result], reasons: int = 6) -> list[str]:
    """What is not provided: how many claims, and the most frequent reasons."""
    missing = Counter(r.message or "no reason given" for r in results.values() if r.verdict is Verdict.NOT_PROVIDED)
    if not missing:
        return []
    more = f", {len(missing) - reasons} other reasons in the report" if len(missing) > reasons else ""
    return [
        f"{Verdict.NOT_PROVIDED} ({missing.total()} claims{more}):",
        *(f"    {number:4} x {reason}" for reason, number in missing.most_common(reasons)),
    ]


def _counts_line(results: Mapping[str, Result]) -> str:
    numbers = counts(results)
    kept = numbers[Verdict.PASS]
    parts = [f"{number} {verdict}" for verdict, number in numbers.items() if number or verdict in _ALWAYS_COUNTED]
    return f"{kept} of {len(results)} claims kept: {', '.join(parts)}"


_ALWAYS_COUNTED = (Verdict.PASS, Verdict.FAIL, Verdict.NOT_PROVIDED)


# --- files ----------------------------------------------------------------------------------------


def write_report(report: Report, path: Path) -> None:
    """Write `path`: JSON or HTML by its suffix."""
    text = json.dumps(to_json(report), indent=1, ensure_ascii=False) if path.suffix == ".json" else to_html(report)
    path.write_text(text + "\n", encoding="utf-8")


def to_json(report: Report) -> dict[str, Any]:
    """The report as JSON values (see the module's docstring)."""
    results = report.folded()
    return {
        "schema": SCHEMA,
        "implementation": report.implementation,
        "budget": report.budget,
        "notes": report.notes,
        "attributes": _finite(report.attributes),
        "counts": {verdict.value: number for verdict, number in counts(results).items()},
        "total": len(results),
        "claims": [_claim_json(report.catalogue.claims[slug], result) for slug, result in results.items()],
    }


def _claim_json(claim: Claim, result: Result) -> dict[str, Any]:
    values = result.to_json()
    del values["claim"], values["notes"], values["attributes"]
    return {
        "slug": claim.slug,
        "says": claim.says,
        "topic": claim.topic,
        "kind": claim.kind,
        "claim_verdict": claim.verdict,
        "where": list(claim.where),
        "sources": list(claim.sources),
        **{name: _finite(value) for name, value in values.items()},
        "margin": _finite(result.margin),
    }


def _finite(value: Any) -> Any:
    """The value with numbers that JSON lacks as strings."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; padding: .3rem .6rem; vertical-align: top; }
tr { border-top: 1px solid #ddd; }
code, pre { font: 13px/1.4 ui-monospace, monospace; white-space: pre-wrap; }
.v { font-weight: 600; white-space: nowrap; color: #b3261e; }
.PASS { color: #177245; }
.BLOCKED, .NOT, .KNOWN { color: #7a5c00; }
.where { color: #666; }
"""


def to_html(report: Report) -> str:
    """One self-contained page: counts, then every claim with its verdict and evidence, broken ones first."""
    results = report.folded()
    order = [*_SHOWN_IN_FULL, Verdict.BLOCKED, Verdict.KNOWN_FAILURE, Verdict.NOT_PROVIDED, Verdict.PASS]
    slugs = sorted(results, key=lambda slug: order.index(results[slug].verdict))
    rows = "\n".join(_html_row(report.catalogue.claims[slug], results[slug]) for slug in slugs)
    conventions = [
        f"{role}: {name} = {value}" for role, values in report.attributes.items() for name, value in values.items()
    ]
    notes = "".join(f"<li>{html.escape(note)}</li>" for note in [*report.notes, *conventions])
    title = html.escape(f"Claims kept by {report.implementation}")
    head = f'<meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style>'
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body><h1>{title}</h1>\n'
        f"<p>{html.escape(_counts_line(results))}</p>\n<ul>{notes}</ul>\n"
        f"<table><tr><th>Verdict</th><th>Claim</th><th>Evidence</th></tr>\n{rows}\n</table></body></html>"
    )


def _html_row(claim: Claim, result: Result) -> str:
    evidence = "\n".join(line.strip() for line in broken_lines(result, claim, "")[2:-1])
    if result.root:
        evidence = f"blocked by {result.root}\n{evidence}"
    where = html.escape("; ".join(claim.where))
    return (
        f'<tr><td class="v {result.verdict.split()[0]}">{result.verdict}</td>'
        f'<td>{html.escape(claim.says)}<br><code>{claim.slug}</code> <span class="where">{where}</span></td>'
        f"<td><pre>{html.escape(evidence)}</pre></td></tr>"
    )
