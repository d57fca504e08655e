"""A picture as SVG: graphviz says where, this draws. Self-contained, no script, the same bytes for the same layout."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from math import inf

from minigrad.viz import style
from minigrad.viz.dotfile import PAD_Y, STACK, dot, drawn
from minigrad.viz.layout import Curve, Layout, Point, place
from minigrad.viz.metrics import width
from minigrad.viz.picture import Arrow, Box, Cluster, Picture

MARGIN = 8.0
STYLE = f"""\
text {{ font-family: {style.FAMILY}; fill: #1c2330; }}
.title {{ font-size: {style.TITLE}px; font-weight: bold; }}
.line {{ font-size: {style.LINE}px; fill: #4a5366; }}
.frame {{ font-size: {style.FRAME}px; fill: #5a6579; font-weight: bold; }}
.alarm {{ font-size: {style.LINE}px; font-weight: bold; fill: {style.ALARM}; }}
.heading {{ font-size: {style.TITLE + 2}px; font-weight: bold; }}
.box.made rect {{ stroke: {style.MARKS[style.MADE]}; stroke-width: 2.4; }}
.box.gone rect {{ stroke: {style.MARKS[style.GONE]}; stroke-width: 2.4; }}
path {{ fill: none; stroke-width: 0.9; }}
@media (prefers-color-scheme: dark) {{
{style.DARK}
}}"""


def svg(picture: Picture, marks: Mapping[str, str] | None = None) -> str:
    """The drawing. marks: id of a box -> MADE or GONE (of `minigrad.viz.style`), which give it a thick line.

    Raises LayoutError where there is no graphviz or it fails; needs none for an empty picture.
    """
    marks = marks or {}
    if not picture.boxes:
        return _document(160, 30, ['<text class="line" x="16" y="19">an empty graph</text>'])
    layout = place(dot(picture, layout=True))
    if _runs_leftwards(picture, layout):
        layout = layout.mirrored()
    arrows = [(arrow, layout.curves.get(f"e{i}")) for i, arrow in enumerate(drawn(picture))]
    parts = [_frame(picture.clusters[id], layout) for id in picture.clusters if id in layout.clusters]
    faint = ("tie", "saved", "update")
    for arrow, curve in sorted(arrows, key=lambda pair: pair[0].kind not in faint):
        if curve is not None:
            parts.append(_arrow(arrow, curve))
    seen = sorted((y, x) for _, curve in arrows if curve is not None for x, y in _along(curve))
    parts += [_frame_title(picture.clusters[id], layout, seen) for id in picture.clusters if id in layout.clusters]
    parts += [_box(box, layout, marks.get(box.id, "")) for box in picture.boxes.values()]
    legend, tall = _legend(picture, {arrow.kind for arrow, _ in arrows}, layout)
    return _document(layout.width + 2 * MARGIN, layout.height + tall + 2 * MARGIN, parts + legend)


def _runs_leftwards(picture: Picture, layout: Layout) -> bool:
    """Did graphviz put the backward side to the left of the forward side? Time runs from left to right."""
    centres: dict[str, list[float]] = {}
    for box in picture.boxes.values():
        x, _, w, _ = layout.boxes[box.id]
        centres.setdefault(box.side, []).append(x + w / 2)
    means = [sum(found) / len(found) for found in centres.values()]
    return len(means) > 1 and means[0] > means[1]


def beside(drawings: Sequence[tuple[str, str, str]]) -> str:
    """Drawings of `svg` side by side, each under a heading and a line of text: (heading, line, drawing)."""
    parts, left, tall = [], 0.0, 0.0
    for number, (heading, line, drawing) in enumerate(drawings):
        found = re.match(r'<svg [^>]*width="(\d+)" height="(\d+)"', drawing)
        assert found is not None
        own = re.sub(r"<style>.*?</style>\n", "", drawing, flags=re.S).replace('<g id="', f'<g id="t{number}-')
        parts += [
            f'<text class="heading" x="{left:.1f}" y="14">{escape(heading)}</text>',
            f'<text class="line" x="{left:.1f}" y="28">{escape(line)}</text>',
            own.replace("<svg ", f'<svg x="{left:.1f}" y="36" ', 1).rstrip(),
        ]
        texts = width(heading, style.TITLE + 2, bold=True), width(line, style.LINE)
        left += max(float(found[1]), *texts) + 3 * MARGIN
        tall = max(tall, 36 + float(found[2]))
    return _document(left - 3 * MARGIN + 2 * MARGIN, tall + 2 * MARGIN, parts)


def _document(width: float, height: float, parts: list[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="{-MARGIN:g} {-MARGIN:g} {width:.1f} {height:.1f}">'
    )
    corner = f'x="{-MARGIN:g}" y="{-MARGIN:g}"'
    ground = f'<rect class="ground" {corner} width="{width:.1f}" height="{height:.1f}" rx="6" fill="#ffffff"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", ground, *parts, "</svg>"]) + "\n"


def _along(curve: Curve) -> list[Point]:
    """Points on a curve, a few pixels from each other."""
    found = [p for p in (curve.start, curve.end) if p is not None]
    for i in range(0, len(curve.points) - 3, 3):
        corners = curve.points[i : i + 4]
        (x0, y0), (x1, y1), (x2, y2), (x3, y3) = corners
        count = 2 + int(sum(abs(a[0] - b[0]) + abs(a[1] - b[1]) for a, b in pairwise(corners)) / 6)
        for step in range(count + 1):
            t = step / count
            u = 1 - t
            p, q, r, s = u * u * u, 3 * t * u * u, 3 * t * t * u, t * t * t
            found.append((p * x0 + q * x1 + r * x2 + s * x3, p * y0 + q * y1 + r * y2 + s * y3))
    return found


def _legend(picture: Picture, kinds: set[str], layout: Layout) -> tuple[list[str], float]:
    """What the lines and tints mean, where there is more than one kind, in rows under the picture; their height."""
    entries: list[tuple[str, str]] = []
    if len(kinds) > 1:
        for kind, meaning in style.MEANINGS.items():
            if kind in kinds:
                colour, dash = style.LINES[kind]
                dashes = ' stroke-dasharray="3 2.5"' if dash else ""
                entries.append((f'<path class="{kind}" d="M0,0 h22" stroke="{colour}"{dashes}/>', meaning))
    if any(box.heat is not None for box in picture.boxes.values()):
        for heat, meaning in ((-4, "values of 0.0001 and less"), (4, "values of 10,000 and more")):
            tint = style.tint(heat)
            shape = (
                f'<rect x="4" y="-5" width="14" height="10" rx="2" fill="{tint}" stroke="#8c8c8c" stroke-width="0.5"/>'
            )
            entries.append((shape, meaning))
    parts, x, y = [], 0.0, layout.height + 20.0
    for shape, meaning in entries:
        long = 28 + width(meaning, style.LINE)
        if x and x + long > layout.width:
            x, y = 0.0, y + 15.0
        text = f'<text class="line" x="27" y="3">{meaning}</text>'
        parts.append(f'<g class="legend" transform="translate({x:.1f},{y:.1f})">{shape}{text}</g>')
        x += long + 14
    return parts, y + 6 - layout.height if entries else 0.0


def _frame(cluster: Cluster, layout: Layout) -> str:
    x, y, w, h = layout.clusters[cluster.id]
    stroke, fill = style.frame(cluster.side)
    return (
        f'<g id="{cluster.id}" class="scope {cluster.side}"><rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" '
        f'height="{h:.1f}" rx="7" fill="{fill}" stroke="{stroke}" stroke-width="0.9"/></g>'
    )


def _frame_title(cluster: Cluster, layout: Layout, seen: list[Point]) -> str:
    """At the left, right or middle of the frame, where the fewest arrows pass, on a halo of the frame's colour.

    seen: sorted (y, x) of points on arrows."""
    x, y, w, _ = layout.clusters[cluster.id]
    long = width(cluster.title, style.FRAME, bold=True)
    crossing = [px for _, px in seen[bisect(seen, (y + 1, inf)) : bisect(seen, (y + 18, -inf))]]
    places = (x + 8, x + w - 8 - long, x + (w - long) / 2)
    at = min(places, key=lambda left: sum(left - 4 < px < left + long + 4 for px in crossing))
    text = f'x="{at:.1f}" y="{y + 13:.1f}">{escape(cluster.title)}</text>'
    fill = style.frame(cluster.side)[1]
    halo = f'<text class="frame halo {cluster.side}" stroke="{fill}" stroke-width="4" aria-hidden="true" {text}'
    return f'{halo}<text class="frame" {text}'


def _box(box: Box, layout: Layout, mark: str) -> str:
    x, y, w, h = layout.boxes[box.id]
    fill, stroke = style.colours(box)
    if box.repeats > 1:
        w, h = w - STACK, h - STACK
    middle = x + w / 2
    shapes = []
    rect = f'width="{w:.1f}" height="{h:.1f}" fill="{fill}" stroke="{stroke}"'
    if box.heat is not None:  # in dark pictures, too
        rect += f' style="fill:{fill}"'
    rounding = h / 2 if box.kind in style.OVALS else 5.0 if box.kind == "module" else 3.0
    if box.repeats > 1:  # a stack of sheets
        for offset in (STACK, STACK / 2):
            at = f'x="{x + offset:.1f}" y="{y + offset:.1f}"'
            shapes.append(f'<rect {at} {rect} rx="{rounding:.1f}" stroke-width="0.8"/>')
    weight = 2.2 if box.alarm else 1.3 if box.kind == "module" else 0.9
    shapes.append(f'<rect x="{x:.1f}" y="{y:.1f}" {rect} rx="{rounding:.1f}" stroke-width="{weight}"/>')
    baseline = y + PAD_Y + style.TITLE
    texts = [f'<text class="title" x="{middle:.1f}" y="{baseline:.1f}" text-anchor="middle">{escape(box.title)}</text>']
    baseline += style.TITLE * 0.25
    for number, line in enumerate(box.lines, 1):
        baseline += style.LINE * 1.3
        kind = "alarm" if box.first and number == len(box.lines) else "line"
        texts.append(
            f'<text class="{kind}" x="{middle:.1f}" y="{baseline - style.LINE * 0.2:.1f}" text-anchor="middle">'
            f"{escape(line)}</text>"
        )
    marks = (mark, box.kind, box.side, "heated" * (box.heat is not None), "alarmed" * box.alarm)
    return (
        f'<g id="{box.id}" class="{" ".join(["box", *filter(None, marks)])}"><title>{escape(box.tooltip)}</title>'
        + "".join(shapes) + "".join(texts) + "</g>"
    )  # fmt: skip


def _arrow(arrow: Arrow, curve: Curve) -> str:
    colour, dash = style.LINES[arrow.kind]
    points = curve.points
    path = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
    if curve.start is not None:
        path = f"M{curve.start[0]:.1f},{curve.start[1]:.1f}L{points[0][0]:.1f},{points[0][1]:.1f}"
    for i in range(1, len(points) - 2, 3):
        path += "C" + " ".join(f"{x:.1f},{y:.1f}" for x, y in points[i : i + 3])
    heads = ""
    for tip, base in ((curve.end, points[-1]), (curve.start, points[0])):
        if tip is not None:
            heads += _head(tip, base, colour)
    dashes = ' stroke-dasharray="3 2.5"' if dash else ""
    title = f"<title>{escape(arrow.label)}</title>" if arrow.label else ""
    return f'<g class="arrow {arrow.kind}">{title}<path d="{path}" stroke="{colour}"{dashes}/>{heads}</g>'


def _head(tip: tuple[float, float], base: tuple[float, float], colour: str) -> str:
    dx, dy = tip[0] - base[0], tip[1] - base[1]
    length = (dx * dx + dy * dy) ** 0.5 or 1.0
    wx, wy = -dy / length * 2.4, dx / length * 2.4
    corners = [tip, (base[0] + wx, base[1] + wy), (base[0] - wx, base[1] - wy)]
    return f'<polygon points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in corners)}" fill="{colour}"/>'
