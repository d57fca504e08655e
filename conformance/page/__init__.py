"""One self-contained HTML page of one report, or of several implementations side by side (`to_html`).

The page is whole without scripts: every claim is a `<details>` with its evidence. `page.js` only filters and regroups
what stands there; `page.css` knows light and dark. Everything that comes from a report is escaped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

from conformance.verdict import BROKEN, ORDER, Verdict

Json = Mapping[str, Any]

_FOLDER = Path(__file__).parent
ABSENT = "-"
"""Stands for the verdict of an implementation that was not asked about a claim."""


def to_html(reports: Sequence[Json]) -> str:
    """The page of reports as JSON (`conformance.report.to_json`), a column of verdicts each."""
    names = [report["implementation"] for report in reports]
    title = f"Claims kept by {', '.join(names)}"
    rows = _rows(reports)
    errata = {erratum["slug"]: erratum for report in reports for erratum in report["errata"]}
    documents = {number: title for report in reports for number, title in report["documents"].items()}
    style, script = ((_FOLDER / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body style="--columns: {len(reports)}">
<header>
<h1>{escape(title)}</h1>
{"".join(_implementation(report, heading=len(reports) > 1) for report in reports)}
</header>
{_filters(rows, errata, documents)}
<main>
{_columns(names)}
<div id="claims">
{"".join(_group(verdicts, list(group), errata) for verdicts, group in groupby(rows, key=lambda row: row.verdicts))}
</div>
<p id="nothing" hidden>No claim matches the filters.</p>
{_errata(errata.values())}
</main>
<script>
{script}</script>
</body>
</html>"""


class _Row:
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


def _rows(reports: Sequence[Json]) -> list[_Row]:
    by_slug = [{claim["slug"]: claim for claim in report["claims"]} for report in reports]
    slugs = dict.fromkeys(slug for claims in by_slug for slug in claims)
    names = [report["implementation"] for report in reports]
    explained = [_explained(report) for report in reports]
    rows = (_Row(slug, [c.get(slug) for c in by_slug], [e.get(slug, []) for e in explained], names) for slug in slugs)
    return sorted(rows, key=lambda row: row.rank)


def _explained(report: Json) -> dict[str, list[str]]:
    """Claim -> the claims that are BLOCKED by it."""
    found: dict[str, list[str]] = {}
    for claim in report["claims"]:
        if claim["root"]:
            found.setdefault(claim["root"], []).append(claim["slug"])
    return found


# --- head -----------------------------------------------------------------------------------------


def _implementation(report: Json, heading: bool) -> str:
    """Name, counts, a bar of verdicts, and what the implementation said about itself."""
    counts = {verdict: report["counts"][verdict] for verdict in ORDER if report["counts"][verdict]}
    bar = "".join(
        f'<span class="{_class(verdict)}" style="flex-grow: {number}" title="{number} {verdict}"></span>'
        for verdict, number in reversed(counts.items())
    )
    kept = report["counts"][Verdict.PASS.value]
    numbers = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    conventions = [
        f"{role}: {name} = {value}" for role, values in report["attributes"].items() for name, value in values.items()
    ]
    said = [*report["notes"], *conventions]
    notes = (
        f"<details><summary>What it is taken for</summary><ul>"
        f"{''.join(f'<li>{escape(str(line))}</li>' for line in said)}</ul></details>"
        if said
        else ""
    )
    return f"""<section class="implementation">
{f"<h2>{escape(report['implementation'])}</h2>" if heading else ""}
<p><strong>{kept} of {report["total"]} claims kept</strong> (budget {escape(report["budget"])}): {numbers}</p>
<div class="bar" role="img" aria-label="{numbers}">{bar}</div>
{notes}
</section>
"""


def _filters(rows: Sequence[_Row], errata: Mapping[str, Json], documents: Mapping[str, str]) -> str:
    present = [v for v in ORDER if any(v in row.verdicts for row in rows)]
    chips = "".join(
        f'<button type="button" class="chip {_class(verdict)}" data-verdict="{verdict}" aria-pressed="false">'
        f"{verdict} <small>{sum(verdict in row.verdicts for row in rows)}</small></button>"
        for verdict in present
    )
    differing = sum(not row.rank[0] for row in rows)
    if differing:
        chips += (
            '<button type="button" class="chip" data-verdict="differs" aria-pressed="false">'
            f"verdicts differ <small>{differing}</small></button>"
        )
    topics = sorted({row.claim["topic"] for row in rows} | {erratum["topic"] for erratum in errata.values()})
    return f"""<form id="filters" role="search" aria-label="Filter the claims">
<div class="chips" role="group" aria-label="Verdicts">{chips}</div>
<label>Text <input type="search" id="text" placeholder="press / to search" autocomplete="off"></label>
<label>Topic {_select("topic", {topic: topic for topic in topics}, "every topic")}</label>
<label>Document {_select("document", {n: f"{n} {title}" for n, title in documents.items()}, "every document")}</label>
<label>Group by <select id="group"><option>verdict</option><option>topic</option><option>document</option></select>
</label>
<button type="button" id="unfold">Unfold</button>
<button type="reset">Reset</button>
<output id="shown" aria-live="polite">{len(rows)} claims</output>
</form>
"""


def _select(name: str, options: Mapping[str, str], everything: str) -> str:
    rest = "".join(f'<option value="{escape(value)}">{escape(text)}</option>' for value, text in options.items())
    return f'<select id="{name}"><option value="">{everything}</option>{rest}</select>'


def _columns(names: Sequence[str]) -> str:
    """Headings over the verdicts, where there are several."""
    if len(names) == 1:
        return ""
    spans = "".join(f'<span title="{escape(name)}">{escape(name.rpartition("/")[2])}</span>' for name in names)
    return f'<div class="columns">{spans}</div>'


