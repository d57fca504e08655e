"""Sums of fused elementwise groups: added up while they are computed, so that they are neither written nor read again.

The norm of all gradients is made of such sums, a loss's mean is another. Plans of the CPU are made so; on the device
the sum's own kernel reads what the group wrote.
"""

from __future__ import annotations

from typing import cast

from minigrad import dtypes
from minigrad.compiler.fusion import Step
from minigrad.compiler.passes import drop_dead
from minigrad.compiler.rewrite import Inputs, like, readers, rewrite
from minigrad.graph import Edge, Graph, Node
from minigrad.ops import rules
from minigrad.ops.registry import OPS, Array, Meta, op


def fuse_sums(graph: Graph) -> Graph:
    """Every sum over all elements of a fused group that nobody else reads is computed with it."""
    read = readers(graph)

    def replace(node: Node, inputs: Inputs) -> Node | None:
        edge = node.inputs[0] if node.op == "sum" else None
        if edge is None or read[edge] != 1 or not _summable(edge[0]) or len(node.attrs["dims"]) != len(_shape(edge)):
            return None
        group = cast(Edge, inputs[0])[0]
        (kept,) = group.attrs["kept"]
        attrs = {"body": group.attrs["body"], "kept": kept, "keepdim": node.attrs["keepdim"]}
        return like(node, group.inputs, op="fused_sum", attrs=attrs)

    return drop_dead(rewrite(graph, replace))


def _summable(node: Node) -> bool:
    """A fused group with one float32 result that is not empty, whose inputs have its shape or one element."""
    if node.op != "fused" or len(node.outputs) != 1:
        return False
    ((shape, dtype),) = node.outputs
    shapes = [_shape(edge) for edge in node.inputs if edge is not None]
    whole = all(s == shape or rules.size((s, dtype)) == 1 for s in shapes)
    return dtype == dtypes.float32 and 0 not in shape and shape in shapes and whole


def _shape(edge: Edge) -> tuple[int, ...]:
    return edge[0].outputs[edge[1]][0]


# --- the op -----------------------------------------------------------------------------------------


def _reference(*inputs: Array, body: tuple[Step, ...], kept: int, keepdim: bool) -> Array:
    (value,) = OPS["fused"].evaluate(list(inputs), {"body": body, "kept": (kept,)})
    return OPS["sum"].evaluate([value], {"dims": tuple(range(value.ndim)), "keepdim": keepdim})[0]


def _metas(metas: list[Meta], *, body: tuple[Step, ...], kept: int, keepdim: bool) -> list[Meta]:
    (value,) = OPS["fused"].output_metas(metas, {"body": body, "kept": (kept,)})
    return list(OPS["sum"].output_metas([value], {"dims": tuple(range(len(value[0]))), "keepdim": keepdim}))


op(
    "fused_sum",
    _reference,
    shape=_metas,
    flops=lambda metas, outputs, *, body, **_: (len(body) + 1) * max(rules.size(meta) for meta in metas),
    samples=lambda rng: [
        (
            (rng.standard_normal((3, 4)), rng.standard_normal(())),
            {"body": (("mul", (0, 1)), ("square", (2,))), "kept": 3, "keepdim": False},
        )
    ],
    formula="the sum of elementwise steps, in one pass",
    differentiable=False,
)
