"""Sums that another kernel computes beside its own work, so that their elements are not read again.

Those of fused elementwise groups are added up while the elements are computed: the norm of all gradients is made of
such sums, a loss's mean is another. The columns of a matrix are added up by a product that reads its transpose: that is
a bias's gradient beside its weight's. Plans of the CPU are made so; on the device sums have kernels of their own.
"""

from __future__ import annotations

from typing import Any, cast

from minigrad import dtypes
from minigrad.compiler.fusion import Step
from minigrad.compiler.passes import drop_dead
from minigrad.compiler.rewrite import Inputs, assemble, by_demand, depends, like, readers, rewrite
from minigrad.graph import Graph
from minigrad.node import Edge, Node
from minigrad.ops import rules
from minigrad.ops.derivation import derive
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


def sum_in_products(graph: Graph) -> Graph:
    """The sum of a matrix's columns is computed by a product whose left factor is the matrix's transpose."""
    products: dict[tuple[Edge | None, int], Node] = {}
    for node in graph.nodes:
        left = node.inputs[0] if node.op == "matmul" else None
        if left is not None and left[0].op == "permute" and left[0].attrs["dims"] == (1, 0) and _plain(node):
            products.setdefault((_source(left[0].inputs[0]), _shape(left)[0]), node)
    pairs: dict[Node, Node] = {}  # a product, and the sum that it computes
    product_of: dict[Node, Node] = {}  # the same the other way round

    def needs(node: Node) -> list[Node]:
        before = [edge[0] for edge in node.inputs if edge is not None]
        return [*before, product_of[node]] if node in product_of else before

    for node in graph.nodes:
        edge = node.inputs[0] if node.op == "sum" else None
        if edge is not None and node.attrs["dims"] == tuple(range(len(_shape(edge)) - 1)) != ():
            product = products.get((_source(edge), _shape(edge)[-1]))
            if product is not None and product not in pairs and not depends(product, node, needs):
                pairs[product], product_of[node] = node, product
    if not pairs:
        return graph
    joint: dict[Node, Node] = {}

    def replace(node: Node, inputs: Inputs) -> Any:
        if node in pairs:
            (shape, _), total = pairs[node].outputs[0], pairs[node].outputs
            joint[node] = like(node, inputs, op="matmul_sum", attrs={"shape": shape}, outputs=(*node.outputs, *total))
            return joint[node]
        return {0: (joint[product_of[node]], 1)} if node in product_of else None

    return rewrite(assemble(graph, by_demand(graph.nodes, needs), {}), replace)


def _plain(product: Node) -> bool:
    """A product of two float32 matrices that are not empty."""
    metas = [edge[0].outputs[edge[1]] for edge in product.inputs if edge is not None]
    return all(len(shape) == 2 and 0 not in shape and dtype == dtypes.float32 for shape, dtype in metas)


def _source(edge: Edge | None) -> Edge | None:
    """What an edge is a reshape of: the same numbers in the same order."""
    while edge is not None and edge[0].op == "reshape":
        edge = edge[0].inputs[0]
    return edge


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


# --- the ops ----------------------------------------------------------------------------------------


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
    on_host="only plans of the CPU have it: on the device the fused group and its sum are two kernels",
    derivation=derive("a step of a compiled plan: the derivative was taken before its ops were fused"),
)


def _product_and_sum(a: Array, b: Array, *, shape: tuple[int, ...]) -> tuple[Array, Array]:
    return OPS["matmul"].evaluate([a, b], {})[0], OPS["sum"].evaluate([a], {"dims": (1,), "keepdim": False})[0].reshape(
        shape
    )


op(
    "matmul_sum",
    _product_and_sum,
    shape=lambda metas, *, shape: [*OPS["matmul"].output_metas(metas, {}), (shape, metas[0][1])],
    flops=lambda metas, outputs, *, shape: (2 * rules.size(outputs[0]) + len(metas[0][0])) * metas[0][0][1],
    samples=lambda rng: [((rng.standard_normal((3, 4)), rng.standard_normal((4, 2))), {"shape": (1, 3)})],
    formula="A B, and the sums of A's rows",
    differentiable=False,
    on_host="only plans of the CPU have it: on the device a product and the sum of a factor are two kernels",
    derivation=derive("a step of a compiled plan: the derivative was taken before product and sum were joined"),
)
