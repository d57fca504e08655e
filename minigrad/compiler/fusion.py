"""Elementwise fusion: neighbouring elementwise ops become one "fused" node, computed in one pass over memory.

A node joins the group of a producer if both have the same shape and no path leads from the group through the outside
back to the node. A fused node carries its body, a little program over its inputs; its reference runs that program with
the reference of each op, so a fused graph can be replayed and compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.compiler.rewrite import assemble, by_demand, like, results
from minigrad.graph import Edge, Graph, Node
from minigrad.ops.registry import OPS, Array, Meta, op

# op -> expression of its operands, in the generated kernel's language
EXPRESSIONS: dict[str, str] = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "divide({0}, {1})",
    "neg": "-{0}",
    "abs": "abs({0})",
    "square": "{0} * {0}",
    "reciprocal": "divide(ONE, {0})",
    "sqrt": "np.sqrt({0})",
    "rsqrt": "inverse_root({0})",
    "maximum": "{0} if {0} > {1} or {0} != {0} else {1}",
    "minimum": "{0} if {0} < {1} or {0} != {0} else {1}",
    "relu": "{0} if {0} > ZERO or {0} != {0} else ZERO",
    "exp": "exp({0})",
    "log": "log({0})",
    "tanh": "tanh({0})",
    "sigmoid": "sigmoid({0})",
    "erf": "erf({0})",
    "gelu": "gelu({0})",
    "silu": "silu({0})",
    "where": "{1} if {0} else {2}",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "bitwise_and": "{0} and {1}",
    "bitwise_or": "{0} or {1}",
    "bitwise_not": "not {0}",
    "cast": "ONE if {0} else ZERO",
    "clone": "{0}",
}
_COSTLY = {"exp": 0.25, "log": 0.4, "tanh": 0.4, "sigmoid": 0.35, "erf": 0.4, "gelu": 0.5, "silu": 0.4}  # measured, ns
_BOOLEAN_INPUT = ("cast", "bitwise_and", "bitwise_or", "bitwise_not")
SERVED = (dtypes.float32, dtypes.bool_)
MOST_INPUTS, MOST_STEPS = 24, 64  # of a fused kernel: the time to compile one grows faster than they do

Step = tuple[str, tuple[int, ...]]  # an op and its operands: below the number of inputs an input, else a step


def work(body: Sequence[Step]) -> float:
    """About how many nanoseconds an element of a fused kernel takes one thread, without its memory."""
    return sum(_COSTLY.get(name, 0.03) for name, _ in body)


def fusible(node: Node) -> bool:
    """May `node` be a step of a fused kernel: float32 or bool throughout, in a way that an expression exists for."""
    if node.op not in EXPRESSIONS or len(node.outputs) != 1 or any(edge is None for edge in node.inputs):
        return False
    dtype_in = [edge[0].outputs[edge[1]][1] for edge in node.inputs if edge is not None]
    dtype_out = node.outputs[0][1]
    if dtype_out not in SERVED or any(dtype not in SERVED for dtype in dtype_in):
        return False
    if node.op in _BOOLEAN_INPUT:
        return dtype_in[0] == dtypes.bool_ and (node.op != "cast" or dtype_out == dtypes.float32)
    return node.op == "where" or dtypes.bool_ not in dtype_in or node.op == "clone"


def split_point(shape: tuple[int, ...], inputs: list[tuple[int, ...]]) -> int | None:
    """Where to cut `shape` into rows and columns so that every input covers rows, columns, both or neither entirely."""
    patterns = []
    for given in inputs:
        padded = (1,) * (len(shape) - len(given)) + given
        patterns.append([None if n == 1 else m == n for n, m in zip(shape, padded, strict=True)])
    for cut in range(len(shape), -1, -1):
        halves = [half for pattern in patterns for half in (pattern[:cut], pattern[cut:])]
        if all(len(set(half) - {None}) < 2 for half in halves):
            return cut
    return None


def _serves(node: Node, members: list[Node]) -> bool:
    """Can the group with `node` be cut into rows and columns for all of its inputs, and is it not too large?"""
    if len(members) >= MOST_STEPS:
        return False
    inside = {*members, node}
    read = {
        edge
        for member in inside
        for edge in member.inputs
        if edge is not None and edge[0] not in inside and edge[0].op != "literal"
    }
    shapes = [edge[0].outputs[edge[1]][0] for edge in read]
    return len(read) <= MOST_INPUTS and split_point(node.outputs[0][0], shapes) is not None


def groups(graph: Graph) -> dict[Node, int]:
    """Which fused group each elementwise node belongs to. Sets of groups are bit sets."""
    group: dict[Node, int] = {}
    members: list[list[Node]] = []
    before: list[int] = []  # for each group, all that must run before it, through other groups too
    direct: dict[Node, int] = {}  # for each node outside of groups, those that it needs, not those before them

    def needed(node: Node, joined: int | None) -> int:
        """All groups but `joined` that must run before `node`."""
        found = 0
        for source in {edge[0] for edge in node.inputs if edge is not None}:
            if source not in group:
                found |= direct.get(source, 0)
            elif group[source] != joined:
                found |= 1 << group[source]
        return found

    def closed(found: int) -> int:
        """These groups and all before them."""
        rest = found
        while rest:
            last = rest.bit_length() - 1
            rest ^= 1 << last
            found |= before[last]
        return found

    for node in graph.nodes:
        joined = None
        if fusible(node):
            for edge in reversed(node.inputs):
                candidate = None if edge is None else group.get(edge[0])
                if candidate is None or members[candidate][0].outputs[0][0] != node.outputs[0][0]:
                    continue
                if not closed(needed(node, candidate)) >> candidate & 1 and _serves(node, members[candidate]):
                    joined = candidate
                    break
            if joined is None and _serves(node, []):
                joined = len(members)
                members.append([])
                before.append(0)
        if joined is None:
            direct[node] = needed(node, None)
            continue
        group[node] = joined
        members[joined].append(node)
        new = closed(needed(node, joined)) & ~before[joined]
        if new:
            before[joined] |= new
            for other, earlier in enumerate(before):
                if earlier >> joined & 1:
                    before[other] |= new
    return group


def fuse_elementwise(graph: Graph) -> Graph:
    """Replace every group by one "fused" node at the place of its last member; the order is made topological again."""
    group = groups(graph)
    by_group: dict[int, list[Node]] = {}
    for node in graph.nodes:
        if node in group:
            by_group.setdefault(group[node], []).append(node)
    users: dict[Edge, set[int | None]] = {}
    for node in graph.nodes:
        for edge in node.inputs:
            if edge is not None:
                users.setdefault(edge, set()).add(group.get(node))
    wanted = set(results(graph))
    edges: dict[Edge, Edge] = {}
    fused: dict[int, tuple[list[Edge], dict[str, Any], list[Node]]] = {}
    for number, nodes in by_group.items():
        inside = set(nodes)
        inputs = list(dict.fromkeys(e for n in nodes for e in n.inputs if e is not None and e[0] not in inside))
        place = {edge: i for i, edge in enumerate(inputs)}
        place.update({(node, 0): len(inputs) + i for i, node in enumerate(nodes)})
        body = tuple((n.op, tuple(place[e] for e in n.inputs if e is not None)) for n in nodes)
        kept = [n for n in nodes if (n, 0) in wanted or any(u != number for u in users.get((n, 0), ()))]
        attrs: dict[str, Any] = {"body": body, "kept": tuple(place[n, 0] for n in kept)}
        fused[number] = (inputs, attrs, kept)
    order = _order(graph, group, fused)
    made: list[Node] = []
    for item in order:
        if isinstance(item, Node):
            inputs_now = tuple(edges.get(e, e) if e is not None else None for e in item.inputs)
            if inputs_now == item.inputs:
                made.append(item)
                continue
            copy = like(item, inputs_now)
            made.append(copy)
            edges.update({(item, i): (copy, i) for i in range(len(item.outputs))})
        else:
            inputs, attrs, kept = fused[item]
            last = by_group[item][-1]
            node = Node("fused", attrs, tuple(edges.get(e, e) for e in inputs), tuple(n.outputs[0] for n in kept),
                        where=last.where)  # fmt: skip
            node.scope, node.backward_of = last.scope, last.backward_of
            made.append(node)
            edges.update({(n, 0): (node, i) for i, n in enumerate(kept)})

    return assemble(graph, made, edges)


def _order(graph: Graph, group: dict[Node, int], fused: Mapping[int, Any]) -> list[Node | int]:
    """A topological order of the contracted graph, as close to the old one as it goes."""

    def item(node: Node) -> Node | int:
        return group.get(node, node)

    def needs(what: Node | int) -> list[Node | int]:
        given = fused[what][0] if isinstance(what, int) else what.inputs
        return [item(edge[0]) for edge in given if edge is not None]

    return by_demand([item(node) for node in graph.nodes], needs)


# --- the fused op -----------------------------------------------------------------------------------


def _reference(*inputs: Array, body: tuple[Step, ...], kept: tuple[int, ...]) -> tuple[Array, ...]:
    values: list[Array] = list(inputs)
    for name, operands in body:
        attrs = {"dtype": dtypes.float32} if name == "cast" else {}
        values.append(OPS[name].evaluate([values[i] for i in operands], attrs)[0])
    return tuple(values[i] for i in kept)


def _metas(metas: list[Meta], *, body: tuple[Step, ...], kept: tuple[int, ...]) -> list[Meta]:
    known: list[Meta] = list(metas)
    for name, operands in body:
        attrs = {"dtype": dtypes.float32} if name == "cast" else {}
        known.append(OPS[name].output_metas([known[i] for i in operands], attrs)[0])
    return [known[i] for i in kept]


op(
    "fused",
    _reference,
    shape=_metas,
    flops=lambda metas, outputs, *, body, kept: len(body) * int(np.prod(outputs[0][0])),
    samples=lambda rng: [
        (
            (rng.standard_normal((3, 4)), rng.standard_normal(4)),
            {"body": (("mul", (0, 1)), ("add", (2, 0)), ("exp", (3,))), "kept": (3, 4)},
        )
    ],
    formula="several elementwise ops in one pass",
    differentiable=False,
)
