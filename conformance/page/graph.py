"""The model's graph with the verdicts on it: a column of boxes for each module that has parts (`graph_of`).

Boxes stand in the order of their calls. A result goes straight down to the next box, or past others by a line at the
right: residual connections are seen as such. A box has the colour of the claims that speak of it, and leads to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from conformance.page.claims import headline, style_of
from conformance.places import file_and_line
from conformance.verdict import HELD, SHOWN_IN_FULL, Verdict

Json = Mapping[str, Any]

LETTER, SMALL = 7.3, 6.1
"""Widths of a letter of a title and of a line below it, in pixels; the type is monospaced."""
GAP, LANE, PAD, TITLE, LEAF = 24.0, 11.0, 12.0, 24.0, 38.0
"""Pixels: between boxes, between lines at the right, inside a frame, of a frame's title, of a box's height."""


def graph_of(report: Json, name: str) -> str:
    """The section of one report; empty where no run was recorded. name: what its ids begin with."""
    boxes = report["graph"]
    if not boxes:
        return ""
    claims = claims_of_boxes(boxes, report)
    outer = _Figure(name, boxes, claims).whole()
    red = sum(_state(found) == "bad" for found in claims.values())
    counted = f"{red} of {len(boxes)} boxes red" if red else f"{len(boxes)} boxes, none red"
    spoken = sorted((box for box in boxes if claims[box["number"]]), key=lambda b: _state(claims[b["number"]]) != "bad")
    lists = "".join(_list(name, box, claims[box["number"]]) for box in spoken)
    return f"""<details class="graph" open><summary><h2>The model as it ran <small>{counted}</small></h2></summary>
