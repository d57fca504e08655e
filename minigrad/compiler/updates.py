"""Updates of several parameters as one node: an optimizer's many small kernels become one over all elements.

A layer's bias is updated in less time than a kernel takes to begin. Plans of the CPU are made so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import minigrad.ops.optimise  # noqa: F401  (registers "adam")
from minigrad import dtypes
from minigrad.compiler.passes import viewed
from minigrad.compiler.rewrite import Inputs, assemble, by_demand, like, rewrite
from minigrad.graph import Graph
from minigrad.node import Edge, Node
from minigrad.ops.derivation import derive
from minigrad.ops.registry import OPS, Array, Meta, Sample, op

EACH, MADE = 5, 4  # inputs of every parameter (itself, gradient, mean, square, step), and its results


def join_updates(graph: Graph) -> Graph:
    """All "adam" nodes with the same settings and rate become one "adam_all", where none needs another's results or
    reads what another may write in place."""
    groups: dict[Any, list[Node]] = {}
    joined: dict[Node, tuple[list[Node], int]] = {}  # its group, and which one of it it is
    behind: set[Node] = set()  # what depends on a node that is joined
    written: set[Edge] = set()
    read: set[Edge] = set()  # and not written: gradients and rates
    for node in graph.nodes:
        edges = [edge for edge in node.inputs if edge is not None]
        if any(edge[0] in behind or edge[0] in joined for edge in edges):
            behind.add(node)
        elif node.op == "adam" and node.outputs[0][1] == dtypes.float32:
            parameter, gradient, *state, rate = [viewed(edge)[0] for edge in edges]
            own, others = {parameter, *state}, {gradient, rate}
            apart = all(a.isdisjoint(b) for a, b in ((others, own), (others, written), (own, written), (own, read)))
            if len(own) < MADE or not apart:
                continue
            members = groups.setdefault((tuple(sorted(node.attrs.items())), edges[EACH], node.outputs[-1]), [])
            joined[node] = members, len(members)
            members.append(node)
            written |= own
            read |= others
    made: dict[Node, Node] = {}  # by the first of a group

    def needs(node: Node) -> list[Node]:
        members, position = joined.get(node, ([node], 0))
        if position:
            return [members[0]]
        return [edge[0] for member in members for edge in member.inputs if edge is not None]

    def replace(node: Node, inputs: Inputs) -> Any:
        if node not in joined:
            return None
        members, position = joined[node]
        if position:
            return {i: (made[members[0]], MADE * position + i) for i in range(MADE)}
        every = [edge for member in members for edge in member.inputs[:EACH]]
        outputs = tuple([meta for member in members for meta in member.outputs])
        made[node] = like(node, (*every, inputs[EACH]), op="adam_all", outputs=outputs)
        return made[node]

    return rewrite(assemble(graph, by_demand(graph.nodes, needs), {}), replace) if joined else graph


# --- the op -----------------------------------------------------------------------------------------


def _each(inputs: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The inputs of "adam" for every parameter."""
    return [(*inputs[i : i + EACH], inputs[-1]) for i in range(0, len(inputs) - 1, EACH)]


def _reference(*inputs: Array, **settings: Any) -> tuple[Array, ...]:
    return tuple([made for one in _each(inputs) for made in OPS["adam"].evaluate(one, settings)])


def _metas(metas: Sequence[Meta], **settings: Any) -> list[Meta]:
    return [made for one in _each(metas) for made in OPS["adam"].output_metas(one, settings)]


def _flops(metas: Sequence[Meta], outputs: Sequence[Meta], **settings: Any) -> int:
    assert OPS["adam"].flops is not None
    return sum(OPS["adam"].flops(one, (), **settings) for one in _each(metas))


def _samples(rng: np.random.Generator) -> Iterator[Sample]:
    assert OPS["adam"].samples is not None
    for inputs, settings in OPS["adam"].samples(rng):
        *one, rate = inputs
        yield (*one, *[value[:2].copy() if value.ndim else value.copy() for value in one], rate), settings


op(
    "adam_all",
    _reference,
    shape=_metas,
    flops=_flops,
    samples=_samples,
    formula="the update of adam, of several parameters",
    source="Kingma and Ba 2015; decoupled decay: Loshchilov and Hutter 2019",
    differentiable=False,
    kernels={"numba.adam": "float32"},
    same_place=True,
    on_host="only plans of the CPU have it: on the device every parameter has its own kernel",
    derivation=derive("a step of a compiled plan: updates run after the backward pass and are not recorded"),
)
