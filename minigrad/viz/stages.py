"""A page with a slider through stages of a graph: each with its picture, in which some boxes are marked.

What is too much to draw is listed in lines.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from importlib.resources import files

from minigrad.graph import Graph
from minigrad.node import Node
from minigrad.viz import svgfile
from minigrad.viz.format import clean
from minigrad.viz.picture import Options, Picture, picture
from minigrad.viz.style import MADE
from minigrad.viz.writers import view

MOST_BOXES, MOST_LINES = 150, 200


@dataclass(frozen=True)
class Stage:
    """What the page shows at one place of the slider. new, gone: ops in words, "add x3, matmul"; picture: markup."""

    name: str
    does: str
    nodes: int
    picture: str
    new: str = ""
    gone: str = ""


def stage(
    name: str,
    does: str,
    graph: Graph,
    options: Options,
    new: Sequence[Node] = (),
    gone: Sequence[Node] = (),
    mark: str = MADE,
) -> Stage:
    """A graph as a stage. mark: MADE marks the boxes of `new`, GONE those of `gone`, which are nodes of the graph then.

    Raises LayoutError where there is no graphviz."""
    nodes = sum(node.op != "literal" for node in graph.nodes)
    drawn = _picture(graph, options, new if mark == MADE else gone, mark)
    return Stage(name, does, nodes, drawn, _counted(new), _counted(gone))


def page(title: str, stages: Sequence[Stage]) -> str:
    """One self-contained HTML file."""
    shown = [asdict(one) for one in stages]
    for number, one in enumerate(shown):  # one page holds all pictures: ids must not meet
        one["picture"] = one["picture"].replace('<g id="', f'<g id="t{number}-')
    parts = {"TITLE": escape(title), "COUNT": str(len(shown) - 1), "DATA": json.dumps(shown).replace("<", "\\u003c")}
    text = files("minigrad.viz").joinpath("page", "stages.html").read_text(encoding="utf-8")
    return re.sub(r"%([A-Z]+)%", lambda found: parts[found[1]], text)


def _counted(nodes: Sequence[Node]) -> str:
    """add x3, matmul"""
    counts = Counter(node.op for node in nodes)
    return ", ".join(op if count == 1 else f"{op} x{count}" for op, count in counts.most_common())


def _picture(graph: Graph, options: Options, nodes: Sequence[Node], mark: str) -> str:
    """The graph as SVG, boxes with these nodes marked."""
    drawn = picture(view(graph, options), options)
    if len(drawn.boxes) > MOST_BOXES:
        return _listed(graph, nodes, len(drawn.boxes))
    return re.sub(r"<style>.*?</style>", "", svgfile.svg(drawn, marked(graph, drawn, nodes, mark)), flags=re.S)


def marked(graph: Graph, drawn: Picture, nodes: Sequence[Node], mark: str) -> dict[str, str]:
    """The mark for each box that shows one of these nodes, by its id."""
    number = {node: f"n{i}" for i, node in enumerate(graph.nodes)}
    chosen = {number[node] for node in nodes}
    return {box.id: mark for box in drawn.boxes.values() if chosen & {box.id, *box.cards}}


def lines_of(graph: Graph, nodes: Sequence[Node]) -> list[str]:
    """A line for each node: name, op, outputs, line of the program."""
    cards, number = view(graph, Options()).cards, {node: f"n{i}" for i, node in enumerate(graph.nodes)}
    told = [cards[number[node]] for node in nodes]
    return [clean(f"{c.name or c.title} = {c.title}  {', '.join(c.outputs)}  {c.source}").rstrip() for c in told]


def _listed(graph: Graph, nodes: Sequence[Node], boxes: int) -> str:
    """The marked nodes in words, for a stage of more boxes than anybody reads."""
    lines = lines_of(graph, nodes[:MOST_LINES])
    if len(nodes) > MOST_LINES:
        lines.append(f"... and {len(nodes) - MOST_LINES} more")
    head = "What is marked, in lines:" if nodes else "Nothing in it is marked."
    return f'<p class="soft">{boxes} boxes are too many to draw. {head}</p><pre>{escape(chr(10).join(lines))}</pre>'