<div class="drawn">{outer}
<div class="lists"><p class="hint">A box leads to the claims that speak of it. Red: one of them does not hold.
Green: all that were tested hold. Grey: none was tested.</p>{lists}</div></div>
</details>
"""


def claims_of_boxes(boxes: Sequence[Json], report: Json) -> dict[int, list[Json]]:
    """Number of a box -> the results that speak of it.

    One that does not hold belongs to the boxes of the innermost class around the line that it names; one about the
    inside to the boxes that show it; one about a role to the boxes that play it. The rest speak of the outermost ones.
    """
    found: dict[int, list[Json]] = {box["number"]: [] for box in boxes}
    outer = [box["number"] for box in boxes if box["parent"] < 0]
    for claim in report["claims"]:
        if claim["verdict"] not in (Verdict.NOT_PROVIDED, Verdict.NOT_SEEN, Verdict.BLOCKED):
            line = _at(claim["place"], boxes) if claim["verdict"] != Verdict.PASS else []
            about = line or _showing(claim, boxes) or _playing(claim["roles"], boxes) or outer
            for number in about:
                found[number].append(claim)
    return found


def _at(place: str, boxes: Sequence[Json]) -> list[int]:
    where = file_and_line(place)
    if where is None:
        return []
    file, line = where
    around = [
        (box["last"] - box["first"], box["number"])
        for box in boxes
        if box["file"] and f"/{box['file']}".endswith(f"/{file.lstrip('/')}") and box["first"] <= line <= box["last"]
    ]
    return [number for size, number in around if size == min(around)[0]]


def _showing(claim: Json, boxes: Sequence[Json]) -> list[int]:
    if claim["topic"] != "inside":
        return []
    return [box["number"] for box in boxes if any(claim["slug"].startswith(f"{name}-") for name in box["shows"])]


def _playing(roles: Sequence[str], boxes: Sequence[Json]) -> list[int]:
    return [box["number"] for box in boxes if set(roles) & set(box["roles"])]


def _state(claims: Sequence[Json]) -> str:
    """The colour of a box, as the name of its style."""
    verdicts = {Verdict(claim["verdict"]) for claim in claims}
    if verdicts & {*SHOWN_IN_FULL}:
        return "bad"
    return "good" if verdicts & {*HELD} else "calm"


# --- the drawing ----------------------------------------------------------------------------------


@dataclass
class _Shape:
    """A box with what is drawn in it, its corner at (0, 0)."""

    width: float
    height: float
    lines: list[str]
    parts: list[tuple[float, float, _Shape]] = field(default_factory=list)

    def drawn(self, x: float, y: float) -> str:
        inner = "".join(part.drawn(dx, dy) for dx, dy, part in self.parts)
        return f'<g transform="translate({x:.1f} {y:.1f})">{"".join(self.lines)}{inner}</g>'


class _Figure:
    def __init__(self, name: str, boxes: Sequence[Json], claims: Mapping[int, Sequence[Json]]) -> None:
        self.name, self.claims = name, claims
        self.inside: dict[int, list[Json]] = {}
        for box in boxes:
            self.inside.setdefault(box["parent"], []).append(box)

    def whole(self) -> str:
        """The SVG of all."""
        outermost = [(box, self.shape(box)) for box in self.inside[-1]]
        width = max(shape.width for _, shape in outermost)
        parts, y = [], 1.0
        for _, shape in outermost:
            parts.append(shape.drawn((width - shape.width) / 2 + 1, y))
            y += shape.height + GAP
        height = y - GAP + 1
        return (
            f'<svg viewBox="0 0 {width + 2:.0f} {height:.0f}" width="{width + 2:.0f}" height="{height:.0f}" role="img" '
            f'aria-label="The modules that ran, in order, with the verdicts on them">{"".join(parts)}</svg>'
        )

    def shape(self, box: Json) -> _Shape:
        children = self.inside.get(box["number"], [])
        return self.frame(box, children) if children else self.leaf(box)

    def leaf(self, box: Json) -> _Shape:
        below = f"built as {box['like']}" if box["like"] else _flow(box)
        width = max(len(self.title(box)) * LETTER, len(below) * SMALL) + 2 * PAD
        return _Shape(width, LEAF, self.rectangle(box, width, LEAF, below))

    def frame(self, box: Json, children: Sequence[Json]) -> _Shape:
        """A module with parts: the parts below each other, and the lines between them."""
        shapes = [self.shape(child) for child in children]
        number = {child["number"]: row for row, child in enumerate(children, 1)} | {-1: 0}
        end = len(children) + 1
        joins = [(number[source], row) for row, child in enumerate(children, 1) for source in child["reads"]]
        joins += [(number[source], end) for source in box["ends"]]
        past = [join for join in joins if join[1] - join[0] > 1]
        lanes = _lanes(past)
        inner = max(shape.width for shape in shapes)
        inner = max(inner, len(self.title(box)) * LETTER - LANE * max(lanes, default=0))
        right = PAD + inner
        width = right + LANE * (max(lanes, default=-1) + 1) + PAD
        centre = PAD + inner / 2
        tops, y, parts = [TITLE], TITLE + GAP, []
        for shape in shapes:
            parts.append((PAD + (inner - shape.width) / 2, y, shape))
            tops.append(y)
            y += shape.height + GAP
        bottoms = [TITLE, *(dy + shape.height for _, dy, shape in parts)]
        tops.append(y)
        lines = self.rectangle(box, width, y + PAD / 2)
        lines += [_down(centre, bottoms[first], tops[last]) for first, last in joins if last - first == 1]
        edges = [centre, *(dx + shape.width for dx, _, shape in parts), centre]
        for (first, last), lane in zip(past, lanes, strict=True):
            start = bottoms[first] + (4 if first == 0 else -9)
            stop = tops[last] + (-4 if last == end else 9)
            lines.append(_past(edges[first], start, right + LANE * (lane + 0.5), edges[last], stop))
        return _Shape(width, y + PAD / 2, lines, parts)

    def title(self, box: Json) -> str:
        """The module's name and class, and what its claims came to: "attn: Attention  ✗ 1"."""
        name = box["path"].rpartition(".")[2]
        title = f"{name}: {box['cls']}" if name and name != box["cls"] else box["cls"]
        found = self.claims[box["number"]]
        broken = sum(Verdict(claim["verdict"]) in SHOWN_IN_FULL for claim in found)
        kept = sum(Verdict(claim["verdict"]) in HELD for claim in found)
        return title + (f"  \u2717 {broken}" if broken else f"  \u2713 {kept}" if kept else "")

    def rectangle(self, box: Json, width: float, height: float, below: str = "") -> list[str]:
        """The box itself, with its words; it leads to its claims where there are any."""
        found = self.claims[box["number"]]
        words = f'<text class="title" x="{PAD}" y="16">{escape(self.title(box))}</text>'
        if below:
            words += f'<text x="{PAD}" y="30">{escape(below)}</text>'
        told = f"<title>{escape(box['path'] or box['cls'])}: {escape(_flow(box))}</title>"
        drawn = f'<rect width="{width:.1f}" height="{height:.1f}" rx="5"/>{words}{told}'
        if found:
            drawn = f'<a href="#{self.name}-box-{box["number"]}">{drawn}</a>'
        return [f'<g class="box {_state(found)}">{drawn}</g>']