# --- claims ---------------------------------------------------------------------------------------


def _group(verdicts: Sequence[str], rows: Sequence[_Row], errata: Mapping[str, Json]) -> str:
    title = " / ".join(verdicts)
    claims = "".join(_claim(row, errata) for row in rows)
    return f'<section class="group"><h2>{title} <small>{len(rows)}</small></h2>\n{claims}</section>\n'


def _claim(row: _Row, errata: Mapping[str, Json]) -> str:
    claim = row.claim
    badges = "".join(
        f'<b class="verdict {_class(verdict)}" title="{escape(name)}">{verdict}</b>'
        for verdict, name in zip(row.verdicts, row.names, strict=True)
    )
    evidence = "".join(
        _evidence(result, explained, name if len(row.names) > 1 else "")
        for result, explained, name in zip(row.results, row.explained, row.names, strict=True)
        if result is not None
    )
    broken = any(verdict in BROKEN for verdict in row.verdicts)
    return f"""<details class="claim" id="{escape(row.slug)}" data-verdicts="{escape("|".join(row.verdicts))}"
 {_data(claim)}{" open" if broken and len(row.names) == 1 and row.verdicts[0] != Verdict.BLOCKED else ""}>
<summary>{badges}<span class="says">{escape(claim["says"])} <code>{escape(row.slug)}</code></span></summary>
<div class="body">
{_correction(claim)}{evidence}<dl>{_pair("in", _places(claim["where"]))}{_rows_cited(claim)}{
        _pair("depends on", ", ".join(map(_link, claim["depends"])))
    }</dl>
</div>
</details>
"""


def _data(claim: Json) -> str:
    """What the filters read: the topic, and the places by document, for `page.js` to group and sort by."""
    numbers = " ".join(dict.fromkeys(place.split(" ", 1)[0] for place in claim["where"]))
    return f'data-topic="{escape(claim["topic"])}" data-documents="{escape(numbers)}"'


def _evidence(result: Json, explained: Sequence[str], name: str) -> str:
    """What one implementation's result rests on."""
    verdict = str(result["verdict"])
    example = " ".join(
        f"<code>{escape(str(key))}={escape(str(value))}</code>" for key, value in result["example"].items()
    )
    smallest = "smallest example" if verdict in BROKEN or verdict == Verdict.BLOCKED else "closest example"
    pairs = [
        _pair("blocked by", _link(result["root"]) if result["root"] else ""),
        _pair("explains", ", ".join(map(_link, explained))),
        _pair("message", escape(result["message"])),
        _pair("at", f"<code>{escape(result['place'])}</code>" if result["place"] else ""),
        _pair("tested", escape(result["what"])),
        _pair("expected", f"<code>{escape(result['expected'])}</code>" if result["what"] else ""),
        _pair("got", f"<code>{escape(result['got'])}</code>" if result["what"] else ""),
        _pair("distance", _distance(result)),
        _pair(smallest, example),
        _pair("examples", str(result["examples"]) if result["what"] else ""),
        _pair(
            "replay",
            f'<code class="replay">{escape(result["replay"])}</code>' if verdict != Verdict.NOT_PROVIDED else "",
        ),
    ]
    heading = f'<h3>{escape(name)} <b class="verdict {_class(verdict)}">{verdict}</b></h3>' if name else ""
    return f'<section class="evidence">{heading}<dl>{"".join(pairs)}</dl></section>\n'


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


def _places(where: Iterable[str]) -> str:
    return "<br>".join(escape(place) for place in where)


def _rows_cited(claim: Json) -> str:
    return _pair("rows", escape(" ".join(claim["sources"])))


def _link(slug: str) -> str:
    return f'<a href="#{escape(slug)}">{escape(slug)}</a>'


def _pair(term: str, description: str) -> str:
    """A term with its description (HTML); nothing where there is none."""
    return f"<dt>{term}</dt><dd>{description}</dd>" if description else ""


def _class(verdict: str) -> str:
    """The style of a verdict: "NOT PROVIDED" -> "not-provided"."""
    return "absent" if verdict == ABSENT else verdict.lower().replace(" ", "-")


# --- errata ---------------------------------------------------------------------------------------


def _errata(errata: Iterable[Json]) -> str:
    """What the documents get wrong, with corrections and witnesses: of the documents, not of the implementations."""
    rows = "".join(map(_erratum, errata))
    if not rows:
        return ""
    return f"""<section id="errata"><h2>Errata of the documents <small></small></h2>
<p>Statements that do not hold as written, each with its correction and with what shows it.</p>
{rows}</section>
"""


def _erratum(erratum: Json) -> str:
    witness = erratum["witness"]
    seen = (
        f"written <code>{escape(witness['written'])}</code>, actual <code>{escape(witness['actual'])}</code>"
        if witness["written"]
        else ""
    )
    shown = (
        f"{escape(witness['what'])}: expected <code>{escape(witness['expected'])}</code>, "
        f"got <code>{escape(witness['got'])}</code>"
    )
    return f"""<details class="erratum" {_data(erratum)}>
<summary><span class="says">{escape(erratum["says"])} <code>{escape(erratum["slug"])}</code></span></summary>
<div class="body"><p class="correction"><strong>Correct:</strong> {escape(erratum["correction"])}</p>
<dl>{_pair("seen", seen)}{_pair("witness", shown)}{_pair("in", _places(erratum["where"]))}{_rows_cited(erratum)}{
        _pair("replay", f'<code class="replay">conformance errata {escape(erratum["slug"])}</code>')
    }</dl></div>
</details>
"""
