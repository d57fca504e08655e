"""The picture of a training run: its curves by step, the norms of its layers, and the timeline of one step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

WIDE, HIGH, EDGE = 240, 70, 4
CURVES = {"loss": "loss", "rate": "learning rate", "norm": "norm of the gradients", "pads": "share of padding"}


def course_of(report: Mapping[str, Any]) -> str:
    """The picture as HTML; empty for a report that is of no training run."""
    course = report.get("course") or {}
    if not course:
        return ""
    curves = "".join(_curve(words, [step[name] for step in course["steps"]]) for name, words in CURVES.items())
    return f"""<section class="course" aria-label="The course of the run">
<div class="curves">{curves}</div>
{_timeline(course["timeline"])}
{_layers(course["layers"])}
</section>
"""


def _curve(words: str, values: Sequence[float | None]) -> str:
    """One curve over the steps, with its first, last, least and largest number. Empty where nothing was seen."""
    points = [(i, value) for i, value in enumerate(values) if value is not None]
    if not points:
        return ""
    low, high = min(value for _, value in points), max(value for _, value in points)
    across = (WIDE - 2 * EDGE) / max(len(values) - 1, 1)
    down = (HIGH - 2 * EDGE) / (high - low) if high > low else 0.0
    places = [(EDGE + i * across, HIGH - EDGE - (value - low) * down) for i, value in points]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2"><title>step {i + 1}: {value:.4g}</title></circle>'
        for (x, y), (i, value) in zip(places, points, strict=True)
    )
    told = f"{words}: {points[0][1]:.3g} in step {points[0][0] + 1}, {points[-1][1]:.3g} in step {points[-1][0] + 1}"
    return (
        f"<figure><figcaption>{escape(told)}</figcaption>"
        f'<svg viewBox="0 0 {WIDE} {HIGH}" role="img" aria-label="{escape(told)}">'
        f'<polyline points="{line}"/>{dots}</svg></figure>'
    )


def _layers(layers: Sequence[Sequence[Any]]) -> str:
    if not layers:
        return ""
    largest = max(norm for _, norm in layers) or 1.0
    rows = "".join(
        f'<tr><th scope="row">{escape(str(layer))}</th>'
        f'<td><i style="width: {100 * norm / largest:.1f}%"></i></td><td>{norm:.2g}</td></tr>'
        for layer, norm in layers
    )
    return f"<details open><summary>Norms of the first gradients by layer</summary><table>{rows}</table></details>"


def _timeline(parts: Sequence[Sequence[Any]]) -> str:
    items = "".join(
        f'<li class="{escape(word)}"><b>{escape(word)}</b>{f" x {count}" if count > 1 else ""}'
        f"{f' <small>{escape(place)}</small>' if place else ''}</li>"
        for word, place, count in parts
    )
    return f'<p>What one step does, in order:</p><ol class="timeline">{items}</ol>' if items else ""
