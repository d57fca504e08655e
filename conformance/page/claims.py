"""The claims of the page: a fold for each, with what its result in each report rests on.

What is wrong comes first, as on the terminal (`conformance.summary`): in words, the line of the user's code, the change
that would mend it, expected beside got; then the claim's sources, and the command that replays it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from conformance.page.pictures import pictures_of
from conformance.verdict import BROKEN, ORDER, SHOWN_IN_FULL, Verdict

Json = Mapping[str, Any]

ABSENT = "-"
"""Stands for the verdict of an implementation that was not asked about a claim."""


class Row:
    """A claim with its result in each report, `None` where a report has none, and the claims that each explains."""

    def __init__(
        self, slug: str, results: Sequence[Json | None], explained: Sequence[Sequence[str]], names: Sequence[str]
    ):
        self.slug = slug
        self.results = results
        self.explained = explained
        self.names = names
        self.claim: Json = next(result for result in results if result is not None)
        self.verdicts = tuple(ABSENT if result is None else str(result["verdict"]) for result in results)

    @property
    def rank(self) -> tuple[bool, list[int]]:
        """Where it stands: claims whose verdicts differ first, then by the verdict that needs attention."""
        places = [(*ORDER, ABSENT).index(verdict) for verdict in self.verdicts]
        return len(set(places)) == 1, sorted(places) + places


def rows_of(reports: Sequence[Json]) -> list[Row]:
    by_slug = [{claim["slug"]: claim for claim in report["claims"]} for report in reports]
    slugs = dict.fromkeys(slug for claims in by_slug for slug in claims)
    names = [report["implementation"] for report in reports]
    explained = [_explained(report) for report in reports]
    rows = (Row(slug, [c.get(slug) for c in by_slug], [e.get(slug, []) for e in explained], names) for slug in slugs)
    return sorted(rows, key=lambda row: row.rank)


def _explained(report: Json) -> dict[str, list[str]]:
    """Claim -> the claims that are BLOCKED by it."""
    found: dict[str, list[str]] = {}
    for claim in report["claims"]:
        if claim["root"]:
            found.setdefault(claim["root"], []).append(claim["slug"])
    return found


def group_of(verdicts: Sequence[str], rows: Sequence[Row]) -> str:
    heading = f"<h2>{' / '.join(verdicts)} <small>{len(rows)}</small></h2>"
    return f'<section class="group">{heading}\n{"".join(map(_claim, rows))}</section>\n'


def _claim(row: Row) -> str:
    claim = row.claim
    badges = "".join(
        f'<b class="verdict {style_of(verdict)}" title="{escape(name)}">{verdict}</b>'
        for verdict, name in zip(row.verdicts, row.names, strict=True)
    )
    results = [
        (name if len(row.names) > 1 else "", result, explained)
        for result, explained, name in zip(row.results, row.explained, row.names, strict=True)
        if result is not None
    ]
    evidence = "".join(_evidence(result, explained, name) for name, result, explained in results)
    replays = "".join(_replay(result, name) for name, result, _ in results)
    is_open = len(row.names) == 1 and row.verdicts[0] in SHOWN_IN_FULL
    diagnosis = row.claim["diagnosis"] if is_open else ""
    wrong = f'<strong class="wrong">{escape(diagnosis)}</strong> ' if diagnosis else ""
    return f"""<details class="claim" id="{escape(row.slug)}" data-verdicts="{escape("|".join(row.verdicts))}"
 {data_of(claim)}{" open" if is_open else ""}>
<summary>{badges}<span class="says">{wrong}{escape(claim["says"])} <code>{escape(row.slug)}</code></span></summary>
<div class="body">
{evidence}{_correction(claim)}<dl>{sources_of(claim)}{pair("depends on", ", ".join(map(link, claim["depends"])))}{
        replays
    }</dl>
