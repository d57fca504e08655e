"""Building a changed copy of a graph: nodes are never altered, a pass makes new ones where inputs changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from minigrad.graph import Edge, Graph, Node


def like(node: Node, inputs: tuple[Edge | None, ...], **changes: Any) -> Node:
    """A copy of `node` that reads `inputs`; `changes` replace op, attrs, outputs."""
    copy = Node(
        changes.get("op", node.op),
        changes.get("attrs", node.attrs),
        inputs,
        changes.get("outputs", node.outputs),
        where=node.where,
    )
    copy.scope, copy.backward_of, copy.name = node.scope, node.backward_of, node.name
    return copy


def rewrite(
    graph: Graph, replace: Callable[[Node, tuple[Edge | None, ...]], Node | Mapping[int, Edge] | None]
) -> Graph:
    """The graph with every node passed through `replace(node, its inputs so far)`.

    It returns a node to stand for it, a mapping from output to another edge (the node disappears), or None to keep it.
    """
    edges: dict[Edge, Edge] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        inputs = tuple(edges.get(edge, edge) if edge is not None else None for edge in node.inputs)
        made = replace(node, inputs)
        if made is None:
            made = node if inputs == node.inputs else like(node, inputs)
        if isinstance(made, Node):
            nodes.append(made)
            if made is not node:
                edges.update({(node, i): (made, i) for i in range(len(node.outputs))})
        else:
            edges.update({(node, i): edge for i, edge in made.items()})

    def final(edge: Edge) -> Edge:
        return edges.get(edge, edge)

    return Graph(
        nodes,
        graph.inputs,
        [final(edge) for edge in graph.outputs],
        {node: array for node, array in graph.constants.items() if node in set(nodes)},
        [(tensor, final(edge)) for tensor, edge in graph.mutations],
        {leaf: final(edge) for leaf, edge in graph.gradients.items()},
        graph.structure,
    )


def results(graph: Graph) -> list[Edge]:
    """Everything that the outside sees: outputs, mutations, gradients."""
    return [*graph.outputs, *(edge for _, edge in graph.mutations), *graph.gradients.values()]
