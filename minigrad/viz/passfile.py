"""A page of the compiler at work: a slider through its passes, what each took away and made, and the memory at the end.

Nodes of neighbouring stages are compared by what they are (op, attributes, outputs, name, line), not by identity: a
pass makes a node anew where only its inputs changed, and that is not worth a mark.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Sequence
from html import escape
from typing import Any

from minigrad.compiler.layout import Layout
from minigrad.compiler.memory import place
from minigrad.compiler.pipeline import PIPELINES
from minigrad.graph import Graph
from minigrad.node import Node
from minigrad.viz.format import clean, quantity
from minigrad.viz.picture import Options
from minigrad.viz.stages import Stage, page, stage

PLAN_WIDTH, PLAN_HEIGHT, LEFT, BELOW = 900.0, 420.0, 70.0, 34.0  # of the picture of memory, in pixels
LABEL = 46.0  # pixels: narrower values carry no label


def write_passes(stages: Sequence[tuple[str, Graph]], options: Options) -> str:
    """The page: `stages` as `minigrad.compiler.optimise` gives them. Raises LayoutError where there is no graphviz."""
    does = {step.name: _first_sentence(step.run.__doc__) for steps in PIPELINES.values() for step in steps}
    does["trace"] = "The program as it ran, op by op."
    shown, before = [], stages[0][1]
    for name, graph in stages:
        gone, new = _difference(before, graph)
        shown.append(stage(name, does.get(name, ""), graph, options, new, gone=gone))
        before = graph
    memory, told = memory_svg(before)
    return page("From a trace to a plan", [*shown, Stage("memory", told, shown[-1].nodes, memory)])


def _first_sentence(text: str | None) -> str:
    return " ".join(inspect.cleandoc(text or "").split("\n\n")[0].split()).replace("`", "")


def _identity(node: Node) -> tuple[Any, ...]:
    return node.op, repr(sorted(node.attrs.items())), node.outputs, node.name, str(node.where)


def _difference(before: Graph, after: Graph) -> tuple[list[Node], list[Node]]:
    """The nodes that only the one has, and those that only the other has."""
    kept = Counter(map(_identity, before.nodes)) & Counter(map(_identity, after.nodes))
    return _beyond(before, kept), _beyond(after, kept)


def _beyond(graph: Graph, kept: Counter[tuple[Any, ...]]) -> list[Node]:
    left, found = Counter(kept), []
    for node in graph.nodes:
        if node.op == "literal":
            continue
        if left[_identity(node)]:
            left[_identity(node)] -= 1
        else:
            found.append(node)
    return found


# --- the memory of the plan --------------------------------------------------------------------------


def memory_svg(graph: Graph) -> tuple[str, str]:
    """The arena of a plan over its steps, as SVG (which value lies where, from when to when), and a sentence on it."""
    layout = Layout(graph)
    offsets, total = place(layout.buffers)
    steps = max(len(graph.nodes), 1)
    across, down = (PLAN_WIDTH - LEFT) / steps, (PLAN_HEIGHT - BELOW) / max(total, 1)
    names = graph.names()
    alive = [sum(b.size for b in layout.buffers if b.start <= step <= b.stop) for step in range(steps)] or [0]
    peak = max(range(len(alive)), key=alive.__getitem__)
    parts = []
    for edge, buffer, offset in zip(layout.owners, layout.buffers, offsets, strict=True):
        start, stop = max(buffer.start, 0), min(buffer.stop, steps - 1)
        x, y = LEFT + start * across, offset * down
        wide, high = (stop - start + 1) * across, max(buffer.size * down, 1.0)
        node = edge[0]
        side = "backward" if node.backward_of is not None else "input" if node in graph.inputs else "forward"
        about = f"{names[node]}: {node.op} {list(node.outputs[edge[1]][0])}, {quantity(buffer.size, 'B')}, "
        about += f"steps {start} to {stop}"
        label = ""
        if wide > LABEL and high > 11:
            text, middle = escape(clean(node.op)[: int(wide / 6.2)]), y + min(high / 2 + 3.5, high - 2)
            label = f'<text x="{x + 4:.1f}" y="{middle:.1f}">{text}</text>'
        parts.append(
            f'<g class="value {side}"><title>{escape(clean(about))}</title><rect x="{x:.1f}" y="{y:.1f}" '
            f'width="{max(wide, 1.0):.1f}" height="{high:.1f}"/>{label}</g>'
        )
    at, bottom = LEFT + (peak + 0.5) * across, PLAN_HEIGHT - BELOW
    parts.append(f'<path class="peak" d="M{at:.1f},0 V{bottom:.1f}"/>')
    axes = ((LEFT - 6, 12, "end", "0 B"), (LEFT - 6, bottom, "end", quantity(total, "B")),
            (LEFT, bottom + 18, "start", "step 0"), (PLAN_WIDTH, bottom + 18, "end", f"step {steps - 1}"))  # fmt: skip
    for x, y, anchor, text in axes:
        parts.append(f'<text class="axis" x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{text}</text>')
    apart = sum(buffer.size for buffer in layout.buffers)
    told = (
        f"The plan's memory: {quantity(total, 'B')} hold {len(offsets)} values of {quantity(apart, 'B')} in all, each "
        f"while something still reads it. At most {quantity(max(alive), 'B')} are in use at once, at step {peak}."
    )
    size = f'width="{PLAN_WIDTH:.0f}" height="{PLAN_HEIGHT:.0f}" viewBox="0 0 {PLAN_WIDTH:.0f} {PLAN_HEIGHT:.0f}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" class="memory" {size}>{"".join(parts)}</svg>', told
