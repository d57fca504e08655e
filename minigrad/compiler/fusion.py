"""Elementwise fusion: neighbouring elementwise ops become one "fused" node, computed in one pass over memory.

A node joins the group of a producer if both have the same shape and no path leads from the group through the outside
back to the node. A fused node carries its body, a little program over its inputs; its reference runs that program with
the reference of each op, so a fused graph can be replayed and compared.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.compiler.rewrite import assemble, by_demand, like, results
from minigrad.graph import Graph
from minigrad.node import Edge, Node
from minigrad.ops.derivation import derive
from minigrad.ops.expression import ANY, NUMBERS, Symbol, Value, lines
from minigrad.ops.registry import OPS, Array, Meta, op

# words of expressions (`minigrad.ops.expression`) in the language of generated kernels, by dtype of their operands
WORDS: dict[str, dict[str, str]] = {
    "float32": {
        **ANY,
        **NUMBERS,
        "divide": "divide({0}, {1})",
        "absolute": "abs({0})",
        "sqrt": "np.sqrt({0})",
        "maximum": "{0} if {0} > {1} or {0} != {0} else {1}",
        "minimum": "{0} if {0} < {1} or {0} != {0} else {1}",
        "exp": "exp({0})",
        "log": "log({0})",
        "log1p": "log1p({0})",
        "tanh": "tanh({0})",
        "erf": "erf({0})",
    },
    "bool": {
        "where": ANY["where"],
        "bitwise_and": "{0} and {1}",
        "bitwise_or": "{0} or {1}",
        "invert": "not {0}",
    },
}
_COSTLY = {"exp": 0.25, "log": 0.4, "log1p": 0.45, "tanh": 0.4, "erf": 0.4}  # measured, ns
SERVED = (dtypes.float32, dtypes.bool_)
MOST_INPUTS, MOST_STEPS = 24, 64  # of a fused kernel: the time to compile one grows faster than they do

Step = tuple[str, tuple[int, ...]]  # an op and its operands: below the number of inputs an input, else a step


def work(body: Sequence[Step]) -> float:
    """About how many nanoseconds an element of a fused kernel takes one thread, without its memory."""
    return sum(_work(OPS[name].tree) for name, _ in body)


def _work(tree: Symbol | None) -> float:
    if tree is None or isinstance(tree.word, int):  # a conversion, a copy
        return 0.03
    parts = [part for part in tree.operands if isinstance(part, Symbol) and part.operands]
    return _COSTLY.get(tree.word, 0.03) + sum(map(_work, parts))


def fusible(node: Node) -> bool:
    """May `node` be a step of a fused kernel: float32 or bool throughout, an expression of words that it has."""
    if node.op not in OPS or len(node.outputs) != 1 or any(edge is None for edge in node.inputs):
        return False
    dtypes_in = [edge[0].outputs[edge[1]][1] for edge in node.inputs if edge is not None]
    dtype_out = node.outputs[0][1]
    if any(dtype not in SERVED for dtype in (*dtypes_in, dtype_out)):
        return False
    if node.op == "cast":
        return dtypes_in[0] == dtypes.bool_ and dtype_out == dtypes.float32
    numbers = [isinstance(value, int | float) for value in node.attrs.values()]
    return all(numbers) and _written(node.op, tuple([dtype.name for dtype in dtypes_in]))


@functools.cache
def _written(op: str, dtypes_in: tuple[str, ...]) -> bool:
    given = [Value("x", dtype) for dtype in (*dtypes_in, *["float32"] * len(OPS[op].attributes))]
    return step_lines(op, given, "y") is not None


def step_lines(op: str, given: Sequence[Value], name: str) -> tuple[list[str], str] | None:
    """The lines of a step, `op` of the values `given` as `name`, and its dtype; None where words for it are missing."""
    if op == "cast":
        return [f"{name} = ONE if {given[0].name} else ZERO"], "float32"
    tree = OPS[op].tree
    return None if tree is None else lines(tree, given, name, _text, _number)


def _text(word: str, dtype: str, names: Sequence[str]) -> str | None:
    if word == "divide" and names[-1].startswith(("C", "np.")):
        return "{0} / {1}"  # by a constant: may be a product with its reciprocal
    return WORDS[dtype].get(word)


def _number(value: Any, dtype: str) -> str | None:
    if dtype == "bool":
        return None
    return ("ZERO", "ONE")[value] if value in (0, 1) else f"np.float32({value!r})"


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
    read: dict[Node, list[Edge]] = {}  # by a step, its attributes as numbers among them
    for node in graph.nodes:
        if node in group:
            by_group.setdefault(group[node], []).append(node)
            read[node] = [edge for edge in (*node.inputs, *_attributes(node)) if edge is not None]
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
        inputs = list(dict.fromkeys(e for n in nodes for e in read[n] if e[0] not in inside))
        place = {edge: i for i, edge in enumerate(inputs)}
        place.update({(node, 0): len(inputs) + i for i, node in enumerate(nodes)})
        body = tuple((n.op, tuple(place[e] for e in read[n])) for n in nodes)
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


def _attributes(node: Node) -> list[Edge]:
    """The numbers that a step is given as attributes, as literals; what a cast is to, its step says."""
    names = () if node.op == "cast" else OPS[node.op].attributes
    meta = ((), np.dtype(np.float32))
    return [(Node("literal", {"value": float(node.attrs[name])}, (), (meta,)), 0) for name in names]


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
        given, numbers = _parted(name, [values[i] for i in operands])
        attrs = {attribute: float(number) for attribute, number in numbers.items()}
        values.append(OPS[name].evaluate(given, attrs if name != "cast" else {"dtype": dtypes.float32})[0])
    return tuple(values[i] for i in kept)


def _parted(name: str, operands: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """A step's inputs, and its attributes."""
    count = len(OPS[name].inputs)
    return operands[:count], dict(zip(OPS[name].attributes, operands[count:], strict=False))


def _metas(metas: list[Meta], *, body: tuple[Step, ...], kept: tuple[int, ...]) -> list[Meta]:
    known: list[Meta] = list(metas)
    for name, operands in body:
        given, attrs = _parted(name, [known[i] for i in operands])
        known.append(OPS[name].output_metas(given, attrs if name != "cast" else {"dtype": dtypes.float32})[0])
    return [known[i] for i in kept]


op(
    "fused", _reference, shape=_metas,
    flops=lambda metas, outputs, *, body, kept: len(body) * int(np.prod(outputs[0][0])),
    samples=lambda rng: [
        (
            (rng.standard_normal((3, 4)), rng.standard_normal(4)),
            {"body": (("mul", (0, 1)), ("add", (2, 0)), ("exp", (3,))), "kept": (3, 4)},
        )
    ],
    formula="several elementwise ops in one pass", differentiable=False, kernels={"cuda.elementwise": "float32 bool"},
    same_place=True, derivation=derive("a step of a compiled plan: the derivative was taken before its ops were fused"),
)  # fmt: skip
