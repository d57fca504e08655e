"""Simplifications, each a pure function Graph -> Graph: aliases, equal computations, constants, dead code."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np

from minigrad.compiler.rewrite import Inputs, assemble, like, results, rewrite
from minigrad.graph import Graph
from minigrad.node import Edge, Node
from minigrad.ops.index import thaw
from minigrad.ops.registry import OPS

SOURCES = ("leaf", "input", "constant", "literal")


def drop_aliases(graph: Graph) -> Graph:
    """Remove ops whose output is their input: alias, detach, and reshapes or expands to the shape that it has."""

    def replace(node: Node, inputs: Inputs) -> Any:
        if node.op in ("alias", "detach"):
            return {0: inputs[0]}
        if node.op in ("reshape", "expand") and inputs[0] is not None:
            source, index = inputs[0]
            if source.outputs[index] == node.outputs[0]:
                return {0: inputs[0]}
            if node.op == "reshape" and source.op == "reshape" and source.inputs[0] is not None:
                origin, place = source.inputs[0]  # a reshape of a reshape is one, or none
                return {0: (origin, place)} if origin.outputs[place] == node.outputs[0] else like(node, source.inputs)
        return None

    return rewrite(graph, replace)


def share_equal(graph: Graph) -> Graph:
    """Compute once what is computed twice: the same op on the same inputs with the same attributes."""
    seen: dict[Any, Node] = {}
    outside = set(graph.inputs)

    def replace(node: Node, inputs: Inputs) -> Any:
        if (node.op in SOURCES and node.op != "literal") or node in outside:
            return None
        try:
            key = (node.op, tuple(sorted(node.attrs.items())), inputs, node.outputs, _sign(node))
            first = seen.setdefault(key, node)
        except TypeError:  # an attribute that cannot be hashed
            return None
        if first is not node:
            return {i: (made.get(first, first), i) for i in range(len(node.outputs))}
        return None

    made: dict[Node, Node] = {}

    def tracked(node: Node, inputs: Inputs) -> Any:
        result = replace(node, inputs)
        if result is None and inputs != node.inputs:
            result = made[node] = like(node, inputs)
        return result

    return rewrite(graph, tracked)


def _sign(node: Node) -> float | None:
    """What tells the literal -0.0 from 0.0, which are equal."""
    return math.copysign(1.0, node.attrs["value"]) if node.op == "literal" else None


def fold_constants(graph: Graph) -> Graph:
    """Compute what depends on literals alone (numbers that the program wrote), once."""

    def replace(node: Node, inputs: Inputs) -> Any:
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


def own_gradients(graph: Graph) -> Graph:
    """A gradient that is left lies in memory of its own: a copy of what is another's, too, or captured, or spread."""
    owners = {leaf: viewed(edge) for leaf, edge in graph.gradients.items()}
    counts = Counter(owner for owner, _ in owners.values())
    nodes, gradients = list(graph.nodes), dict(graph.gradients)
    for leaf, (owner, spread) in owners.items():
        if spread or counts[owner] > 1 or owner[0] in graph.inputs or owner[0].op in SOURCES:
            source, index = graph.gradients[leaf]
            copy = like(source, ((source, index),), op="clone", attrs={}, outputs=(source.outputs[index],))
            nodes.append(copy)
            gradients[leaf] = copy, 0
    made = assemble(graph, nodes, {})
    made.gradients = gradients
    return made


def viewed(edge: Edge) -> tuple[Edge, bool]:
    """What a value is a view of, and whether elements share memory on the way."""
    spread = False
    while OPS[edge[0].op].view if edge[0].op in OPS else False:
        spread = spread or edge[0].op == "expand"
        assert edge[0].inputs[0] is not None
        edge = edge[0].inputs[0]
    return edge, spread


def drop_dead(graph: Graph) -> Graph:
    """Remove what no result needs; the graph's inputs stay."""
    needed = {edge[0] for edge in results(graph)}
    for node in reversed(graph.nodes):
        if node in needed:
            needed.update(edge[0] for edge in node.inputs if edge is not None)
    needed.update(graph.inputs)
    return rewrite(graph, lambda node, inputs: None if node in needed else {})


