"""One self-contained HTML page of one report, or of several implementations side by side (`to_html`).

The page is whole without scripts: every claim is a `<details>` with its evidence. `page.js` only filters and regroups
what stands there; `page.css` knows light and dark. Everything that comes from a report is escaped here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from conformance.page.claims import Json, Row, data_of, group_of, headline, pair, rows_of, sources_of, style_of
from conformance.page.course import course_of
from conformance.page.graph import graph_of
from conformance.verdict import ORDER, SHOWN_IN_FULL, Verdict

_FOLDER = Path(__file__).parent
MOST_LINES = 5
"""How many claims that do not hold the head of the page names."""


def to_html(reports: Sequence[Json]) -> str:
    """The page of reports as JSON (`conformance.report.to_json`), a column of verdicts each."""
    names = [report["implementation"] for report in reports]
    title = f"Claims kept by {', '.join(names)}"
    rows = rows_of(reports)
    errata = {erratum["slug"]: erratum for report in reports for erratum in report["errata"]}
    sources = {number: f"{number} {title}" for report in reports for number, title in report["documents"].items()}
    sources |= {row.claim["origin"]: row.claim["origin"] for row in rows if not row.claim["where"]}
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
{"".join(_implementation(report, len(reports) > 1, f"subject-{i}") for i, report in enumerate(reports, 1))}
</header>
{_filters(rows, errata, sources)}
<main>
{_columns(names)}
<div id="claims">
{"".join(group_of(verdicts, list(group)) for verdicts, group in groupby(rows, key=lambda row: row.verdicts))}
</div>
<p id="nothing" hidden>No claim matches the filters.</p>
{_errata(errata.values())}
</main>
<script>
{script}</script>
</body>
</html>"""


# --- head -----------------------------------------------------------------------------------------


def _implementation(report: Json, heading: bool, name: str) -> str:
    """Name, what was not tested, counts, a bar of verdicts, what the implementation said about itself (what is doubtful
    openly, the rest in a fold), and its graph. name: what ids in it begin with."""
    unseen = report["counts"][Verdict.NOT_SEEN]
    rest = report["total"] - report["about"] - unseen
    counts = {verdict: report["counts"][verdict] for verdict in ORDER}
    counts[Verdict.NOT_PROVIDED] -= rest
    counts = {verdict: number for verdict, number in counts.items() if number}
    bar = "".join(
        f'<span class="{style_of(verdict)}" style="flex-grow: {number}" title="{number} {verdict}"></span>'
        for verdict, number in reversed(counts.items())
    )
    kept = report["counts"][Verdict.PASS.value]
    numbers = ", ".join(f"{number} {verdict}" for verdict, number in counts.items())
    conventions = [
        f"{role}: {name} = {value}" for role, values in report["attributes"].items() for name, value in values.items()
    ]
    said = [*report["notes"], *conventions]
    doubtful = "".join(f"<li>{escape(line)}</li>" for line in _doubts(report["notes"]))
    untested = "".join(f"<p><strong>Not tested:</strong> {escape(line)}</p>" for line in report["untested"])
    others = f"; {rest} claims speak about components that it does not have" if rest else ""
    notes = (
        f"<details><summary>What it is taken for</summary><ul>"
        f"{''.join(f'<li>{escape(str(line))}</li>' for line in said)}</ul></details>"
        if said
        else ""
    )
    return f"""<section class="implementation">
{f"<h2>{escape(report['implementation'])}</h2>" if heading else ""}
{f'<div class="untested">{untested}</div>' if untested else ""}
<p><strong>{kept} of {report["about"]} claims kept</strong> (budget {escape(report["budget"])}): {numbers}{others}</p>
<div class="bar" role="img" aria-label="{numbers}">{bar}</div>
{_wrong(report["claims"])}
{f'<ul class="doubtful">{doubtful}</ul>' if doubtful else ""}
{notes}
{course_of(report)}{graph_of(report, name)}
</section>
"""


def _wrong(claims: Sequence[Json]) -> str:
    """The first claims that do not hold, a line each, which leads to the claim."""
    broken = [claim for claim in claims if claim["verdict"] in SHOWN_IN_FULL]
    lines = "".join(
        f'<li><b class="verdict {style_of(claim["verdict"])}">{claim["verdict"]}</b> '
        f'<a href="#{escape(claim["slug"])}">{escape(headline(claim))}</a></li>'
        for claim in broken[:MOST_LINES]
    )
    more = f"<li>and {len(broken) - MOST_LINES} more below</li>" if len(broken) > MOST_LINES else ""
    return f'<ul class="broken">{lines}{more}</ul>' if lines else ""


def _doubts(notes: Sequence[str]) -> Iterator[str]:
    """The lines that begin with "!", after the heading that each stands under."""
    heading = ""
    for note in notes:
        if note.startswith("!"):
            yield f"{heading}: {note[1:].strip()}" if heading else note[1:].strip()
        elif not note.startswith(" "):
            heading = note


def _filters(rows: Sequence[Row], errata: Mapping[str, Json], sources: Mapping[str, str]) -> str:
    present = [v for v in ORDER if any(v in row.verdicts for row in rows)]
    chips = "".join(
        f'<button type="button" class="chip {style_of(verdict)}" data-verdict="{verdict}" aria-pressed="false">'
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
<label>Source {_select("document", sources, "every source")}</label>
<label>Group by <select id="group">
<option>verdict</option><option>topic</option><option value="document">source</option>
</select></label>
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
        f"{escape(witness['what'])}: <code>{escape(witness['got'])}</code>, as expected"
        if witness["ok"] and witness["expected"] == witness["got"]
        else f"{escape(witness['what'])}: expected <code>{escape(witness['expected'])}</code>, "
        f"got <code>{escape(witness['got'])}</code>"
    )
    return f"""<details class="erratum" {data_of(erratum)}>
<summary><span class="says">{escape(erratum["says"])} <code>{escape(erratum["slug"])}</code></span></summary>
<div class="body"><p class="correction"><strong>Correct:</strong> {escape(erratum["correction"])}</p>
<dl>{pair("seen", seen)}{pair("witness", shown)}{sources_of(erratum)}{
        pair("replay", f'<code class="replay">conformance errata {escape(erratum["slug"])}</code>')
    }</dl></div>
</details>
"""
