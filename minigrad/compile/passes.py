"""Simplifications, each a pure function Graph -> Graph: aliases, equal computations, constants, dead code."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad.compile.rewrite import results, rewrite
from minigrad.graph import Edge, Graph, Node
from minigrad.ops.registry import OPS

SOURCES = ("leaf", "input", "constant", "literal")


def drop_aliases(graph: Graph) -> Graph:
    """Remove ops whose output is their input: alias, detach, and reshapes or expands to the shape that it has."""

    def replace(node: Node, inputs: tuple[Edge | None, ...]) -> Any:
        if node.op in ("alias", "detach"):
            return {0: inputs[0]}
        if node.op in ("reshape", "expand") and inputs[0] is not None:
            source, index = inputs[0]
            if source.outputs[index] == node.outputs[0]:
                return {0: inputs[0]}
            if node.op == "reshape" and source.op == "reshape":  # a reshape of a reshape is one
                from minigrad.compile.rewrite import like

                return like(node, source.inputs)
        return None

    return rewrite(graph, replace)


def share_equal(graph: Graph) -> Graph:
    """Compute once what is computed twice: the same op on the same inputs with the same attributes."""
    seen: dict[Any, Node] = {}
    outside = set(graph.inputs)

    def replace(node: Node, inputs: tuple[Edge | None, ...]) -> Any:
        if (node.op in SOURCES and node.op != "literal") or node in outside:
            return None
        try:
            key = (node.op, tuple(sorted(node.attrs.items(), key=lambda kv: kv[0])), inputs, node.outputs)
            first = seen.setdefault(key, node)
        except TypeError:  # an attribute that cannot be hashed
            return None
        if first is not node:
            return {i: (made.get(first, first), i) for i in range(len(node.outputs))}
        return None

    made: dict[Node, Node] = {}

    def tracked(node: Node, inputs: tuple[Edge | None, ...]) -> Any:
        result = replace(node, inputs)
        if result is None and inputs != node.inputs:
            from minigrad.compile.rewrite import like

            result = made[node] = like(node, inputs)
        return result

    return rewrite(graph, tracked)


def fold_constants(graph: Graph) -> Graph:
    """Compute what depends on literals alone (numbers that the program wrote), once."""

    def replace(node: Node, inputs: tuple[Edge | None, ...]) -> Any:
        if node.op in SOURCES or not inputs or len(node.outputs) != 1 or node in graph.constants:
            return None
        if any(edge is None or edge[0].op != "literal" for edge in inputs):
            return None
        arrays = [np.asarray(edge[0].attrs["value"], edge[0].outputs[0][1]) for edge in inputs if edge is not None]
        value = OPS[node.op].evaluate(arrays, node.attrs)[0]
        if value.size != 1 or value.ndim:
            return None
        return Node("literal", {"value": value.item()}, (), ((value.shape, value.dtype),))

    return rewrite(graph, replace)


def drop_dead(graph: Graph) -> Graph:
    """Remove what no result needs; the graph's inputs stay."""
    needed = {edge[0] for edge in results(graph)}
    for node in reversed(graph.nodes):
        if node in needed:
            needed.update(edge[0] for edge in node.inputs if edge is not None)
    needed.update(graph.inputs)
    return rewrite(graph, lambda node, inputs: None if node in needed else {})


PASSES = (drop_aliases, fold_constants, share_equal, drop_dead)