def _flow(box: Json) -> str:
    return f"{box['given'] or 'nothing'} \u2192 {box['gave'] or 'nothing'}"


def _lanes(joins: Sequence[tuple[int, int]]) -> list[int]:
    """The lane of each line at the right: two that pass the same box have different ones, short lines are inside."""
    taken: list[list[tuple[int, int]]] = []
    chosen: dict[tuple[int, int], int] = {}
    for join in sorted(set(joins), key=lambda join: (join[1] - join[0], join)):
        free = (lane for lane, held in enumerate(taken) if all(join[1] <= a or b <= join[0] for a, b in held))
        lane = next(free, len(taken))
        if lane == len(taken):
            taken.append([])
        taken[lane].append(join)
        chosen[join] = lane
    return [chosen[join] for join in joins]


def _down(x: float, top: float, bottom: float) -> str:
    return f'<path d="M{x:.1f} {top:.1f}V{bottom - 5:.1f}"/>{_head(x, bottom, 0, 1)}'


def _past(start: float, top: float, lane: float, stop: float, bottom: float) -> str:
    return f'<path d="M{start:.1f} {top:.1f}H{lane:.1f}V{bottom:.1f}H{stop + 5:.1f}"/>{_head(stop, bottom, -1, 0)}'


def _head(x: float, y: float, dx: int, dy: int) -> str:
    """The head of an arrow whose tip is at (x, y), and which points along (dx, dy)."""
    back = (x - 6 * dx, y - 6 * dy)
    corners = [(x, y), (back[0] - 3 * dy, back[1] - 3 * dx), (back[0] + 3 * dy, back[1] + 3 * dx)]
    return f'<path class="head" d="M{"L".join(f"{a:.1f} {b:.1f}" for a, b in corners)}Z"/>'


# --- the claims of a box --------------------------------------------------------------------------


def _list(name: str, box: Json, claims: Sequence[Json]) -> str:
    """What a box leads to."""
    ordered = sorted(claims, key=lambda claim: Verdict(claim["verdict"]) not in SHOWN_IN_FULL)
    rows = "".join(
        f'<li><b class="verdict {style_of(claim["verdict"])}">{claim["verdict"]}</b> '
        f'<a href="#{escape(claim["slug"])}">{escape(headline(claim))}</a></li>'
        for claim in ordered
    )
    where = f"<p><code>{escape(box['file'])}:{box['first']}</code></p>" if box["file"] else ""
    return f"""<section class="of-box" id="{name}-box-{box["number"]}">
<h3>{escape(box["path"] or box["cls"])}: {escape(box["cls"])}</h3>{where}<ul>{rows}</ul></section>
"""
