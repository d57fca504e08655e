"""Building a changed copy of a graph: nodes are never altered, a pass makes new ones where inputs changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from minigrad.graph import Graph, Visit
from minigrad.node import Edge, Node

Inputs = tuple[Edge | None, ...]
Item = TypeVar("Item")
Replacement = Node | Sequence[Node] | Mapping[int, Edge] | None


def like(node: Node, inputs: Inputs, **changes: Any) -> Node:
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


def rewrite(graph: Graph, replace: Callable[[Node, Inputs], Replacement]) -> Graph:
    """The graph with every node passed through `replace(node, its inputs so far)`, which returns what stands for it:

    a node; several nodes, the last of which stands for it; a mapping from output to another edge (the node disappears);
    or None to keep it.
    """
    edges: dict[Edge, Edge] = {}
    renewed: dict[Node, Node] = {}
    nodes: list[Node] = []
    for node in graph.nodes:
        inputs = tuple(edges.get(edge, edge) if edge is not None else None for edge in node.inputs)
        made = replace(node, inputs)
        if made is None:
            made = node if inputs == node.inputs else like(node, inputs)
        if isinstance(made, Mapping):
            edges.update({(node, i): edge for i, edge in made.items()})
            continue
        several = [made] if isinstance(made, Node) else list(made)
        for new in several:
            if new is not node and new.backward_of in renewed:
                new.backward_of = renewed[new.backward_of]
        nodes += several
        if several[-1] is not node:
            renewed[node] = several[-1]
            edges.update({(node, i): (several[-1], i) for i in range(len(node.outputs))})
    return assemble(graph, nodes, edges)


def assemble(graph: Graph, nodes: list[Node], edges: Mapping[Edge, Edge]) -> Graph:
    """`graph` with other nodes; `edges` says which edge stands for an old one."""

    def final(edge: Edge) -> Edge:
        return edges.get(edge, edge)

    kept = set(nodes)
    return Graph(
        nodes,
        graph.inputs,
        [final(edge) for edge in graph.outputs],
        {node: array for node, array in graph.constants.items() if node in kept},
        [(tensor, final(edge)) for tensor, edge in graph.mutations],
        {leaf: final(edge) for leaf, edge in graph.gradients.items()},
        graph.structure,
        [
            Visit(
                final((visit.node, 0))[0],
                tuple(None if edge is None else final(edge) for edge in visit.arrived),
                tuple((final(target), final(value)) for target, value in visit.left),
            )
            for visit in graph.visits
        ],
    )


def by_demand(items: Iterable[Item], needs: Callable[[Item], Iterable[Item]]) -> list[Item]:
    """The items, each behind those that it needs: an order as close to the given one as it goes (depth first)."""
    done: set[Item] = set()
    order: list[Item] = []
    for item in items:
        stack = [item]
        while stack:
            current = stack[-1]
            if current in done:
                stack.pop()
                continue
            missing = [need for need in needs(current) if need not in done]
            if missing:
                stack.extend(missing)
            else:
                done.add(current)
                order.append(current)
                stack.pop()
    return order


def results(graph: Graph) -> list[Edge]:
    """Everything that the outside sees: outputs, mutations, gradients."""
    return [*graph.outputs, *(edge for _, edge in graph.mutations), *graph.gradients.values()]


def readers(graph: Graph) -> dict[Edge, int]:
    """How often each edge is read; the outside counts as two."""
    found: dict[Edge, int] = dict.fromkeys(results(graph), 2)
    for node in graph.nodes:
        for edge in node.inputs:
            if edge is not None:
                found[edge] = found.get(edge, 0) + 1
    return found
