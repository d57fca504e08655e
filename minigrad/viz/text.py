"""A graph as a readable listing, like a program: one line an op, with shape, module and source line.

    graph(x: f32[2, 3] requires_grad):
        w = parameter f32[3]                      # norm
        %0 = mul(x, w) -> f32[2, 3]               # norm, model.py:12
        %1 = add(%0, 1.0) -> f32[2, 3]            # model.py:13
        w.grad <- %7
        return %1

`minigrad.viz.parse` reads it back. `%3.1` is the second output of %3. A literal has the dtype of the first input that
is none, unless it says another (`0.5:f64`). Constants of up to INLINE elements are written out, larger ones are only
named. What the function left behind stands before `return`: gradients, and new values of tensors changed in place.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.graph import Graph
from minigrad.node import Edge, Node
from minigrad.viz.format import SHORT, attribute, clean, meta

INLINE = 8
PLAIN = re.compile(r"[%A-Za-z_][\w.~]*")
KINDS = {"leaf": "parameter", "constant": "constant"}


def named(name: str) -> str:
    """A name as it is written: quoted where it could be read as something else."""
    return name if PLAIN.fullmatch(name) and name not in ("inf", "nan", "True", "False", "_") else json.dumps(name)


def listing(graph: Graph) -> str:
    """The program of `graph`."""
    names = {node: named(name) for node, name in graph.names().items() if node.op != "literal"}
    edge = _reference(names)
    given = set(graph.inputs)
    head = ", ".join(
        f"{names[node]}: {meta(*node.outputs[0])}{' requires_grad' if node.op == 'leaf' else ''}"
        for node in graph.inputs
    )
    rows: list[tuple[str, str]] = []
    for node in graph.nodes:
        if node in given or node.op == "literal":
            continue
        if node in graph.constants:
            rows.append((f"{names[node]} = {_constant(node, graph.constants[node])}", clean(node.path)))
            continue
        arguments = [edge(e, _usual(node)) for e in node.inputs]
        arguments += [f"{key}={attribute(value)}" for key, value in node.attrs.items()]
        outputs = ", ".join(meta(*output) for output in node.outputs)
        notes = [node.path] if node.path else []
        if node.backward_of is not None and node.backward_of in names:
            notes.append(f"backward of {names[node.backward_of]}")
        if node.source is not None:
            notes.append(f"{os.path.basename(node.source[0])}:{node.source[1]}")
        rows.append((f"{names[node]} = {node.op}({', '.join(arguments)}) -> {outputs}", clean(", ".join(notes))))
    rows += [(f"{names.get(leaf, '_')}.grad <- {edge(e)}", "") for leaf, e in graph.gradients.items()]
    holders = {id(array): names[node] for node, array in graph.constants.items()}
    rows += [(f"{holders.get(id(tensor.array), '_')} <- {edge(e)}", "") for tensor, e in graph.mutations]
    width = min(max((len(left) for left, _ in rows), default=0), 80)
    lines = [f"    {left.ljust(width)}  # {right}" if right else f"    {left}" for left, right in rows]
    return "\n".join([f"graph({head}):", *lines, "    return " + ", ".join(edge(e) for e in graph.outputs)]).rstrip()


def _reference(names: dict[Node, str]) -> Callable[..., str]:
    """How an edge is written: a name, `.1` for a second output, a literal's value with its dtype if not `usual`."""

    def written(edge: Edge | None, usual: np.dtype | None = None) -> str:
        if edge is None:
            return "_"
        node, index = edge
        if node.op == "literal":
            dtype = node.outputs[0][1]
            return repr(node.attrs["value"]) + ("" if dtype == usual else f":{SHORT[dtypes.name(dtype)]}")
        return names[node] + (f".{index}" if index else "")

    return written


def _usual(node: Node) -> np.dtype | None:
    """The dtype of a node's literals, unless they say another: that of its first input that is none."""
    found = (edge[0].outputs[edge[1]][1] for edge in node.inputs if edge is not None and edge[0].op != "literal")
    return next(found, None)


def _constant(node: Node, array: np.ndarray) -> str:
    text = f"{KINDS.get(node.op, 'constant')} {meta(*node.outputs[0])}"
    return f"{text} {_values(array)}" if array.size <= INLINE and array.shape == node.outputs[0][0] else text


def _values(array: np.ndarray) -> str:
    values: Any = array.ravel().tolist() if array.dtype.kind in "biuf" else array.ravel().astype(np.float64).tolist()
    return "[" + ", ".join(repr(value) for value in values) + "]"
