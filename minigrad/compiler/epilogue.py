"""Products with what follows them: a matmul and the fused elementwise group that alone reads it become one node.

Bias, activation, residual, a gradient's factor: the device's kernels compute them on the product while it is still in
registers, so that it is neither written nor read again for them. On the CPU it gains nothing (docs/speed-findings.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from minigrad import dtypes
from minigrad.compiler.fusion import Step
from minigrad.compiler.passes import drop_dead
from minigrad.compiler.rewrite import Inputs, like, readers, rewrite
from minigrad.graph import Graph
from minigrad.kernels import EPILOGUE_INPUTS
from minigrad.node import Edge, Node
from minigrad.ops import rules
from minigrad.ops.derivation import derive
from minigrad.ops.registry import OPS, Array, Meta, op

MOST_OUTPUTS = 2  # arrays that a kernel writes


def fuse_epilogues(graph: Graph) -> Graph:
    """Every fused group of float32 that is the only reader of a product of its shape is computed with it."""
    read = readers(graph)
    places = {node: _product(node, read) for node in graph.nodes if node.op == "fused"}

    def replace(node: Node, inputs: Inputs) -> Node | None:
        place = places.get(node)
        edge = None if place is None else inputs[place]
        if place is None or edge is None:
            return None
        order = [place, *(i for i in range(len(inputs)) if i != place)]
        moved = {old: new for new, old in enumerate(order)}
        body = tuple((name, tuple(moved.get(i, i) for i in operands)) for name, operands in node.attrs["body"])
        kept = tuple(moved.get(i, i) for i in node.attrs["kept"])
        others = tuple(inputs[i] for i in order[1:])
        attrs = {"body": body, "kept": kept, "shape": node.outputs[0][0]}
        return like(node, (*_matmul(edge[0]).inputs, *others), op="fused_matmul", attrs=attrs)

    return drop_dead(rewrite(graph, replace))


def _matmul(node: Node) -> Node:
    """What a reshape is of, or the node itself."""
    return node.inputs[0][0] if node.op == "reshape" and node.inputs[0] is not None else node


def _product(node: Node, read: Mapping[Edge, int]) -> int | None:
    """Which input of a fused group is a product that its kernel can compute, if one is.

    A product of the group's shape, or one that was reshaped to it with its columns (the rows of a batch as one matrix);
    then what is read besides has either that shape or one row.
    """
    shape = node.outputs[0][0]
    edges = [edge for edge in node.inputs if edge is not None]
    metas = [edge[0].outputs[edge[1]] for edge in edges if edge[0].op != "literal"]
    if len(metas) > EPILOGUE_INPUTS + 1 or len(node.outputs) > MOST_OUTPUTS or any(s != shape for s, _ in node.outputs):
        return None
    if any(dtype != dtypes.float32 for _, dtype in (*metas, *node.outputs)):
        return None
    rows = all(s in (shape, ()) or s == (1,) * (len(s) - 1) + s[-1:] for s, _ in metas)
    for place, edge in enumerate(edges):
        source = _matmul(edge[0])
        if source.op != "matmul" or edge[0].outputs[0][0] != shape or read[edge] + read[source, 0] != 2:
            continue
        product = source.outputs[0][0]
        if product == shape or (rows and product[-1:] == shape[-1:]):
            return place
    return None


# --- the op -----------------------------------------------------------------------------------------


def _reference(
    a: Array, b: Array, *others: Array, body: tuple[Step, ...], kept: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[Array, ...]:
    (product,) = OPS["matmul"].evaluate([a, b], {})
    return tuple(OPS["fused"].evaluate([product.reshape(shape), *others], {"body": body, "kept": kept}))


def _metas(metas: list[Meta], *, shape: tuple[int, ...], **attrs: Any) -> list[Meta]:
    return list(OPS["fused"].output_metas([(shape, metas[0][1]), *metas[2:]], attrs))


op(
    "fused_matmul",
    _reference,
    shape=_metas,
    flops=lambda metas, outputs, *, body, **_: (2 * metas[0][0][-1] + len(body)) * rules.size(outputs[0]),
    samples=lambda rng: [
        (
            (rng.standard_normal((2, 3, 5)), rng.standard_normal((5, 4)), rng.standard_normal(4)),
            {"body": (("add", (0, 1)), ("relu", (2,))), "kept": (3, 2), "shape": (6, 4)},
        )
    ],
    formula="elementwise steps of A B, reshaped, and other arrays, in one pass",
    differentiable=False,
    kernels={"cuda.epilogue": "float32"},
    derivation=derive("a step of a compiled plan: the derivative was taken before its ops were fused"),
)
