"""What a run came to (`Report`), and its form for programs: JSON with a published schema.

The summary on the terminal is made from the report (`conformance.summary`); the page for a browser (`conformance.page`)
and the comparison of runs (`conformance.comparison`) from the JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.annotations import to_sarif
from conformance.badge import to_badge
from conformance.catalogue import Catalogue, Claim
from conformance.files import write_text
from conformance.markdown import to_markdown
from conformance.outcome import untested_core
from conformance.page import to_html
from conformance.roots import fold, most_specific_first
from conformance.schema import fault
from conformance.verdict import ABSENT, ORDER, SHOWN_IN_FULL, Result, Verdict, counts

SCHEMA = 2


LARGEST = 2**28
"""Bytes of the largest report that is read."""


class ReportError(ValueError):
    """A file is no report that this version can read."""


@dataclass(frozen=True)
class Report:
    """The results of a run by slug, before folding, and what they are of.

    kind: what the implementation says it is, such as "language_model", or None. chosen: the claims that were asked
    for, those about the documents too. replay: the command that runs a claim again. course: of a training run that was
    watched.
    """

    implementation: str
    kind: str | None
    budget: str
    seed: int
    results: Mapping[str, Result]
    catalogue: Catalogue
    chosen: Sequence[Claim]
    replay: Callable[[str], str]
    course: Mapping[str, Any] = field(default_factory=dict)

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
    def graph(self) -> list[Mapping[str, Any]]:
        """The boxes of the implementation's graph; none where no run was recorded."""
        return list(next((result.graph for result in self.results.values() if result.graph), ()))

    @property
    def tested(self) -> bool:
        """Whether any claim was tested."""
        return any(result.verdict not in ABSENT for result in self.results.values())

    @property
    def broken(self) -> bool:
        """Whether any claim fails the run."""
        return any(result.verdict in SHOWN_IN_FULL for result in self.results.values())

    @property
    def attributes(self) -> dict[str, dict[str, Any]]:
        """The conventions of the implementation's subjects, by role."""
        merged: dict[str, dict[str, Any]] = {}
        for result in self.results.values():
            for role, values in result.attributes.items():
                merged.setdefault(role, {}).update(values)
        return {role: values for role, values in sorted(merged.items()) if values}

    def folded(self) -> dict[str, Result]:
        """The results in the order in which they are shown, failures folded to their root causes.

        By verdict, what needs attention first; of the failures those whose mistake is known first, then the most
        specific; then in catalogue order.
        """
        folded = fold(self.results, self.catalogue)
        broken = [slug for slug, result in folded.items() if result.verdict in SHOWN_IN_FULL]
        specific = {slug: place for place, slug in enumerate(most_specific_first(broken))}
        slugs = [slug for slug in self.catalogue.claims if slug in folded]
        slugs.sort(
            key=lambda slug: (ORDER.index(folded[slug].verdict), not folded[slug].diagnosis, specific.get(slug, 0))
        )
        return {slug: folded[slug] for slug in slugs}

    def about(self) -> list[str]:
        """The claims that speak about components that the implementation has."""
        has = {role for result in self.results.values() for role in result.attributes}
        return [
            slug
            for slug, result in self.results.items()
            if slug in self.catalogue.claims
            and result.verdict is not Verdict.NOT_SEEN
            and (result.verdict is not Verdict.NOT_PROVIDED or (result.roles and has.issuperset(result.roles)))
        ]


# --- JSON -----------------------------------------------------------------------------------------


def write_reports(reports: Sequence[Report], path: Path) -> None:
    """Write `path` in the form that its suffix names, one of FORMS. Raises OSError."""
    write_text(path, FORMS[path.suffix](list(map(to_json, reports))) + "\n")


def _text(values: Any) -> str:
    return json.dumps(values, indent=1, ensure_ascii=False)


FORMS: dict[str, Callable[[list[dict[str, Any]]], str]] = {
    ".html": to_html,
    ".json": lambda reports: _text(reports[0] if len(reports) == 1 else {"schema": SCHEMA, "subjects": reports}),
    ".sarif": lambda reports: _text(to_sarif(reports)),
    ".md": to_markdown,
    ".svg": to_badge,
}
"""Suffix -> reports as JSON values in that form."""


def read_reports(path: Path) -> list[dict[str, Any]]:
    """The reports that `write_reports` wrote as JSON. Raises ReportError, in one sentence, when the file holds none."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
        values = json.loads(data.decode()) if len(data) <= LARGEST else None
    except OSError as error:
        raise ReportError(f"the report {path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ReportError(f"the report {path} is not JSON; write one with --claims-report FILE.json") from error
    if not isinstance(values, dict) or values.get("schema") != SCHEMA:
        raise ReportError(
            f"{path} is no report of schema {SCHEMA}; write one with this installation's --claims-report FILE.json"
        )
    schema = json.loads((Path(__file__).parent / "schemas" / "report.schema.json").read_text(encoding="utf-8"))
    if what := fault(values, schema["oneOf"][1] if "subjects" in values else schema["oneOf"][0], schema):
        raise ReportError(f"{path} is no whole report: {what}; write it again with --claims-report FILE.json")
    reports: list[dict[str, Any]] = values.get("subjects", [values])
    return reports


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
        "graph": report.graph,
        **({"course": report.course} if report.course else {}),
        "counts": {verdict.value: number for verdict, number in counts(results).items()},
        "total": len(results),
        "about": len(report.about()),
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
    for name in ("claim", "notes", "untested", "attributes", "graph"):
        del values[name]
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
