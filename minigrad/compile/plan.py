"""A plan: a graph bound to memory. Replaying it runs a list of calls on arrays that never move, and allocates nothing.

Every node's output is a view into the arena, an input's buffer, or (for what the graph captured) the captured tensor's
own memory, read live: a changed parameter, learning rate or random counter is seen by the next replay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minigrad import kernels
from minigrad.compile import codegen, fusion
from minigrad.compile.memory import Buffer, place
from minigrad.compile.rewrite import results
from minigrad.graph import Edge, Graph, Node
from minigrad.kernels.calls import Calls
from minigrad.ops.index import thaw
from minigrad.ops.registry import OPS

if TYPE_CHECKING:
    from minigrad.tensor import Tensor

# numpy functions that fill an output directly: op -> function of (inputs, output, attrs) appending one call
_UFUNCS = {
    name: getattr(np, numpy_name)
    for name, numpy_name in {
        "add": "add", "sub": "subtract", "mul": "multiply", "div": "true_divide", "neg": "negative", "exp": "exp",
        "log": "log", "sqrt": "sqrt", "tanh": "tanh", "maximum": "maximum", "minimum": "minimum", "eq": "equal",
        "ne": "not_equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
        "bitwise_and": "bitwise_and", "bitwise_or": "bitwise_or", "bitwise_not": "invert", "abs": "absolute",
        "matmul": "matmul", "square": "square",
    }.items()
}  # fmt: skip


# ops whose kernels write outputs of any strides: their memory may follow the order in which it is read
_ANY_LAYOUT = ("flash_attention", "flash_attention_grad", "join")


class Plan:
    """`run(*arrays)` replays the graph; `arena` is the one block of memory, `calls` what a replay executes."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.calls = Calls()
        self.values: dict[Edge, np.ndarray] = {}
        self._bind()

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Copy the inputs in, run every call, write mutations back; returns the outputs (copies)."""
        for buffer, given in zip(self.inputs, inputs, strict=True):
            np.copyto(buffer, given)
        with np.errstate(all="ignore"):
            for function, *arguments in self.calls:
                function(*arguments)
        return [output.copy() for output in self.outputs]

    def _bind(self) -> None:
        graph = self.graph
        steps = {node: i for i, node in enumerate(graph.nodes)}
        users: dict[Edge, list[Node]] = {}
        for node in graph.nodes:
            for edge in node.inputs:
                if edge is not None:
                    users.setdefault(edge, []).append(node)
        wanted = set(results(graph))
        single = {e: nodes[0] for e, nodes in users.items() if len(nodes) == 1 and e not in wanted}
        root = self._roots(graph, single)
        first: dict[Edge, int] = {}
        last: dict[Edge, int] = {}
        for edge, owner in root.items():
            first[owner] = min(first.get(owner, len(graph.nodes)), steps[edge[0]])
            for user in users.get(edge, ()):
                last[owner] = max(last.get(owner, -1), steps[user])
            if edge in wanted:
                last[owner] = len(graph.nodes)
        in_place = self._in_place(graph, root, last, steps)
        owners = [
            edge
            for edge, owner in root.items()
            if edge == owner and edge[0] not in graph.constants and edge[0].op != "literal" and edge not in in_place
        ]
        buffers = []
        for node, index in owners:
            shape, dtype = node.outputs[index]
            given = node in graph.inputs
            start, stop = first[node, index], last.get((node, index), steps[node])
            size = max(int(np.prod(shape)) * dtype.itemsize, 1)
            buffers.append(Buffer(size, -1 if given else start, len(graph.nodes) if given else max(stop, steps[node])))
        offsets, size = place(buffers)
        self.arena = np.empty(size + 64, np.uint8)
        shift = -self.arena.ctypes.data % 64
        for (maker, index), offset in zip(owners, offsets, strict=True):
            shape, dtype = maker.outputs[index]
            reader = single.get((maker, index))
            order = reader.attrs["dims"] if reader is not None and reader.op == "permute" else tuple(range(len(shape)))
            if maker.op not in _ANY_LAYOUT:
                order = tuple(range(len(shape)))
            block = np.ndarray([shape[d] for d in order], dtype, self.arena.data, shift + offset)
            self.values[maker, index] = block.transpose(np.argsort(order)) if shape else block
        for node, array in graph.constants.items():
            self.values[node, 0] = array
        self.values.update({edge: tensor.array for edge, tensor in in_place.items()})
        for node in reversed(graph.nodes):  # the parts of a join lie in it
            if node.op == "join":
                for edge, index in zip(node.inputs, node.attrs["indices"], strict=True):
                    if edge is not None and root[edge] == root[node, 0]:
                        self.values[edge] = self.values[node, 0][thaw(index)]
        for node in graph.nodes:
            if node.op == "literal":
                self.values[node, 0] = np.asarray(node.attrs["value"], node.outputs[0][1])
            elif node not in graph.constants and node not in graph.inputs:
                self._bind_node(node)
        self.inputs = [self.values[node, 0] for node in graph.inputs]
        self.outputs = [self.values[edge] for edge in graph.outputs]
        for tensor, edge in graph.mutations:
            if edge not in in_place:
                self.calls.add(np.copyto, tensor.array, self.values[edge])

    @staticmethod
    def _in_place(
        graph: Graph, root: Mapping[Edge, Edge], last: Mapping[Edge, int], steps: Mapping[Node, int]
    ) -> dict[Edge, Tensor]:
        """Mutations whose new value may be computed straight into the tensor's memory.

        That is so where an elementwise node makes it and nothing reads the old value later; the node itself reads and
        writes each element at the same place.
        """
        old = {id(array): (node, 0) for node, array in graph.constants.items()}
        others = [*graph.constants.values(), *(tensor.array for tensor, _ in graph.mutations)]
        direct: dict[Edge, Tensor] = {}
        for tensor, edge in graph.mutations:
            node = edge[0]
            before = old.get(id(tensor.array))
            if (
                node.op in ("fused", "adam")
                and root[edge] == edge
                and tensor.array.flags.c_contiguous
                and node.outputs[edge[1]] == (tensor.array.shape, tensor.array.dtype)
                and (before is None or last.get(before, -1) <= steps[node])
                and not any(np.may_share_memory(a, tensor.array) for a in others if a is not tensor.array)
                and (before is None or all(e == before for e in node.inputs if e is not None and root[e] == before))
            ):
                direct[edge] = tensor
        return direct

    @staticmethod
    def _roots(graph: Graph, single: Mapping[Edge, Node]) -> dict[Edge, Edge]:
        """For every edge the edge whose memory it is: its own, what it is a view of, or the join that it is part of."""
        root: dict[Edge, Edge] = {}
        for node in graph.nodes:
            for index in range(len(node.outputs)):
                edge = (node, index)
                source = node.inputs[0] if node.op in OPS and OPS[node.op].view and node.inputs else None
                root[edge] = edge if source is None else root[source]
        for node in graph.nodes:
            if node.op == "join" and _covers(node):
                for part in node.inputs:
                    if part is not None and part in single and root[part] == part and part[0].op in _ANY_LAYOUT:
                        root[part] = (node, 0)
        return root

    def _bind_node(self, node: Node) -> None:
        inputs = [self.values[edge] for edge in node.inputs if edge is not None]
        op = OPS[node.op]
        if op.view:
            self._bind_view(node, inputs[0])
            return
        outputs = [self.values[node, index] for index in range(len(node.outputs))]
        if node.op == "fused":
            self._bind_fused(node, inputs, outputs)
            return
        if node.op == "join":
            self._bind_join(node, inputs, outputs[0])
            return
        calls = kernels.bind(op, inputs, outputs, node.attrs)
        if calls is not None:
            self.calls.extend(calls)
        elif node.op in _UFUNCS:
            self.calls.add(_UFUNCS[node.op], *inputs, outputs[0])
        elif node.op == "sum":
            self.calls.add(np.add.reduce, inputs[0], node.attrs["dims"], None, outputs[0], node.attrs["keepdim"])
        else:
            self.calls.add(_by_reference, op, inputs, node.attrs, outputs)

    def _bind_view(self, node: Node, source: np.ndarray) -> None:
        view = OPS[node.op].evaluate([source], node.attrs)[0]
        if np.shares_memory(view, source) or not view.size:
            self.values[node, 0] = view
            return
        copy = np.empty(node.outputs[0][0], node.outputs[0][1])  # a reshape that the layout does not allow
        self.values[node, 0] = copy
        self.calls.add(np.copyto, copy.reshape(source.shape), source)

    def _bind_join(self, node: Node, inputs: list[np.ndarray], output: np.ndarray) -> None:
        if not _covers(node):
            self.calls.add(output.fill, 0)
        for part, index in zip(inputs, node.attrs["indices"], strict=True):
            place_of_part = output[thaw(index)]
            if part.__array_interface__["data"] != place_of_part.__array_interface__["data"]:
                self.calls.add(np.copyto, place_of_part, part)

    def _bind_fused(self, node: Node, inputs: list[np.ndarray], outputs: list[np.ndarray]) -> None:
        shape = node.outputs[0][0]
        sources = [edge[0] for edge in node.inputs if edge is not None]
        cut = fusion.split_point(shape, [a.shape for a, s in zip(inputs, sources, strict=True) if s.op != "literal"])
        assert cut is not None
        rows, columns = int(np.prod(shape[:cut])), int(np.prod(shape[cut:]))
        kinds: list[Any] = []
        arrays: list[np.ndarray] = []
        for array, source in zip(inputs, sources, strict=True):
            if source.op == "literal":
                kinds.append(source.attrs["value"])
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
        kernel = codegen.compiled(codegen.source(node.attrs["body"], kinds, node.attrs["kept"]))
        if all(kind in (codegen.FULL, codegen.SCALAR) or not isinstance(kind, str) for kind in kinds):
            flattened = [a.reshape(-1) for a in (*arrays, *outputs)]
            self.calls.over_rows(kernel, rows * columns, rows * columns, *flattened)
        else:
            self.calls.over_rows(kernel, rows, rows * columns, *arrays, *[o.reshape(rows, columns) for o in outputs])


def _covers(join: Node) -> bool:
    """Do the parts of a join fill it?"""
    parts = sum(int(np.prod(edge[0].outputs[edge[1]][0])) for edge in join.inputs if edge is not None)
    return parts == int(np.prod(join.outputs[0][0]))


def _by_reference(op: Any, inputs: list[np.ndarray], attrs: Any, outputs: list[np.ndarray]) -> None:
    """An op without a kernel: its reference, then a copy."""
    for output, value in zip(outputs, op.evaluate(inputs, attrs), strict=True):
        np.copyto(output, value)
