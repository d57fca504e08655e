"""What is wrong, at the user's lines: SARIF 2.1.0 for code scanning, and GitHub's workflow commands.

Both are made from the report as JSON (`conformance.report.to_json`). A claim that fails the run is an error, a note a
notice. What has no line of the user's code stands in SARIF without a place, and in GitHub's log without a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from conformance.places import file_and_line
from conformance.verdict import SHOWN_IN_FULL, Verdict

Json = Mapping[str, Any]

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


def to_sarif(reports: Sequence[Json]) -> dict[str, Any]:
    """Each report as a SARIF run: a rule for each claim that is broken or noted, a result at its line."""
    return {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": list(map(_run, reports))}


def _run(report: Json) -> dict[str, Any]:
    found = list(_found(report))
    return {
        "tool": {"driver": {"name": "conformance", "rules": [_rule(claim) for claim, _ in found]}},
        "automationDetails": {"id": f"conformance/{report['implementation']}/"},  # code scanning wants one for each run
        "results": [_result(claim, level, index) for index, (claim, level) in enumerate(found)],
        "properties": {"implementation": report["implementation"], "untested": list(report["untested"])},
    }


def github_commands(report: Json) -> list[str]:
    """Workflow commands that GitHub shows at the lines of a change, one line each."""
    untested = [_command("error", {"title": "not tested"}, sentence) for sentence in report["untested"]]
    return [*untested, *(_github(claim, level) for claim, level in _found(report))]


def _found(report: Json) -> Iterator[tuple[Json, str]]:
    """The claims that fail the run and the notes, each with SARIF's level."""
    for claim in report["claims"]:
        if claim["verdict"] in SHOWN_IN_FULL:
            yield claim, "error"
        elif claim["verdict"] == Verdict.NOTE:
            yield claim, "note"


def _message(claim: Json) -> str:
    """What is wrong, what would mend it, and what was seen, in a few sentences."""
    seen = f"{claim['what']}: expected {claim['expected']}, got {claim['got']}." if claim["what"] else ""
    mend = f"To mend it: {claim['mend']}." if claim["mend"] else ""
    wrong = claim["diagnosis"] or claim["message"] or f"Not kept: {claim['says'].strip()}"
    return " ".join(filter(None, [wrong, mend, seen]))


def _rule(claim: Json) -> dict[str, Any]:
    return {
        "id": claim["slug"],
        "shortDescription": {"text": claim["says"].strip()},
        "help": {"text": f"Sources: {'; '.join(claim['cited'])}. Replay: {claim['replay']}"},
    }


def _result(claim: Json, level: str, index: int) -> dict[str, Any]:
    result = {"ruleId": claim["slug"], "ruleIndex": index, "level": level, "message": {"text": _message(claim)}}
    place = file_and_line(claim["place"])
    if place is None:
        return result
    file, line = Path(place[0]), place[1]
    uri = file.as_uri() if file.is_absolute() else quote(file.as_posix())
    region = {"artifactLocation": {"uri": uri}, "region": {"startLine": line}}
    return {**result, "locations": [{"physicalLocation": region}]}


def _github(claim: Json, level: str) -> str:
    place = file_and_line(claim["place"])
    where = {"file": place[0], "line": str(place[1])} if place else {}
    return _command("error" if level == "error" else "notice", {**where, "title": claim["slug"]}, _message(claim))


def _command(name: str, properties: Mapping[str, str], message: str) -> str:
    """ "::error file=model.py,line=3,title=...::message", escaped as GitHub asks."""
    pairs = ",".join(
        f"{key}={_escaped(value).replace(':', '%3A').replace(',', '%2C')}" for key, value in properties.items()
    )
    return f"::{name} {pairs}::{_escaped(message)}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
