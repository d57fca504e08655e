"""All results of a run as one self-contained page (`to_page`): ranking, groups, claims that fail most, mistakes that
come together, two submissions side by side, the report of one.

The page holds the results as JSON, each mistake once however many made it, and `page.js` draws what is asked for: a
page of ten thousand submissions opens like one of ten. Nothing of a submission is ever read as HTML.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from conformance.catalogue import load
from conformance.grading.rubric import Score
from conformance.grading.store import Store

_FOLDER = Path(__file__).parent
FIELDS = ("claim", "part", "verdict", "diagnosis", "what", "expected", "got", "place", "mend", "message")
LONGEST = 400
"""Characters of a text of the evidence that the page shows; the database has all of it."""


def to_page(store: Store, run: int, scores: Mapping[str, Score]) -> str:
    """The page of a run. scores: of each submission, by id."""
    mistakes: dict[tuple[str, ...], int] = {}
    of: dict[str, list[int]] = {}
    for row in store.broken(run):
        mistake = tuple(str(row[name])[:LONGEST] for name in FIELDS)
        of.setdefault(row["id"], []).append(mistakes.setdefault(mistake, len(mistakes)))
    submissions = [
        {
            "id": row["id"],
            "group": row["group"],
            "score": round(scores[row["id"]].value, 4),
            "points": scores[row["id"]].points,
            "kept": row["kept"],
            "refused": row["refused"][:LONGEST],
            "reasons": [reason[:LONGEST] for reason in scores[row["id"]].reasons],
            "mistakes": of.get(row["id"], []),
        }
        for row in store.grades(run)
    ]
    claims = load().claims
    shown = {mistake[0] for mistake in mistakes}
    says = {slug: " ".join(claims[slug].says.split()) for slug in sorted(shown) if slug in claims}
    data = {"fields": FIELDS, "submissions": submissions, "mistakes": list(mistakes), "says": says}
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    style, script = ((_FOLDER / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{len(submissions)} submissions graded</title>
<style>
{style}</style>
</head>
<body>
<h1>{len(submissions)} submissions graded</h1>
<nav><a href="#ranking">ranking</a> <a href="#groups">groups</a> <a href="#claims">claims that fail most</a>
<a href="#clusters">mistakes that come together</a> <a href="#compare">side by side</a></nav>
<main id="view"></main>
<script type="application/json" id="data">{text}</script>
<script>
{script}</script>
</body>
</html>
"""
