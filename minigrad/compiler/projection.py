"""A large projection and its loss become one node, which works in chunks of rows: the logits are never stored whole."""

from __future__ import annotations

from typing import Any

from minigrad.compiler.passes import _swaps_matrices, drop_dead
from minigrad.compiler.rewrite import Inputs, like, results, rewrite
from minigrad.graph import Graph
from minigrad.node import Edge, Node

LARGE = 1 << 26  # bytes of logits from which on they are not stored


def chunk_projection(graph: Graph) -> Graph:
    """cross_entropy(x W^T) and its three products become "linear_cross_entropy_grad" where logits are LARGE.

    Only where nothing else reads the logits or their gradient, where the loss is one number, and where its own gradient
    does not depend on it: then value and gradient can be computed together.
    """
    for node in graph.nodes:
        found = _match(graph, node) if node.op == "cross_entropy_grad" else None
        if found is not None:
            graph = _replace(graph, node, *found)
    return graph


def _readers(graph: Graph, edge: Edge) -> list[Node]:
    return [node for node in graph.nodes if edge in node.inputs]


def _match(graph: Graph, grad: Node) -> tuple[Node, Edge, Edge, dict[Node, int]] | None:
    """(loss node, x, weight, which node is which output of the joint node) around a cross_entropy_grad."""
    g, logits, targets, log_probs = grad.inputs
    assert g is not None and logits is not None and log_probs is not None  # noqa: PT018
    loss, product = log_probs[0], logits[0]
    shape, dtype = product.outputs[0]
    if loss.op != "cross_entropy" or loss.inputs != (logits, targets) or product.op != "matmul":
        return None
    if grad.attrs["reduction"] == "none":
        return None
    x, turned = product.inputs
    if x is None or turned is None or len(shape) != 2 or shape[0] * shape[1] * dtype.itemsize < LARGE:
        return None
    weight = turned[0].inputs[0] if _swaps_matrices(turned[0]) else None
    seen = set(results(graph))
    if weight is None or seen & {logits, log_probs, (grad, 0)}:
        return None
    if set(_readers(graph, logits)) != {loss, grad} or _readers(graph, log_probs) != [grad]:
        return None
    step = {node: i for i, node in enumerate(graph.nodes)}
    if any(step[reader] <= step[grad] for reader in _readers(graph, (loss, 0))):  # as of a gradient that depends on it
        return None
    places: dict[Node, int] = {}
    for reader in _readers(graph, (grad, 0)):
        if reader.op == "matmul" and reader.inputs == ((grad, 0), weight):
            places[reader] = 0
        elif _swaps_matrices(reader) and (reader, 0) not in seen:
            for product in _readers(graph, (reader, 0)):
                if product.op != "matmul" or product.inputs != ((reader, 0), x):
                    return None
                places[product] = 1
        else:
            return None
    return (loss, x, weight, places) if sorted(places.values()) == [0, 1] else None


def _replace(graph: Graph, grad: Node, loss: Node, x: Edge, weight: Edge, places: dict[Node, int]) -> Graph:
    joint = like(
        grad,
        (grad.inputs[0], x, weight, grad.inputs[2]),
        op="linear_cross_entropy_grad",
        outputs=(x[0].outputs[x[1]], weight[0].outputs[weight[1]], loss.outputs[0]),
    )

    def replace(node: Node, inputs: Inputs) -> Any:
        if node is grad:
            return joint
        if node is loss:
            return {0: (joint, 2)}
        return {0: (joint, places[node])} if node in places else None

    return drop_dead(rewrite(graph, replace))
