"""A plan on the GPU: bound launches in one arena, captured as CUDA graphs on the second replay and replayed after it.

The first replay runs launch by launch (which loads every kernel), the second captures. Learning rates, step counts and
random counters are tensors on the device, so that a replay reads them there. Tensors of the host that the step moves to
the device are uploaded before each replay. Where an op has to be computed on the host the graph is cut in two.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigrad import forks
from minigrad.compiler.layout import Layout, covers
from minigrad.compiler.memory import place
from minigrad.device import CUDA
from minigrad.graph import Graph
from minigrad.kernels.cuda import execute
from minigrad.kernels.cuda.calls import DeviceCalls, on_host
from minigrad.kernels.cuda.memory import DeviceArray
from minigrad.kernels.cuda.runtime import runtime
from minigrad.node import Edge, Node
from minigrad.ops.index import thaw
from minigrad.ops.registry import OPS

Piece = tuple[Callable[..., Any], tuple[Any, ...]]


class DevicePlan:
    """`run(arrays)` replays the graph; `calls` is what a replay executes, `graphs` the captured pieces of it.

    on_device says of each input whether it is there already. Raises RuntimeError where the step computes on the host.
    """

    device = CUDA

    def __init__(self, graph: Graph, on_device: Sequence[bool]) -> None:
        self.graph = graph
        self.running = forks.lock()  # as for a `Plan` of the CPU
        self.whole = not graph.mutations
        self.runtime = runtime()
        self.calls = DeviceCalls(self.runtime)
        self.uploads: list[tuple[DeviceArray, np.ndarray]] = []  # from captured tensors of the host
        self.replays = 0
        self.graphs: list[Any] | None = None
        layout = Layout(graph)
        self._allocate(layout, on_device)
        self._bind(layout)
        self.gradients = [(leaf, self.values[edge]) for leaf, edge in graph.gradients.items()]

    def run(self, inputs: Sequence[Any]) -> list[DeviceArray]:
        """Copy the inputs in and replay; returns the outputs (copies). Does not wait for the device."""
        for buffer, given in zip(self.inputs, inputs, strict=True):
            if buffer is not None:
                execute.copy(buffer, given)
        for buffer, array in self.uploads:
            self.runtime.fill(buffer, array)
        if self.replays == 1:
            self.graphs = self._captured()
        self.replays += 1
        if self.graphs is None:
            self.calls.run()
        else:
            for function, arguments in self.graphs:
                function(*arguments)
        return [output.copy() for output in self.outputs]

    def _captured(self) -> list[Piece]:
        """The calls in pieces: a graph for each run of launches, and what the host does in between."""
        driver = self.runtime.driver
        pieces: list[Piece] = []
        for on_the_host, group in itertools.groupby(self.calls, lambda call: call[0] is on_host):
            if on_the_host:
                pieces += group
                continue
            driver.begin_capture()
            try:
                for function, arguments in group:
                    function(*arguments)
            finally:
                captured = driver.end_capture()
            pieces.append((driver.launch_graph, (captured,)))
        return pieces

    def __del__(self) -> None:
        for function, arguments in getattr(self, "graphs", None) or ():
            if function == self.runtime.driver.launch_graph:
                self.runtime.driver.free_graph(*arguments)

    # --- memory -------------------------------------------------------------------------------------

    def _allocate(self, layout: Layout, on_device: Sequence[bool]) -> None:
        """One arena, and every value that is not a view in its place."""
        graph = self.graph
        offsets, total = place(layout.buffers)
        self.arena = self.runtime.empty((total,), np.uint8)
        memory, start = self.arena.memory, self.arena.pointer
        self.values = layout.placed(
            offsets, lambda offset, shape, dtype: DeviceArray(memory, start + offset, shape, dtype)
        )
        self.host = {n for n, there in zip(graph.inputs, on_device, strict=True) if not there and n.outputs[0][0]}

    # --- calls --------------------------------------------------------------------------------------

    def _bind(self, layout: Layout) -> None:
        graph = self.graph
        for node in graph.nodes:
            if node.op == "literal":
                self.values[node, 0] = np.asarray(node.attrs["value"], node.outputs[0][1])
            elif node in graph.constants:
                self._bind_constant(node)
            elif node not in graph.inputs:
                self._bind_node(node)
        for tensor, edge in graph.mutations:
            if not isinstance(tensor.array, DeviceArray):
                raise RuntimeError("a step compiled for 'cuda' changes a tensor on 'cpu': move it to 'cuda' before")
            if edge not in layout.in_place:
                self.calls.copy(tensor.array, self._on_device(edge))
        moved = {node.inputs[0]: self.values[node, 0] for node in graph.nodes if node.op == "to_device"}
        self.inputs = [moved.get((n, 0)) if n in self.host else self.values[n, 0] for n in graph.inputs]
        self.outputs = [self._on_device(edge) for edge in graph.outputs]

    def _bind_constant(self, node: Node) -> None:
        """A scalar of the host that the step reads (a learning rate, say) is uploaded before each replay."""
        array = self.values[node, 0]
        if isinstance(array, np.ndarray) and not array.ndim:
            self.values[node, 0] = buffer = self.runtime.empty((), array.dtype)
            self.uploads.append((buffer, array))

    def _on_device(self, edge: Edge) -> DeviceArray:
        """A value as an array on the device; numbers are put there. Raises RuntimeError for one on the host."""
        value = self.values[edge]
        if isinstance(value, np.ndarray) and edge[0].op == "literal":
            return self.runtime.literal(value)
        if isinstance(value, np.ndarray) or edge[0] in self.host:
            raise RuntimeError(
                f"a step compiled for 'cuda' computes with {edge[0].name or 'a tensor'} {list(value.shape)}, which is "
                "on 'cpu': move it to 'cuda' before, or in the step with .to()"
            )
        return value

    def _bind_node(self, node: Node) -> None:
        edges = [edge for edge in node.inputs if edge is not None]
        op = OPS[node.op]
        if node.op == "to_device":
            self._bind_move(node, edges[0])
        elif op.view:
            self._bind_view(node, self._on_device(edges[0]))
        elif node.op in ("fused", "fused_matmul"):
            inputs = [self.values[e] if e[0].op == "literal" else self._on_device(e) for e in edges]
            execute.bind(self.calls, op, inputs, self._outputs(node), node.attrs)
        elif node.op == "join":
            self._bind_join(node, [self._on_device(edge) for edge in edges], self._outputs(node)[0])
        else:
            inputs = [self._on_device(edge) for edge in edges]
            execute.bind(self.calls, op, inputs, self._outputs(node), node.attrs)

    def _outputs(self, node: Node) -> list[DeviceArray]:
        return [self.values[node, index] for index in range(len(node.outputs))]

    def _bind_move(self, node: Node, source: Edge) -> None:
        if node.attrs["device"] != self.device:
            raise RuntimeError("a compiled step moves a tensor to 'cpu': return it, and move it after the call")
        if source[0].op == "literal":
            self.values[node, 0] = self.runtime.literal(self.values[source])
        elif source[0] in self.host:
            return  # its buffer is filled from the argument
        elif isinstance(self.values[source], np.ndarray):
            self.uploads.append((self.values[node, 0], self.values[source]))
        else:  # a number of the host's, or what was computed from such: it is there already
            self.calls.copy(self.values[node, 0], self._on_device(source))

    def _bind_view(self, node: Node, source: DeviceArray) -> None:
        op = OPS[node.op]
        if node.op == "reshape":
            try:
                self.values[node, 0] = source.reshape(node.attrs["shape"])
            except ValueError:  # the layout does not allow it without a copy
                self.values[node, 0] = self.calls.contiguous(source).reshape(node.attrs["shape"])
        else:
            self.values[node, 0] = execute.view(op, source, node.attrs)

    def _bind_join(self, node: Node, inputs: Sequence[DeviceArray], output: DeviceArray) -> None:
        if not covers(node):
            zero = self.runtime.literal(np.zeros((), output.dtype))
            self.calls.copy(output, zero.through(lambda x: np.broadcast_to(x, output.shape)))
        for part, index in zip(inputs, node.attrs["indices"], strict=True):
            target = output[thaw(index)]
            if part.pointer != target.pointer:
                self.calls.copy(target, part)
