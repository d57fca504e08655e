"""A picture in graphviz's language: what `.dot` files hold, and what the layout is asked with.

Boxes have the sizes that our drawing of them needs. Gradients are written from their target to their source (with the
arrowhead at the tail), so that the backward side runs upwards beside the forward side, each box at the height of the
one that it belongs to.
"""

from __future__ import annotations

import math

from minigrad.viz import style
from minigrad.viz.metrics import BOLD, MARGIN, width
from minigrad.viz.picture import Arrow, Box, Cluster, Picture

PAD_X, PAD_Y = 7.0, 5.0
STACK = 5.0  # a folded block is drawn as a stack of sheets that shows this much
DIGIT = 0.55  # the width of a digit in Helvetica, in font sizes
MANY = 150  # boxes from which on the layout is asked to hurry


def quote(text: str) -> str:
    """A dot string: quotes and backslashes escaped, line breaks kept."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def size(box: Box) -> tuple[float, float]:
    """Width and height of a box in points: its text and a margin, and the sheets under it."""
    wide = max([width(box.title, style.TITLE, bold=True), *(width(line, style.LINE) for line in box.lines)])
    high = style.TITLE * 1.25 + style.LINE * 1.3 * len(box.lines)
    round_ends = 8.0 if box.kind in style.OVALS else 0.0
    stack = STACK if box.repeats > 1 else 0.0
    return max(wide + 2 * (PAD_X + round_ends), 44.0) + stack, high + 2 * PAD_Y + stack


def drawn(picture: Picture) -> list[Arrow]:
    """The arrows that a still picture shows.

    Left out are all ties of a box but the one to where its derivative ends; saved values where this tie joins the same
    boxes, and all of them where they would cover everything else; parameters' way to the optimizer, where their
    gradients go too; and what a folded block hands to its next repeat.
    """
    last = {arrow.source: arrow.target for arrow in picture.arrows if arrow.kind == "tie"}
    crowded = len(picture.boxes) > MANY
    side = {id: box.side for id, box in picture.boxes.items()}
    return [
        arrow for arrow in picture.arrows
        if arrow.kind != "carried"
        and not (arrow.kind == "tie" and last[arrow.source] != arrow.target)
        and not (arrow.kind == "update" and side[arrow.source] == "forward" and "backward" in side.values())
        and not (arrow.kind == "saved" and (crowded or last.get(arrow.source) == arrow.target))
    ]  # fmt: skip


def dot(picture: Picture, layout: bool = False) -> str:
    """The same picture gives the same text. layout: only for sizes and places, titles may be replaced by others."""
    arrows = drawn(picture)
    beside = " newrank=true;" if any(arrow.kind == "tie" for arrow in arrows) else ""  # ties level boxes across frames
    hurry = " nslimit=2; nslimit1=2; mclimit=0.3; maxiter=200;" if len(picture.boxes) > MANY else ""
    lines = [
        "digraph {",
        f'  rankdir=TB; nodesep=0.16; ranksep=0.3; bgcolor="transparent"; fontname="{style.FONT}"; '
        f"fontsize={style.FRAME * BOLD * MARGIN:.3g};{beside}{hurry}",
        f'  node [shape=box, style="filled,rounded", fixedsize=true, fontname="{style.FONT}", fontsize=9];',
        f'  edge [fontname="{style.FONT}", fontsize=8, arrowsize=0.55, penwidth=0.9];',
        *_members(picture, picture.top, "  ", layout),
    ]
    for number, arrow in enumerate(arrows):
        lines.append("  " + _edge(arrow, number))
    return "\n".join([*lines, "}"]) + "\n"


def _members(picture: Picture, ids: list[str], indent: str, layout: bool) -> list[str]:
    lines = []
    for id in ids:
        if id in picture.clusters:
            lines += _cluster(picture, picture.clusters[id], indent, layout)
        else:
            lines.append(indent + _box(picture.boxes[id]))
    return lines


def _cluster(picture: Picture, cluster: Cluster, indent: str, layout: bool) -> list[str]:
    stroke, fill = style.frame(cluster.side)
    title = _as_wide(cluster.title) if layout and not cluster.title.isascii() else cluster.title
    head = (
        f"{indent}subgraph cluster_{cluster.id} {{ id={cluster.id}; label={quote(title)}; labeljust=l; "
        f'style="rounded,filled"; color="{stroke}"; fillcolor="{fill}"; margin=7;'
    )
    return [head, *_members(picture, cluster.members, indent + "  ", layout), indent + "}"]


def _as_wide(title: str) -> str:
    """Digits that take a title's width: without fonts graphviz knows how wide Latin letters are, and no others."""
    return "0" * math.ceil(width(title, style.FRAME, bold=True) / (DIGIT * style.FRAME * BOLD))


def _box(box: Box) -> str:
    wide, high = size(box)
    fill, stroke = style.colours(box)
    label = quote("\n".join([box.title, *box.lines]))
    return (
        f'{box.id} [id={box.id}, label={label}, width={wide / 72:.3f}, height={high / 72:.3f}, fillcolor="{fill}", '
        f'color="{stroke}", tooltip={quote(box.tooltip)}];'
    )


def _edge(arrow: Arrow, number: int) -> str:
    colour, dash = style.LINES[arrow.kind]
    attributes = [f"id=e{number}", f'color="{colour}"']
    if dash:
        attributes.append("style=dashed")
    source, target = arrow.source, arrow.target
    if arrow.kind == "gradient":
        source, target = target, source
        attributes.append("dir=back")
    if arrow.kind == "tie":
        attributes += ["dir=none", "minlen=0", "weight=4"]
    if arrow.kind == "saved":
        attributes += ["constraint=false"]
    if arrow.kind == "update":
        attributes += ["minlen=0", "weight=0"]
    if arrow.label:
        attributes.append(f"tooltip={quote(arrow.label)}")
    return f"{source} -> {target} [{', '.join(attributes)}];"
