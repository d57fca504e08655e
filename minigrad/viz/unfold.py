"""Composite ops shown by their steps: a graph in which softmax, attention, ... are replaced by their decompositions."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import numpy as np

from minigrad.compiler.rewrite import assemble, like, results
from minigrad.graph import Graph
from minigrad.node import Edge, Node
from minigrad.ops.registry import OPS
from minigrad.tensor import Tensor
from minigrad.tracing import trace


def unfold(graph: Graph, globs: Sequence[str] = ("*",)) -> Graph:
    """`graph` with every composite whose name matches one of `globs` replaced by its steps, in a scope of its name.

    A composite stays as it is where something reads an output that its steps do not make (the statistics that a fused
    derivative uses). The new graph computes the same numbers.
    """
    used: dict[Node, set[int]] = {}
    for edge in [*results(graph), *(edge for node in graph.nodes for edge in node.inputs if edge is not None)]:
        used.setdefault(edge[0], set()).add(edge[1])
    edges: dict[Edge, Edge] = {}
    renewed: dict[Node, Node] = {}
    nodes: list[Node] = []
    constants: dict[Node, np.ndarray] = {}
    for number, node in enumerate(graph.nodes):
        inputs = tuple(edges.get(edge, edge) if edge is not None else None for edge in node.inputs)
        steps = _steps(node, globs)
        if steps is not None and max(used.get(node, {0})) < len(steps.outputs):
            made = _splice(steps, node, inputs, number)
            nodes += made.values()
            constants.update((made[source], array) for source, array in steps.constants.items())
            ends = [(made[source], index) if source in made else _given(steps, inputs, source)
                    for source, index in steps.outputs]  # fmt: skip
            edges.update({(node, i): edge for i, edge in enumerate(ends)})
            renewed[node] = ends[0][0]
        elif inputs != node.inputs or node.backward_of in renewed:
            copy = like(node, inputs)
            copy.backward_of = renewed.get(node.backward_of, node.backward_of) if node.backward_of else None
            nodes.append(copy)
            renewed[node] = copy
            edges.update({(node, i): (copy, i) for i in range(len(node.outputs))})
        else:
            nodes.append(node)
    unfolded = assemble(graph, nodes, edges)
    unfolded.constants.update(constants)
    return unfolded


def _steps(node: Node, globs: Sequence[str]) -> Graph | None:
    """The decomposition of `node` as a graph, unfolded itself; None for another op."""
    op = OPS.get(node.op)
    if op is None or op.decomposition is None or not any(fnmatchcase(node.op, glob) for glob in globs):
        return None
    decomposition = op.decomposition
    metas = [edge[0].outputs[edge[1]] for edge in node.inputs if edge is not None]
    arguments = [Tensor(np.empty(shape, dtype)) for shape, dtype in metas]
    return unfold(trace(lambda *tensors: decomposition(*tensors, **node.attrs))(*arguments), globs)


def _splice(steps: Graph, node: Node, inputs: tuple[Edge | None, ...], number: int) -> dict[Node, Node]:
    """Copies of the steps that read `inputs`, in a scope named after the composite inside its own."""
    made: dict[Node, Node] = {}
    for step in steps.nodes:
        if step in steps.inputs:
            continue
        reads = tuple(
            edge if edge is None else (made[edge[0]], edge[1]) if edge[0] in made else _given(steps, inputs, edge[0])
            for edge in step.inputs
        )
        copy = like(step, reads)
        copy.scope = (*node.scope, (f"#{number}", node.op), *step.scope)
        copy.where, copy.backward_of = node.where, node.backward_of
        made[step] = copy
    return made


def _given(steps: Graph, inputs: tuple[Edge | None, ...], node: Node) -> Edge:
    edge = inputs[steps.inputs.index(node)]
    assert edge is not None
    return edge
