"""The derivation of an op: what its declaration says, and last lines made of its rules, traced, as lines of numpy.

Values are differentiated by small differences beside them (`minigrad.study.explain`), so a wrong rule is seen.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np

from minigrad import trace
from minigrad.graph import Graph
from minigrad.node import Edge
from minigrad.ops.derivation import Derivation
from minigrad.ops.expression import Symbol, shown, substituted
from minigrad.ops.registry import OPS, Op
from minigrad.tensor import Tensor


def derivation_of(op: Op) -> Derivation:
    """How an op's derivative is found. The last lines of an elementwise op are its rules, where none are written."""
    written = op.derivation or Derivation()
    if written.results or not op.differentiable:
        return written
    steps = written.steps or ("each element of y depends on one element of every input: dL = sum_i g_i dy_i",)
    return replace(written, steps=steps, results=slopes(op)) if slopes(op) else written


def symbols(op: Op) -> tuple[str, str]:
    """What the output and its gradient are called."""
    return ("z" if "y" in op.inputs or "g" in op.inputs else "y"), ("h" if "g" in op.inputs else "g")


@functools.cache
def slopes(op: Op) -> dict[str, str]:
    """For each input with a rule its gradient; nothing where the op or a rule does more than one element at a time."""
    if op.tree is None or op.samples is None:
        return {}
    out, arriving = symbols(op)
    names = [arriving, out, *op.inputs, *op.attributes]
    sample = next(iter(op.samples(np.random.default_rng(0))))[0]
    floating = np.dtype(np.float64)
    dtypes = [floating, floating, *(np.asarray(given).dtype for given in sample), *[floating] * len(op.attributes)]
    found = {}
    for name, rule, slots in zip(op.inputs, op.rules, op.slots, strict=False):
        if rule is None:
            continue
        places = [_place(op, kind, what) for kind, what in slots]
        tree = None if None in places else _tree(_traced(rule, places, dtypes))
        if tree is None:
            return {}
        found[name] = shown(tree, names)
    return found


def _place(op: Op, kind: str, what: Any) -> int | None:
    """Where in `names` a rule's argument stands."""
    if kind == "grad":
        return 0
    if kind == "saved":
        return 1 if what == ~0 else 2 + what if what >= 0 else None
    return 2 + len(op.inputs) + op.attributes.index(what) if kind == "attr" else None


def _traced(rule: Any, places: list[Any], dtypes: list[np.dtype]) -> Graph:
    def function(*given: Tensor) -> Tensor:
        result: Tensor = rule(*[given[place] for place in places])
        return result

    return trace(function)(*[Tensor(np.ones((), dtype)) for dtype in dtypes])


def _tree(graph: Graph) -> Any:
    """What a graph computes, or None where a node is no expression."""
    values: dict[Edge, Any] = {(node, 0): Symbol(place) for place, node in enumerate(graph.inputs)}
    for node in graph.nodes:
        operands = [values.get(edge) if edge is not None else None for edge in node.inputs]
        tree = OPS[node.op].tree if node.op in OPS else None
        if node.op == "literal":
            values[node, 0] = node.attrs["value"]
        elif node in graph.inputs:
            continue
        elif node.op == "cast":
            values[node, 0] = operands[0]
        elif tree is None or node.attrs or any(part is None for part in operands):
            return None
        else:
            values[node, 0] = substituted(tree, operands)
    return values[graph.outputs[0]]
