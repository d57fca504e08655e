"""Tracer: the interpreter that computes nothing. Every op becomes a node of a graph, its outputs are abstract tensors.

What the program reads without being given it (parameters, masks) becomes a constant of the graph. What it changes of
the outside is remembered, and set back when the trace ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minigrad import kernels
from minigrad.dispatch import point, save, together, view_of
from minigrad.graph import Visit
from minigrad.interpreter import Interpreter
from minigrad.node import Edge, Node, here
from minigrad.ops.copies import clone
from minigrad.ops.registry import Op
from minigrad.state import state
from minigrad.tensor import LITERAL, Storage, Tensor, edge_of
from minigrad.tracing.gradients import Gradients
from minigrad.tracing.memory import Memory
from minigrad.tracing.naming import name_of


class Tracer(Interpreter):
    """What a trace has seen so far."""

    tracing = True

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.known: set[Node] = set()  # the same ones
        self.edges: dict[Tensor, Edge] = {}  # whose value each tensor has now
        self.constants: dict[Node, np.ndarray] = {}
        self.captured: list[Tensor] = []  # the tensors behind the constants
        self.changed: dict[Tensor, tuple[Storage, Any]] = {}  # tensors of the outside changed in place, as they were
        self.own_leaves: set[Node] = set()  # leaves that the program makes of what it computes
        self.visits: list[Visit] = []
        self.generators: dict[Any, str] = {}  # random generators that the program draws from: on which device
        self.gradients = Gradients()
        self.memory = Memory()

    # --- ops

    def apply(self, op: Op, tensors: Sequence[Tensor], attrs: Mapping[str, Any]) -> Any:
        inputs = tuple(self.edge(tensor) for tensor in tensors)
        device = next((t.storage.device for t in tensors if t.storage.device != "cpu"), "cpu")
        together(op, tensors, device)
        results = self._viewed(op, tensors[0], attrs) if op.view else self._made(op, tensors, attrs, device)
        wanted = state.grad_enabled and op.differentiable and any(t.needs_grad for t in tensors)
        node = Node(
            op.name,
            attrs,
            inputs,
            tuple((result.array.shape, result.array.dtype) for result in results),
            tuple((tensor.array.shape, tensor.array.dtype) for tensor in tensors),
            edges=tuple(edge_of(t) if wanted and t.needs_grad else None for t in tensors),
            where=here(),
        )
        self.add(node, results)
        if wanted:
            save(op, node, tuple(t.needs_grad for t in tensors), tensors, results)
            point(op, node, results)
        return results[0] if len(results) == 1 else tuple(results)

    def _viewed(self, op: Op, source: Tensor, attrs: Mapping[str, Any]) -> list[Tensor]:
        """The outputs of a view, over the memory that the source has here."""
        array = source.array
        on_host = array.__class__ is np.ndarray
        outputs = op.evaluate([array], attrs) if on_host else kernels.run(op, [array], attrs)
        if op.joins is not None and not self.memory.has_order(source) and op.joins(array.shape, attrs):
            made = np.empty(outputs[0].shape, array.dtype)
            result = Tensor(made, Storage(source.storage.device, abstract=True))
            self.memory.join(source, result)
            return [result]
        results = [view_of(output, source) for output in outputs]
        for result in results:
            if result.base is None:
                result.storage.abstract = True
            elif not op.differentiable or self.memory.is_detached(source):
                self.memory.detach(result)
        return results

    def _made(self, op: Op, tensors: Sequence[Tensor], attrs: Mapping[str, Any], device: str) -> list[Tensor]:
        """The outputs of an op that makes memory of its own."""
        metas = op.output_metas([(t.array.shape, t.array.dtype) for t in tensors], attrs)
        device = attrs["device"] if op.moves else device
        results = [Tensor(np.empty(shape, dtype), Storage(device, abstract=True)) for shape, dtype in metas]
        if not op.row_major and any(not t.is_contiguous() or not self.memory.has_order(t) for t in tensors):
            for result in results:  # numpy keeps the order of dimensions of what it computes with
                if sum(n > 1 for n in result.array.shape) > 1:
                    self.memory.lose_order(result)
        return results

    def add(self, node: Node, results: Sequence[Tensor]) -> None:
        """A new node and the tensors that are its outputs."""
        self.nodes.append(node)
        self.known.add(node)
        for index, result in enumerate(results):
            self.edges[result] = node, index

    # --- values

    def edge(self, tensor: Tensor) -> Edge:
        """The node and output that is `tensor`'s value now; a tensor from outside becomes a constant."""
        if tensor.base is not None and tensor.seen != tensor.storage.version:
            tensor.follow_base()
        self.memory.read(tensor.storage)
        found = self.edges.get(tensor)
        before = found is not None and found[0] in self.constants  # as it was when the trace read it first
        if found is not None and not (before and tensor.storage.abstract):
            return found
        if found is None and tensor.node is not None and tensor.node in self.known:
            return tensor.node, tensor.index
        if tensor.storage.abstract:
            raise RuntimeError(
                "a tensor without values was used in a trace: it is left over from an earlier trace, it belongs to a "
                "trace around this one (then pass it as an argument), or it shares memory with a tensor that this "
                "trace changed in place"
            )
        if tensor.storage is LITERAL:
            node = Node("literal", {"value": tensor.array.item()}, (), ((tensor.array.shape, tensor.array.dtype),))
            self.add(node, [tensor])
            return node, 0
        if tensor.needs_grad and tensor.is_leaf:
            node = edge_of(tensor)[0]
            if self.gradients.is_forgotten(tensor):
                self.gradients.remember(node)
        else:
            node = Node("constant", {}, (), ((tensor.array.shape, tensor.array.dtype),))
        if not node.name:
            node.name = name_of(tensor, last="traced")
        self.add(node, [tensor])
        self.constants[node] = tensor.array
        self.captured.append(tensor)
        return node, 0

    def write(self, target: Tensor, value: Tensor, root: Tensor, whole: Tensor) -> None:
        """A tensor from outside has no values from now on."""
        if not root.storage.abstract:
            self.changed[root] = root.storage, (root.storage.version, root.node, root.index, root.needs_grad)
        edge = self.edge(whole)
        self.memory.change(root.storage)
        root.storage.abstract = True
        self.edges[root] = edge

    def restore(self) -> None:
        """Leave the outside as it was."""
        for tensor, (storage, before) in self.changed.items():
            storage.abstract = False
            storage.version, tensor.node, tensor.index, tensor.needs_grad = before
        self.gradients.restore()

    # --- memory

    def order_is_known(self, tensor: Tensor) -> bool:
        return self.memory.has_order(tensor)

    def perhaps_a_view(self, source: Tensor, result: Tensor) -> None:
        self.memory.join(source, result)

    def follows_its_base(self, tensor: Tensor) -> bool:
        return not self.memory.is_detached(tensor)

    def derived_again(self, view: Tensor, again: Tensor) -> None:
        self.edges[view] = self.edge(again)

    # --- the tape

    def made_a_leaf(self, tensor: Tensor) -> None:
        """Nothing outside knows the leaf if the trace made the tensor (`x.detach()`, say)."""
        made = self.edges.get(tensor)
        if made is not None and made[0] not in self.constants and tensor not in self.changed:
            assert tensor.node is not None
            self.own_leaves.add(tensor.node)

    def taken_from_the_tape(self, tensor: Tensor, node: Node, which: int) -> None:
        recorded = (node, ~which) if which < 0 else node.inputs[which]
        if recorded is not None and recorded[0] in self.known:
            self.edges[tensor] = recorded

    def may_free(self, node: Node) -> bool:
        return node in self.known  # what others recorded they may need again

    # --- gradients

    def own(self, gradient: Tensor) -> Tensor:
        if not gradient.array.flags.writeable:  # spread over a shape: elements share memory
            return clone(gradient)
        twin = Tensor(gradient.array, Storage(gradient.storage.device, abstract=True))
        self.edges[twin] = self.edge(gradient)
        return twin

    def reads_gradient(self, tensor: Tensor) -> None:
        if tensor.is_leaf and tensor.needs_grad and not self.gradients.is_forgotten(tensor):
            self.adds_gradient(edge_of(tensor)[0])

    def adds_gradient(self, node: Node) -> None:
        self.gradients.look(node, node in self.own_leaves or (node in self.known and node not in self.constants))

    def replaces_gradient(self, node: Node) -> None:
        self.gradients.remember(node)

    def forgets_gradient(self, tensor: Tensor) -> None:
        self.gradients.forget(tensor)

    def left(self) -> dict[Node, Tensor | None]:
        """The gradients of leaves now, of those that are not as they were before the trace."""
        seen = self.gradients.looked_at
        return {
            leaf: gradient
            for leaf, gradient in self.gradients.left().items()
            if leaf not in seen or gradient is not seen[leaf] or gradient in self.changed
        }

    # --- random numbers, and backward passes as they are watched

    def draws(self, generator: Any, device: str) -> None:
        self.generators[generator] = device

    def begin(self, seeds: Sequence[tuple[Edge, Tensor]]) -> None:
        """A backward pass starts."""

    def visit(self, node: Node, arrived: Sequence[Tensor | None], results: Sequence[Tensor | None]) -> None:
        """A backward pass has applied the derivative of `node`."""
        left = []
        for target, result in zip(node.edges, results, strict=False):
            edge = None if result is None else self.edges.get(result)
            if target is not None and edge is not None:
                left.append((target, edge))
        come = tuple(None if gradient is None else self.edges.get(gradient) for gradient in arrived)
        self.visits.append(Visit(node, come, tuple(left)))
