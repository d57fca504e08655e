"""What a run came to, for people and programs: the terminal summary, and JSON with a published schema.

The page for a browser is made from the JSON (`conformance.page`), and so is the comparison of runs
(`conformance.comparison`).
"""

from __future__ import annotations

import json
import math
import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.catalogue import Catalogue, Claim
from conformance.outcome import untested_core
from conformance.page import to_html
from conformance.verdict import Result, Verdict, counts, fold

SCHEMA = 2


class ReportError(ValueError):
    """A file is no report that this version can read."""


@dataclass(frozen=True)
class Report:
    """The results of a run by slug, before folding, and what they are of.

    kind: what the implementation says it is, such as "language_model", or None. chosen: the claims that were asked
    for, those about the documents too. replay: the command that runs a claim again.
    """

    implementation: str
    kind: str | None
    budget: str
    seed: int
    results: Mapping[str, Result]
    catalogue: Catalogue
    chosen: Sequence[Claim]
    replay: Callable[[str], str]

    @property
    def notes(self) -> list[str]:
        """What the implementation said about itself, each line once."""
        return list(dict.fromkeys(note for result in self.results.values() for note in result.notes))

    @property
    def untested(self) -> list[str]:
        """What of the implementation's core was not tested and why, one sentence each."""
        said = dict.fromkeys(sentence for result in self.results.values() for sentence in result.untested)
        return untested_core(self.kind, list(said), self.results, self.catalogue)

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
    places = (*claim.where, *claim.source)
    more = f"; and {len(places) - 1} more" if len(places) > 1 else ""
    return f"{places[0]}{more}" if places else "no place"


def _headline(result: Result, blocks: int) -> str:
    return f"{result.verdict} {result.claim}" + (f"  (explains {blocks} more)" if blocks else "")


def _distance(result: Result) -> str:
    if not math.isfinite(result.error) or result.error == 0:
        return ""
    return f" (off by {result.error:.3g}, bound {result.bound:.3g} by {result.reason}, margin {result.margin:.3g})"


_SHOWN_IN_FULL = (Verdict.FAIL, Verdict.ERROR, Verdict.UNEXPECTED_PASS, Verdict.VACUOUS)


def summary_lines(report: Report, height: int) -> list[str]:
    """The summary in at most about `height` lines: counts, root causes in full as far as they fit, the most specific
    first, and what is missing."""
    results = report.folded()
    blocked = Counter(result.root for result in results.values() if result.verdict is Verdict.BLOCKED)
    lines = [f"NOT TESTED: {sentence}" for sentence in report.untested]
    lines += [*_notes_lines(report.notes, height // 3), _counts_line(results)]
    tail = [*_known_lines(results, blocked), *_noted_lines(report, results), *_missing_lines(results)]
    roots = [slug for slug, result in results.items() if result.verdict in _SHOWN_IN_FULL]
    left = []
    for slug in most_specific_first(roots):
        full = broken_lines(results[slug], report.catalogue.claims[slug], report.replay(slug), blocked[slug])
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


def most_specific_first(claims: Sequence[str]) -> list[str]:
    """Claims that few mistakes break before those that many do: the first one says best what is wrong.

    A formula fails with whatever is wrong in its component; the claim about the scale fails with the scale. Counted are
    the mutants that name a claim.
    """
    if len(claims) < 2:
        return list(claims)
    from conformance.mutants import MUTANTS  # needs numpy, which the report of a run that passes does without

    named = Counter(claim for mutant in MUTANTS.values() for claim in mutant.breaks)
    return sorted(claims, key=lambda claim: named[claim])


def _notes_lines(notes: Sequence[str], room: int) -> list[str]:
    """What the implementation said about itself; where there is no room for all, headings and doubts come first."""
    chosen = list(notes)
    if len(notes) > room:
        heads = [i for i, note in enumerate(notes) if not note.startswith(" ")]
        rest = [i for i, note in enumerate(notes) if note.startswith(" ")]
        chosen = [notes[i] for i in sorted([*heads, *rest][:room])]
    more = f"... and {len(notes) - room} more lines in --claims-report FILE.html"
    return [*chosen, *([more] if len(notes) > room else [])]


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
        return f"{result.what}: {result.got}"
    says = textwrap.shorten(claim.says, 90, placeholder=" ...")
    return f"not by the convention: {says} ({result.what}: {result.got})"


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


# --- JSON -----------------------------------------------------------------------------------------


def write_report(report: Report, path: Path) -> None:
    """Write `path`: JSON or HTML by its suffix."""
    values = to_json(report)
    text = json.dumps(values, indent=1, ensure_ascii=False) if path.suffix == ".json" else to_html([values])
    path.write_text(text + "\n", encoding="utf-8")


def read_report(path: Path) -> dict[str, Any]:
    """A report that `write_report` wrote as JSON. Raises ReportError, in one sentence, when it is none."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ReportError(f"the report {path} cannot be read: {error.strerror}") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ReportError(f"the report {path} is not JSON; write one with --claims-report FILE.json") from error
    if not isinstance(values, dict) or values.get("schema") != SCHEMA:
        raise ReportError(
            f"{path} is no report of schema {SCHEMA}; write one with this installation's --claims-report FILE.json"
        )
    return values


def to_json(report: Report) -> dict[str, Any]:
    """The report as JSON values; `conformance/schemas/report.schema.json` says what each means."""
    results = report.folded()
    catalogue = report.catalogue
    return {
        "schema": SCHEMA,
        "implementation": report.implementation,
        "kind": report.kind,
        "untested": report.untested,
        "budget": report.budget,
        "seed": report.seed,
        "notes": report.notes,
        "attributes": _plain(report.attributes),
        "counts": {verdict.value: number for verdict, number in counts(results).items()},
        "total": len(results),
        "documents": {number: document.english for number, document in catalogue.documents.items()},
        "claims": [
            _result_json(catalogue, catalogue.claims[slug], result, report.replay(slug))
            for slug, result in results.items()
        ],
        "errata": [_erratum_json(catalogue, claim) for claim in report.chosen if claim.verdict == "erratum"],
    }


def _claim_json(catalogue: Catalogue, claim: Claim) -> dict[str, Any]:
    return {
        "slug": claim.slug,
        "says": claim.says,
        "topic": claim.topic,
        "kind": claim.kind,
        "origin": claim.origin,
        "cited": catalogue.cited(claim),
        "where": list(claim.where),
        "sources": list(claim.sources),
        "since": claim.since,
        "depends": list(claim.depends),
        "correction": claim.correction,
    }


def _result_json(catalogue: Catalogue, claim: Claim, result: Result, replay: str) -> dict[str, Any]:
    values = result.to_json()
    del values["claim"], values["notes"], values["untested"], values["attributes"]
    values |= {"claim_verdict": claim.verdict, "margin": result.margin, "replay": replay}
    return _claim_json(catalogue, claim) | _plain(values)


def _erratum_json(catalogue: Catalogue, claim: Claim) -> dict[str, Any]:
    """An erratum with what its witness sees now."""
    from conformance.evidence import shown  # needs numpy, which the report of a run does without
    from conformance.verifications import VERIFICATIONS, witnessed

    evidence = witnessed(VERIFICATIONS[claim.slug])
    expected, got = evidence.sides()
    witness = {"ok": evidence.ok, "what": evidence.what, "expected": expected, "got": got}
    for name in ("written", "actual"):
        witness[name] = shown(evidence.details[name]) if name in evidence.details else ""
    return _claim_json(catalogue, claim) | {"witness": witness}


def _plain(value: Any) -> Any:
    """The value with numbers that JSON lacks as the strings "inf", "-inf" and "nan"."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
