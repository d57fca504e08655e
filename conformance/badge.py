"""A badge for a README: an SVG that says how many claims are kept, or how many are not.

It is made from the report as JSON (`conformance.report.to_json`), holds no script and asks nothing of the network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from conformance.verdict import SHOWN_IN_FULL

Json = Mapping[str, Any]

LABEL = "claims"
CHARACTER = 6.6
"""Width of a character in pixels, at 11 pixels of DejaVu Sans; `textLength` makes every font keep to it."""

COLOURS = {"kept": "#2e7d32", "broken": "#c62828", "untested": "#6a6a6a"}


def to_badge(reports: Sequence[Json]) -> str:
    """One badge for all the reports: red when any claim does not hold, grey when a core was not tested, else green."""
    broken = sum(claim["verdict"] in SHOWN_IN_FULL for report in reports for claim in report["claims"])
    kept = sum(report["counts"].get("PASS", 0) for report in reports)
    if broken:
        return _drawn(f"{broken} broken", COLOURS["broken"])
    if any(report["untested"] for report in reports) or not kept:
        return _drawn("not tested", COLOURS["untested"])
    return _drawn(f"{kept} kept", COLOURS["kept"])


def _drawn(says: str, colour: str) -> str:
    left, right = (CHARACTER * len(text) + 12 for text in (LABEL, says))
    width = left + right
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="20" role="img"
aria-label="{LABEL}: {says}">
<title>{LABEL}: {says}</title>
<clipPath id="round"><rect width="{width:.0f}" height="20" rx="3"/></clipPath>
<g clip-path="url(#round)"><rect width="{left:.1f}" height="20" fill="#444"/>\
<rect x="{left:.1f}" width="{right:.1f}" height="20" fill="{colour}"/></g>
<g fill="#fff" font-family="DejaVu Sans, Verdana, sans-serif" font-size="11">
<text x="6" y="14" textLength="{left - 12:.1f}">{LABEL}</text>
<text x="{left + 6:.1f}" y="14" textLength="{right - 12:.1f}">{says}</text>
</g></svg>"""
