"""The difference of two graphs: two versions of a file, a model and another one, a program and its compiled form.

Nodes are compared in order by op, attributes and outputs, and parameters by name too; lines and numbers do not count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import Any

from minigrad.graph import Graph
from minigrad.node import Node
from minigrad.viz import svgfile
from minigrad.viz.picture import Options, picture
from minigrad.viz.stages import lines_of, marked, page, stage
from minigrad.viz.style import GONE, MADE
from minigrad.viz.writers import view

Part = tuple[str, list[Node], list[Node]]  # "equal" or another tag of difflib, nodes of the first, of the second


def difference(first: Graph, second: Graph) -> list[Part]:
    """Stretches of both graphs, equal and not, in order."""
    ours, theirs = _nodes(first), _nodes(second)
    matcher = SequenceMatcher(None, [*map(_identity, ours)], [*map(_identity, theirs)], autojunk=False)
    return [(tag, ours[a:b], theirs[c:d]) for tag, a, b, c, d in matcher.get_opcodes()]


def _nodes(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.op != "literal"]


def _identity(node: Node) -> tuple[Any, ...]:
    literals = [edge[0].attrs["value"] for edge in node.inputs if edge is not None and edge[0].op == "literal"]
    name = node.name if node.op in ("leaf", "input") else ""
    return node.op, repr(sorted(node.attrs.items())), node.outputs, name, repr(literals)


def _apart(parts: Sequence[Part]) -> tuple[list[Node], list[Node]]:
    """The nodes that only the first has, and those that only the second has."""
    unequal = [part for part in parts if part[0] != "equal"]
    return [n for _, ours, _ in unequal for n in ours], [n for _, _, theirs in unequal for n in theirs]


def difference_text(first: Graph, second: Graph) -> str:
    """Lines of what only one of them has, "-" for the first and "+" for the second, with a line around each place."""
    return "\n".join(_lines(first, second)) + "\n"


def _lines(first: Graph, second: Graph) -> Iterator[str]:
    parts = difference(first, second)
    if all(tag == "equal" for tag, _, _ in parts):
        yield "the graphs do the same ops on the same shapes, in the same order"
        return
    for place, (tag, ours, theirs) in enumerate(parts):
        if tag == "equal":
            shown = ours if len(ours) < 3 else [ours[-1]] if not place else [ours[0], ours[-1]]
            yield from (f"  {line}" for line in lines_of(first, shown))
            continue
        yield from (f"- {line}" for line in lines_of(first, ours))
        yield from (f"+ {line}" for line in lines_of(second, theirs))


def difference_page(first: Graph, second: Graph, names: tuple[str, str], options: Options) -> str:
    """A page with a slider between both pictures: red is what the second lacks, green what it has instead. Raises
    LayoutError where there is no graphviz."""
    (gone, new), told = _apart(difference(first, second)), _headings(first, second, names)
    stages = [
        stage(names[0], told[0], first, options, gone=gone, mark=GONE),
        stage(names[1], told[1], second, options, new, mark=MADE),
    ]
    return page(f"{names[0]} and {names[1]}", stages)


def difference_picture(first: Graph, second: Graph, names: tuple[str, str], options: Options) -> str:
    """Both pictures side by side, as an SVG: red is what the second lacks, green what it has instead.

    Raises LayoutError where there is no graphviz."""
    told, drawings = _headings(first, second, names), []
    apart = zip((first, second), _apart(difference(first, second)), (GONE, MADE), strict=True)
    for place, (graph, nodes, mark) in enumerate(apart):
        drawn = picture(view(graph, options), options)
        drawings.append((names[place], told[place], svgfile.svg(drawn, marked(graph, drawn, nodes, mark))))
    return svgfile.beside(drawings)


def _headings(first: Graph, second: Graph, names: tuple[str, str]) -> tuple[str, str]:
    """What the marks in each picture mean."""
    gone, new = _apart(difference(first, second))
    if not gone and not new:
        return ("The other does the same ops on the same shapes, in the same order.",) * 2
    nothing = "Nothing is marked: {} has all of this."
    return (
        f"Red: what {names[1]} lacks." if gone else nothing.format(names[1]),
        f"Green: what {names[0]} lacks." if new else nothing.format(names[0]),
    )
