"""What is wrong, in Markdown: the summary of a step in GitHub Actions, a comment of a review, a file beside the code.

It is made from the report as JSON (`conformance.report.to_json`) and keeps the terminal's order: what was not tested,
what is wrong, notes, counts. What comes from an implementation is escaped or stands in a fence, so that it can neither
close the fence nor add markup.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from conformance.verdict import SHOWN_IN_FULL, Verdict

Json = Mapping[str, Any]

SHOWN = 20
"""How many failures are told in full; GitHub's summary of a step takes one megabyte."""


def to_markdown(reports: Sequence[Json]) -> str:
    """A section for each report."""
    return "\n".join("\n".join(_section(report)) for report in reports)


def _section(report: Json) -> Iterator[str]:
    broken = [claim for claim in report["claims"] if claim["verdict"] in SHOWN_IN_FULL]
    explained = Counter(claim["root"] for claim in report["claims"] if claim["verdict"] == Verdict.BLOCKED)
    yield f"## {_escaped(report['implementation'])}: {_headline(report, broken)}\n"
    for sentence in report["untested"]:
        yield f"- **NOT TESTED:** {_escaped(sentence)}"
    if report["untested"]:
        yield ""
    for claim in broken[:SHOWN]:
        yield from _failure(claim, explained[claim["slug"]])
    if broken[SHOWN:]:
        yield (
            f"{len(broken) - SHOWN} more failures: "
            + ", ".join(f"`{claim['slug']}`" for claim in broken[SHOWN:])
            + "\n"
        )
    notes = [claim for claim in report["claims"] if claim["verdict"] == Verdict.NOTE]
    if notes:
        yield "<details><summary>Notes, none of them a failure</summary>\n"
        for claim in notes:
            yield f"- {_escaped(claim['says'])} {_escaped(claim['what'])}: {_escaped(claim['got'])}"
        yield "\n</details>\n"
    yield _counted(report) + "\n"


def _headline(report: Json, broken: Sequence[Json]) -> str:
    if broken:
        return f"{len(broken)} {'mistake' if len(broken) == 1 else 'mistakes'}"
    return "not wholly tested" if report["untested"] else "no mistake found"


def _failure(claim: Json, explains: int) -> Iterator[str]:
    """One failure, from what is wrong to the command that replays it."""
    yield f"### {claim['verdict']}: {_escaped(claim['diagnosis'] or claim['message'] or claim['says'])}\n"
    fields = {
        "at": claim["place"],
        "mend": claim["mend"],
        "expected": f"{claim['what']}: {claim['expected']}" if claim["what"] else "",
        "got": claim["got"] if claim["what"] else "",
        "replay": claim["replay"],
    }
    yield from _fence([f"{name:8}  {text}" for name, text in fields.items() if text])
    more = f" It explains {explains} more." if explains else ""
    source = f" Source: {_escaped(claim['cited'][0])}." if claim["cited"] else ""
    yield f"Claim `{claim['slug']}`: {_escaped(claim['says'])}{source}{more}\n"


def _counted(report: Json) -> str:
    counts = ", ".join(f"{number} {verdict}" for verdict, number in report["counts"].items() if number)
    kept = report["counts"].get("PASS", 0)
    return f"{kept} of {report['about']} claims kept, of those about what it has. All: {counts}."


def _fence(lines: Sequence[str]) -> Iterator[str]:
    """The lines between fences that are longer than any run of backticks in them."""
    text = "\n".join(lines)
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}text\n{text}\n{fence}\n"


def _escaped(text: str) -> str:
    """The text on one line, with every character that Markdown or HTML could read as markup taken literally."""
    plain = " ".join(str(text).split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|#~@!])", r"\\\1", plain)
