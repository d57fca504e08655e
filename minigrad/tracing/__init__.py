"""Tracing: run a function on abstract tensors and keep what it did as a `Graph`.

Nothing is computed: shapes and dtypes flow, every op is recorded, backward passes and in-place changes included. What
the function reads without being given it (parameters, masks) becomes a constant of the graph; what it changes of the
outside becomes a mutation, and the outside itself is left as it was.

A function that is being traced may trace another one. The inner trace sees of the outer one what it is given as
arguments, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigrad.graph import Graph
from minigrad.node import Meta, Node
from minigrad.state import state
from minigrad.tensor import Storage, Tensor
from minigrad.tracing.naming import argument_names
from minigrad.tracing.nests import flatten
from minigrad.tracing.tracer import Tracer


def trace(function: Callable[..., Any]) -> Callable[..., Graph]:
    """`trace(fn)(*inputs)`: the Graph of `fn` for inputs of these shapes and dtypes.

    Tensors among the arguments (also inside tuples, lists and dicts) become the graph's inputs; other arguments are
    constants of the program. Raises TypeError for what is no function, RuntimeError where the function looks at values
    (`.item()`, `if tensor:`) or reads a tensor of a trace around it that it was not given.
    """
    if not callable(function):
        raise TypeError(f"trace: a function is expected, got {type(function).__name__}")

    def traced(*arguments: Any, **keywords: Any) -> Graph:
        given, rebuild = flatten((arguments, keywords))
        names = argument_names(function, arguments, keywords)
        tracer = Tracer()
        stand_ins = [_stand_in(tracer, tensor, name) for tensor, name in zip(given, names, strict=True)]
        before = state.interpreter, state.backward_watch
        state.interpreter = state.backward_watch = tracer
        try:
            new_arguments, new_keywords = rebuild(stand_ins)
            result = function(*new_arguments, **new_keywords)
            outputs, structure = flatten(result)
            edges = [tracer.edge(output) for output in outputs]
            left = tracer.left()
            gradients = {node: tracer.edge(gradient) for node, gradient in left.items() if gradient is not None}
            changed = [(i, tracer.edge(tensor)) for i, tensor in enumerate(stand_ins) if tensor.storage.version]
            mutations = [(tensor, tracer.edge(tensor)) for tensor in tracer.changed]
            perhaps = any(tracer.memory.has_perhaps_changed(tensor.storage) for tensor in stand_ins)
        finally:
            state.interpreter, state.backward_watch = before
            tracer.restore()
        inputs = tracer.nodes[: len(stand_ins)]
        made = Graph(tracer.nodes, inputs, edges, tracer.constants, mutations, gradients, structure, tracer.visits)
        made.changed, made.before = changed, tracer.gradients.looked_at
        made.by_layout = tracer.memory.strides_decide or perhaps
        made.cleared = [node for node, gradient in left.items() if gradient is None]
        made.captured, made.generators = tracer.captured, tracer.generators
        return made

    return traced


def _stand_in(tracer: Tracer, tensor: Tensor, name: str) -> Tensor:
    """An input of the graph: a tensor without values for one that the function is given."""
    meta = (tensor.array.shape, tensor.array.dtype)
    node = Node("leaf" if tensor.needs_grad else "input", {}, (), (meta,))
    node.name = name
    storage = Storage(tensor.storage.device, abstract=True)
    stand_in = Tensor(np.empty(*meta), storage, node, 0, tensor.needs_grad)
    if not tensor.is_contiguous():
        tracer.memory.lose_order(stand_in)
    tracer.add(node, [stand_in])
    return stand_in


def metas_of(function: Callable[..., Any], metas: Sequence[Meta]) -> list[Meta]:
    """Shapes and dtypes of what `function` returns for tensors of `metas`, found without computing."""
    tracer = Tracer()
    tensors = [Tensor(np.empty(*meta), Storage(abstract=True)) for meta in metas]
    for tensor in tensors:
        tracer.add(Node("input", {}, (), ((tensor.array.shape, tensor.array.dtype),)), [tensor])
    before = state.interpreter, state.grad_enabled
    state.interpreter, state.grad_enabled = tracer, False
    try:
        outputs, _ = flatten(function(*tensors))
        return [(output.array.shape, output.array.dtype) for output in outputs]
    finally:
        state.interpreter, state.grad_enabled = before
        tracer.restore()
