"""A plan: a graph bound to memory. Replaying it runs a list of calls on arrays that never move, and allocates nothing.

Every node's output is a view into the arena, an input's buffer, or (for what the graph captured) the captured tensor's
own memory, read live: a changed parameter, learning rate or random counter is seen by the next replay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minigrad import dtypes, forks, kernels
from minigrad.compiler import codegen, fusion
from minigrad.compiler.layout import Layout, covers
from minigrad.compiler.memory import ALIGN, place
from minigrad.graph import Graph
from minigrad.kernels import blas, native, pages, team
from minigrad.kernels.calls import Calls
from minigrad.kernels.numba import gemm, matvec, sums
from minigrad.node import Edge, Node
from minigrad.ops.index import thaw
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
        self.values: dict[Edge, np.ndarray] = {}
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
        graph = self.graph
        offsets, total = place(layout.buffers)
        self.arena = np.empty(total + ALIGN, np.uint8)
        start = -self.arena.ctypes.data % ALIGN
        for edge, offset in zip(layout.owners, offsets, strict=True):
            shape, dtype = edge[0].outputs[edge[1]]
            order = layout.order(edge)
            block = np.ndarray([shape[d] for d in order], dtype, self.arena.data, start + offset)
            self.values[edge] = block.transpose(np.argsort(order)) if shape else block
        for node, array in graph.constants.items():
            self.values[node, 0] = array
        for edge, tensor in layout.in_place.items():
            self.values[edge] = tensor.array
        changed = {id(tensor.array) for tensor, _ in graph.mutations}
        pages.enlarge(array for array in graph.constants.values() if id(array) not in changed)
        for edge, owner in layout.reused.items():
            self.values[edge] = self.values[owner].reshape(edge[0].outputs[edge[1]][0])
        for node in reversed(graph.nodes):
            if node.op == "join":
                for part, index in zip(node.inputs, node.attrs["indices"], strict=True):
                    if part is not None and layout.owner[part] == layout.owner[node, 0]:
                        self.values[part] = self.values[node, 0][thaw(index)]

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
        op = OPS[node.op]
        if op.view:
            self._bind_view(node, inputs[0])
            return
        outputs = [self.values[node, index] for index in range(len(node.outputs))]
        if node.op == "fused":
            self._bind_steps(node, self._operands(node), outputs)
            return
        if node.op == "fused_matmul":
            self._bind_fused_matmul(node, outputs)
            return
        if node.op == "fused_sum":
            self._bind_fused_sum(node, inputs, outputs[0])
            return
        if node.op == "join":
            self._bind_join(node, inputs, outputs[0])
            return
        if node.op == "matmul_sum":
            self._bind_matmul_sum(*inputs, *outputs)
            return
        self._bind_op(node.op, inputs, outputs, node.attrs)

    def _bind_op(
        self, name: str, inputs: list[np.ndarray], outputs: list[np.ndarray], attrs: Mapping[str, Any]
    ) -> None:
        op = OPS[name]
        if any(kernels.bind(op, inputs, outputs, attrs, self.calls, planned) is not None for planned in (False, True)):
            return
        if name == "put" and outputs[0] is inputs[0]:
            self.calls.add(_put_in_place, outputs[0], attrs["index"], *inputs[1:])
        elif any(dtypes.is_half(array.dtype) for array in inputs):  # numpy would add up in the half type
            self.calls.add(_by_reference, op, inputs, attrs, outputs)
        elif op.ufunc is not None:
            self.calls.add(_fill, op.ufunc, outputs[0], *inputs)
        elif name == "sum":
            self.calls.add(np.add.reduce, inputs[0], attrs["dims"], None, outputs[0], attrs["keepdim"])
        else:
            self.calls.add(_by_reference, op, inputs, attrs, outputs)

    def _bind_matmul_sum(self, a: np.ndarray, b: np.ndarray, c: np.ndarray, sums: np.ndarray) -> None:
        if not gemm.product_and_sums(self.calls, a, b, c, sums.reshape(-1)):
            self._bind_op("matmul", [a, b], [c], {})
            self._bind_op("sum", [a.T], [sums.reshape(-1)], {"dims": (0,), "keepdim": False})

    def _bind_view(self, node: Node, source: np.ndarray) -> None:
        view = OPS[node.op].evaluate([source], node.attrs)[0]
        if np.shares_memory(view, source) or not view.size:
            self.values[node, 0] = view
            return
        copy = np.empty(source.shape, source.dtype)  # the strides of the source do not allow this view
        self.values[node, 0] = OPS[node.op].evaluate([copy], node.attrs)[0]
        self.calls.add(np.copyto, copy, source)

    def _bind_join(self, node: Node, inputs: list[np.ndarray], output: np.ndarray) -> None:
        if not covers(node):
            self.calls.add(output.fill, 0)
        for part, index in zip(inputs, node.attrs["indices"], strict=True):
            place_of_part = output[(*thaw(index), ...)]  # with "..." a single element is a view, too
            if part.__array_interface__["data"] != place_of_part.__array_interface__["data"]:
                self.calls.add(np.copyto, place_of_part, part)

    def _operands(self, node: Node) -> list[Any]:
        """A node's inputs, literals as numbers."""
        edges = [edge for edge in node.inputs if edge is not None]
        return [edge[0].attrs["value"] if edge[0].op == "literal" else self.values[edge] for edge in edges]

    def _covered(self, shape: tuple[int, ...], operands: list[Any]) -> tuple[int, int, list[Any], list[np.ndarray]]:
        """Rows and columns of elementwise steps, what each operand covers of them, and the arrays among these."""
        cut = fusion.split_point(shape, [given.shape for given in operands if isinstance(given, np.ndarray)])
        assert cut is not None
        rows, columns = int(np.prod(shape[:cut])), int(np.prod(shape[cut:]))
        kinds: list[Any] = []
        arrays: list[np.ndarray] = []
        for array in operands:
            if not isinstance(array, np.ndarray):
                kinds.append(array)
                continue
            padded = (1,) * (len(shape) - array.ndim) + array.shape
            over_rows = any(n != 1 for n in padded[:cut]) or rows == 1
            over_columns = any(n != 1 for n in padded[cut:]) or columns == 1
            if array.size == 1 and rows * columns != 1:
                over_rows = over_columns = False
            flat = self.calls.contiguous(array)
            if over_rows and over_columns:
                kinds.append(codegen.FULL)
                arrays.append(flat.reshape(rows, columns))
            elif over_columns:
                kinds.append(codegen.ROW)
                arrays.append(flat.reshape(columns))
            elif over_rows:
                kinds.append(codegen.COLUMN)
                arrays.append(flat.reshape(rows))
            else:
                kinds.append(codegen.SCALAR)
                arrays.append(flat.reshape(1))
        return rows, columns, kinds, arrays

    def _bind_steps(self, node: Node, operands: list[Any], outputs: list[np.ndarray]) -> None:
        """The elementwise steps of a node, on these operands."""
        rows, columns, kinds, arrays = self._covered(node.outputs[0][0], operands)
        work = rows * columns * (0.1 * len(operands) + fusion.work(node.attrs["body"]))
        places = [i for i, kind in enumerate(kinds) if isinstance(kind, str)]
        starts = {i: array.ctypes.data for i, array in zip(places, arrays, strict=True) if kinds[i] == codegen.FULL}
        over: list[int | None] = []
        for output in outputs:
            over.append(next((i for i, start in starts.items() if start == output.ctypes.data), None))
        outputs = [output for output, place in zip(outputs, over, strict=True) if place is None]
        kernel = codegen.compiled(codegen.source(node.attrs["body"], kinds, _read(node), node.attrs["kept"], over))
        if codegen.is_flat(kinds):
            flattened = [a.reshape(-1) for a in (*arrays, *outputs)]
            self.calls.over_rows(kernel, rows * columns, work, *flattened)
        else:
            self.calls.over_rows(kernel, rows, work, *arrays, *[o.reshape(rows, columns) for o in outputs])

    def _bind_fused_matmul(self, node: Node, outputs: list[np.ndarray]) -> None:
        """A row times a matrix, and elementwise steps: in one kernel, whose threads go on with their part."""
        left, right, *others = self._operands(node)
        product = self.calls.scratch(right.shape[1], "product")
        operands = [product.reshape(node.outputs[0][0]), *others]
        found = matvec.served(left, right)
        if found is None:
            self._bind_op("matmul", [left, right], [product.reshape(1, -1)], {})
            self._bind_steps(node, operands, outputs)
            return
        kernel, matrix = found
        _, _, kinds, arrays = self._covered(node.outputs[0][0], operands)
        text = codegen.source(node.attrs["body"], kinds, _read(node), node.attrs["kept"], product=kernel.__name__)
        vectors = [array.reshape(-1) for array in (*arrays, *outputs)]
        matvec.product(self.calls, codegen.compiled(text), left, matrix, *vectors)

    def _bind_fused_sum(self, node: Node, inputs: list[np.ndarray], output: np.ndarray) -> None:
        kinds: list[Any] = []
        arrays: list[np.ndarray] = []
        size = max(array.size for array in inputs)
        for array, edge in zip(inputs, node.inputs, strict=True):
            if edge is not None and edge[0].op == "literal":
                kinds.append(edge[0].attrs["value"])
                continue
            kinds.append(codegen.FULL if array.size == size else codegen.SCALAR)
            arrays.append(self.calls.contiguous(array).reshape(-1))
        kernel = codegen.compiled(codegen.summing(node.attrs["body"], kinds, _read(node), node.attrs["kept"]))
        work = size * (0.1 * len(inputs) + fusion.work(node.attrs["body"]))
        sums.of_parts(self.calls, kernel, size, work, arrays, output)


def _read(node: Node) -> list[str]:
    """The dtypes of what the steps of a node read; the product in "fused_matmul" takes the place of its factors."""
    edges = node.inputs[1:] if node.op == "fused_matmul" else node.inputs
    return [edge[0].outputs[edge[1]][1].name for edge in edges if edge is not None]


def _fill(function: np.ufunc, output: np.ndarray, *inputs: np.ndarray) -> None:
    function(*inputs, out=output)


def _put_in_place(target: np.ndarray, index: Any, value: np.ndarray, *indices: np.ndarray) -> None:
    """Write only the part that changes: a cache takes a new entry without being copied."""
    target[thaw(index, indices)] = value


def _by_reference(op: Any, inputs: list[np.ndarray], attrs: Any, outputs: list[np.ndarray]) -> None:
    """An op without a kernel: its reference, then a copy."""
    for output, value in zip(outputs, op.evaluate(inputs, attrs), strict=True):
        np.copyto(output, value)