</div>
</details>
"""


def data_of(claim: Json) -> str:
    """What the filters read: the topic, and the documents (or the origin), for `page.js` to group and sort by."""
    documents = " ".join(dict.fromkeys(place.split(" ", 1)[0] for place in claim["where"])) or claim["origin"]
    return f'data-topic="{escape(claim["topic"])}" data-documents="{escape(documents)}"'


def _evidence(result: Json, explained: Sequence[str], name: str) -> str:
    """What one implementation's result rests on: what is wrong first."""
    verdict = str(result["verdict"])
    example = " ".join(
        f"<code>{escape(str(key))}={escape(str(value))}</code>" for key, value in result["example"].items()
    )
    smallest = "smallest example" if verdict in BROKEN or verdict == Verdict.BLOCKED else "closest example"
    pairs = [
        pair("wrong", escape(result["diagnosis"]) if name else ""),  # of one implementation it stands above
        pair("blocked by", link(result["root"]) if result["root"] else ""),
        pair("message", escape(result["message"])),
        pair("at", f"<code>{escape(result['place'])}</code>" if result["place"] else ""),
        pair("and", "<br>".join(f"<code>{escape(line)}</code>" for line in result.get("also", ()))),
        pair("mend", escape(result["mend"])),
        pair("tested", escape(result["what"])),
        pair("expected", f"<code>{escape(result['expected'])}</code>" if result["what"] else ""),
        pair("got", f"<code>{escape(result['got'])}</code>" if result["what"] else ""),
        pair("picture", pictures_of(result["pictures"])),
        pair("distance", _distance(result)),
        pair(smallest, example),
        pair("examples", str(result["examples"]) if result["what"] else ""),
        pair("explains", ", ".join(map(link, explained))),
    ]
    heading = f'<h3>{escape(name)} <b class="verdict {style_of(verdict)}">{verdict}</b></h3>' if name else ""
    return f'<section class="evidence">{heading}<dl>{"".join(pairs)}</dl></section>\n'


def _replay(result: Json, name: str) -> str:
    if result["verdict"] in (Verdict.NOT_PROVIDED, Verdict.NOT_SEEN):
        return ""
    return pair(f"replay {escape(name)}".strip(), f'<code class="replay">{escape(result["replay"])}</code>')


def _distance(result: Json) -> str:
    """Error, bound and margin, as far as there are any: exact comparisons have none."""
    if not result["what"] or result["reason"] == "exact" or result["bound"] == 0:
        return ""
    margin = "exact" if result["margin"] == "inf" else f"margin {_number(result['margin'])}"
    return (
        f"off by {_number(result['error'])}, bound {_number(result['bound'])} ({escape(result['reason'])}): "
        f"<strong>{margin}</strong>"
    )


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.3g}"


def _correction(claim: Json) -> str:
    if not claim["correction"]:
        return ""
    return f'<p class="correction"><strong>As written it is wrong.</strong> {escape(claim["correction"])}</p>\n'


def sources_of(claim: Json) -> str:
    """Where the claim comes from, in words, and the numbered statements of the documents that it covers."""
    cited = "<br>".join(escape(source) for source in claim["cited"])
    return pair("source", cited) + pair("rows", escape(" ".join(claim["sources"])))


def link(slug: str) -> str:
    return f'<a href="#{escape(slug)}">{escape(slug)}</a>'


def pair(term: str, description: str) -> str:
    """A term with its description (HTML); nothing where there is none."""
    return f"<dt>{term}</dt><dd>{description}</dd>" if description else ""


def headline(claim: Json) -> str:
    """What is wrong, where that is known; else what the claim says."""
    return str(claim["diagnosis"] if claim["verdict"] != Verdict.PASS and claim["diagnosis"] else claim["says"])


def style_of(verdict: str) -> str:
    """The style of a verdict: "NOT PROVIDED" -> "not-provided"."""
    return "absent" if verdict == ABSENT else verdict.lower().replace(" ", "-")