def add_in_dropout(graph: Graph) -> Graph:
    """A sum of something with dropout's output, which nothing else reads, is computed by dropout's kernel."""
    users = _users(graph)

    def replace(node: Node, inputs: Inputs) -> Any:
        for which in (0, 1) if node.op == "add" else ():
            before, dropped, other = node.inputs[which], inputs[which], inputs[1 - which]
            assert before is not None and dropped is not None and other is not None  # noqa: PT018
            alone = dropped[0].op == "dropout" and len(dropped[0].inputs) == 2 and users[before[0]] == 1
            if alone and dropped[0].outputs == node.outputs and other[0].outputs[other[1]] == node.outputs[0]:
                return like(node, (*dropped[0].inputs, other), op="dropout", attrs=dropped[0].attrs)
        return None

    return drop_dead(rewrite(graph, replace))


def _swaps_matrices(node: Node) -> bool:
    """Is `node` a permutation that exchanges the last two dimensions and nothing else?"""
    dims = node.attrs.get("dims", ())
    n = len(dims)
    return node.op == "permute" and n >= 2 and dims == (*range(n - 2), n - 1, n - 2)


def _swapped(edge: Edge, before: Node) -> tuple[list[Node], Edge]:
    """The transpose of `edge`: what it was transposed from, or a new node."""
    source, index = edge
    if _swaps_matrices(source):
        assert source.inputs[0] is not None
        return [], source.inputs[0]
    shape, dtype = source.outputs[index]
    dims = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    meta = ((*shape[:-2], shape[-1], shape[-2]), dtype)
    node = like(before, (edge,), op="permute", attrs={"dims": dims}, outputs=(meta,))
    return [node], (node, 0)


def _users(graph: Graph) -> dict[Node, int]:
    """How often each node is read."""
    users: dict[Node, int] = {}
    for edge in [*results(graph), *(edge for node in graph.nodes for edge in node.inputs if edge is not None)]:
        users[edge[0]] = users.get(edge[0], 0) + 1
    return users


def fold_transposes(graph: Graph) -> Graph:
    """Transposes move into matrix products, which read either layout: (A B)^T becomes B^T A^T, (A^T)^T becomes A."""
    users = _users(graph)

    def replace(node: Node, inputs: Inputs) -> Any:
        if node.op != "permute" or inputs[0] is None:
            return None
        source = inputs[0][0]
        if source.op == "permute":
            assert source.inputs[0] is not None
            dims = tuple(source.attrs["dims"][d] for d in node.attrs["dims"])
            if dims == tuple(range(len(dims))):
                return {0: source.inputs[0]}
            return like(node, source.inputs, attrs={"dims": dims})
        original = node.inputs[0]
        if _swaps_matrices(node) and source.op == "matmul" and original is not None and users[original[0]] == 1:
            left, right = source.inputs
            assert left is not None
            assert right is not None
            if len(left[0].outputs[left[1]][0]) == len(right[0].outputs[right[1]][0]):
                before_right, new_left = _swapped(right, node)
                before_left, new_right = _swapped(left, node)
                product = like(source, (new_left, new_right), outputs=node.outputs)
                return [*before_right, *before_left, product]
        return None

    return drop_dead(drop_aliases(rewrite(graph, replace)))  # two that cancel may have stood between two reshapes


def join_slices(graph: Graph) -> Graph:
    """A sum of gradients of slices that do not overlap is one array that they are written into."""
    users = _users(graph)

    def parts(edge: Edge | None) -> tuple[list[Edge | None], list[Any], tuple[int, ...]] | None:
        if edge is None or users.get(original.get(edge[0], edge[0]), 0) > 1:
            return None
        node = edge[0]
        if node.op == "slice_add":
            return [node.inputs[0]], [node.attrs["index"]], node.attrs["shape"]
        return (list(node.inputs), list(node.attrs["indices"]), node.attrs["shape"]) if node.op == "join" else None

    original: dict[Node, Node] = {}

    def replace(node: Node, inputs: Inputs) -> Any:
        if node.op != "add":
            return None
        first, second = parts(inputs[0]), parts(inputs[1])
        if first is None or second is None or first[2] != second[2] or _overlap(first[1], second[1], first[2]):
            return None
        attrs = {"shape": first[2], "indices": (*first[1], *second[1])}
        joined = like(node, (*first[0], *second[0]), op="join", attrs=attrs)
        original[joined] = node
        return joined

    return drop_dead(rewrite(graph, replace))


def _overlap(first: list[Any], second: list[Any], shape: tuple[int, ...]) -> bool:
    covered = np.zeros(shape, bool)
    for index in first:
        covered[thaw(index)] = True
    return any(bool(covered[thaw(index)].any()) for index in second)
