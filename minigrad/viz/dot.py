"""A graph in graphviz's language: a box an op, modules as nested clusters, inputs and constants as ovals."""

from __future__ import annotations

from typing import Any

from minigrad.graph import Graph, Node
from minigrad.viz.format import meta

_STYLE = {"input": "#cfe8ff", "leaf": "#ffe9b8", "constant": "#eeeeee", "literal": "#ffffff"}


def quote(text: str) -> str:
    """A dot string: quotes and backslashes escaped, line breaks kept."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def dot(graph: Graph) -> str:
    """The drawing of `graph`; the same graph gives the same text."""
    names = graph.names()
    number = {node: i for i, node in enumerate(graph.nodes)}
    tree: dict[str, Any] = {}
    for node in graph.nodes:
        place = tree
        for name, kind in node.scope:
            place = place.setdefault(f"{name}: {kind}" if name else kind, {})
        place.setdefault("", []).append(node)
    lines = [
        "digraph {",
        '  rankdir=TB; bgcolor="transparent"; node [fontname="Helvetica", fontsize=10, style="filled,rounded", '
        'fillcolor=white, shape=box]; edge [color="#555555", arrowsize=0.6];',
        *_cluster(tree, names, number, "  ", [0]),
    ]
    for node in graph.nodes:
        for edge in node.inputs:
            if edge is not None:
                lines.append(f"  n{number[edge[0]]} -> n{number[node]};")
    for position, (node, _) in enumerate(graph.outputs):
        lines.append(
            f'  out{position} [label="output {position}", shape=plaintext, style=""]; n{number[node]} -> out{position};'
        )
    return "\n".join([*lines, "}"])


def _cluster(
    tree: dict[str, Any], names: dict[Node, str], number: dict[Node, int], indent: str, count: list[int]
) -> list[str]:
    lines = [f"{indent}n{number[node]} [{_label(node, names[node])}];" for node in tree.get("", [])]
    for title, inner in tree.items():
        if title:
            count[0] += 1
            lines.append(f'{indent}subgraph cluster_{count[0]} {{ label={quote(title)}; color="#bbbbbb"; fontsize=9;')
            lines += _cluster(inner, names, number, indent + "  ", count)
            lines.append(indent + "}")
    return lines


def _label(node: Node, name: str) -> str:
    label = f"{node.op if node.op not in _STYLE else name}\n{', '.join(meta(*output) for output in node.outputs)}"
    fill = _STYLE.get(node.op)
    extra = f', shape=ellipse, fillcolor="{fill}"' if fill else ', fillcolor="#fde2e2"' if node.backward_of else ""
    return f"label={quote(label)}{extra}"
