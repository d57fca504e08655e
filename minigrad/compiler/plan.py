"""A plan: a graph bound to memory. Replaying it runs a list of calls on arrays that never move, and allocates nothing.

Every node's output is a view into the arena, an input's buffer, or (for what the graph captured) the captured tensor's
own memory, read live: a changed parameter, learning rate or random counter is seen by the next replay.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minigrad import forks
from minigrad.compiler.binding import bind
from minigrad.compiler.layout import Layout
from minigrad.compiler.memory import ALIGN, place
from minigrad.graph import Graph
from minigrad.kernels import blas, native, pages, team
from minigrad.kernels.calls import Calls
from minigrad.kernels.numba import gemm
from minigrad.node import Node
from minigrad.ops.registry import OPS
from minigrad.state import silently


class Plan:
    """`run(arrays)` replays the graph; `arena` is the one block of memory, `calls` what a replay computes,
    `program` the same with runs of kernels joined into machine code, `gradients` where those of the leaves are then.
    `whole`: whatever interrupts a replay finds all that it changes outside as it was before, or all as it is after it.

    The arena holds one replay, and kernels run without the GIL: threads sharing a plan hold `running` until they have
    what they want of `values`.
    """

    device = "cpu"

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.calls = Calls()
        self.origins: list[str] = []  # of each call: the op that it computes
        self._writing: list[int] = []  # calls that change a tensor of the outside
        layout = Layout(graph)
        self._allocate(layout)
        self._bind(layout)
        self.gradients = [(leaf, self.values[edge]) for leaf, edge in graph.gradients.items()]
        # does BLAS have to leave the threads to us?
        self.alone = any(f is team.over_rows and arguments[0] in gemm.BY_LIBRARY for f, arguments in self.calls)
        self.program = native.assemble(self.calls)
        self.whole = not self.alone and self._writes_at_once()
        self.running = forks.lock()

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Copy the inputs in, run every call, write mutations back; returns the outputs (copies)."""
        if self.alone:
            with blas.single():
                return silently(self._replay, inputs)
        return silently(self._replay, inputs)

    def _writes_at_once(self) -> bool:
        """Does one call into machine code make all changes of the outside?"""
        segments = [function for function, _ in self.program if isinstance(function, native.Segment)]
        return not self._writing or any(
            {call.number for call in segment.calls}.issuperset(self._writing) for segment in segments
        )

    def _replay(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        for buffer, given in zip(self.inputs, inputs, strict=True):
            np.copyto(buffer, given)
        for function, arguments in self.program:
            function(*arguments)
        return [output.copy() for output in self.outputs]

    def _allocate(self, layout: Layout) -> None:
        """One arena, and every value that is not a view in its place."""
        offsets, total = place(layout.buffers)
        self.arena = np.empty(total + ALIGN, np.uint8)
        start = -self.arena.ctypes.data % ALIGN
        self.values = layout.placed(
            offsets, lambda offset, shape, dtype: np.ndarray(shape, dtype, self.arena.data, start + offset)
        )
        changed = {id(tensor.array) for tensor, _ in self.graph.mutations}
        pages.enlarge(array for array in self.graph.constants.values() if id(array) not in changed)

    def _bind(self, layout: Layout) -> None:
        """Views get their arrays, every other node its calls."""
        graph = self.graph
        for node in graph.nodes:
            if node.op == "literal":
                self.values[node, 0] = np.asarray(node.attrs["value"], node.outputs[0][1])
            elif node not in graph.constants and node not in graph.inputs:
                self._bind_node(node)
                calls = range(len(self.origins), len(self.calls))
                self.origins += [node.op] * len(calls)
                if any((node, index) in layout.in_place for index in range(len(node.outputs))):
                    self._writing += calls
        for tensor, edge in graph.mutations:
            if edge not in layout.in_place:
                self._writing.append(len(self.calls))
                self.calls.add(np.copyto, tensor.array, self.values[edge])
                self.origins.append("write back")
        self.inputs = [self.values[node, 0] for node in graph.inputs]
        self.outputs = [self.values[edge] for edge in graph.outputs]

    def _bind_node(self, node: Node) -> None:
        inputs = [self.values[edge] for edge in node.inputs if edge is not None]
        if OPS[node.op].view:
            self._bind_view(node, inputs[0])
            return
        outputs = [self.values[node, index] for index in range(len(node.outputs))]
        bind(self.calls, node, inputs, outputs)

    def _bind_view(self, node: Node, source: np.ndarray) -> None:
        view = OPS[node.op].evaluate([source], node.attrs)[0]
        if np.shares_memory(view, source) or not view.size:
            self.values[node, 0] = view
            return
        copy = np.empty(source.shape, source.dtype)  # the strides of the source do not allow this view
        self.values[node, 0] = OPS[node.op].evaluate([copy], node.attrs)[0]
        self.calls.add(np.copyto, copy, source)
