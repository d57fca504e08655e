"""Which memory every value of a graph uses: its own, its base's (views), a join's, or that of the tensor it updates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib import array_utils

from minigrad.compiler.memory import Buffer
from minigrad.compiler.rewrite import results
from minigrad.graph import Graph
from minigrad.node import Edge, Node
from minigrad.ops.index import thaw
from minigrad.ops.registry import OPS

if TYPE_CHECKING:
    from minigrad.tensor import Tensor


def size(edge: Edge) -> int:
    """The number of elements of a value."""
    return int(np.prod(edge[0].outputs[edge[1]][0], dtype=np.int64))


def covers(join: Node) -> bool:
    """Do the parts of a join fill it?"""
    return sum(size(edge) for edge in join.inputs if edge is not None) == size((join, 0))


def _any_strides(node: Node) -> bool:
    return node.op in OPS and OPS[node.op].any_strides


class Layout:
    """Decisions about memory, before any of it exists.

    owner      edge -> the edge whose memory it uses (itself where it has its own)
    in_place   edge -> the outside tensor in whose memory it is computed
    reused     edge -> the owner, an input of its node, in whose memory it is computed
    owners     the edges that need memory of the plan, with `buffers`, their sizes and lifetimes
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.step = {node: i for i, node in enumerate(graph.nodes)}
        self.readers: dict[Edge, list[Node]] = {}
        for node in graph.nodes:
            for edge in node.inputs:
                if edge is not None:
                    self.readers.setdefault(edge, []).append(node)
        self.wanted = set(results(graph))
        self.owner = self._owners()
        self.first, self.last = self._lifetimes()
        self.in_place = self._updates()
        self.reused: dict[Edge, Edge] = {}
        self._reuse()
        self.owners = [
            edge
            for edge, owner in self.owner.items()
            if edge == owner
            and edge[0] not in graph.constants
            and edge[0].op != "literal"
            and edge not in self.in_place
        ]
        self.buffers = [self._buffer(edge) for edge in self.owners]

    def only_reader(self, edge: Edge) -> Node | None:
        """The one node that reads `edge`, if there is just one and the outside does not."""
        readers = self.readers.get(edge, ())
        return readers[0] if len(readers) == 1 and edge not in self.wanted else None

    def order(self, edge: Edge) -> tuple[int, ...]:
        """The order in which the dimensions lie in memory: as the only permutation that reads them wants them, where
        all other readers take any strides."""
        if _any_strides(edge[0]) and edge not in self.wanted:
            readers = [reader for reader in self.readers.get(edge, ()) if not _any_strides(reader)]
            if len(readers) == 1 and readers[0].op == "permute":
                return tuple(readers[0].attrs["dims"])
        return tuple(range(len(edge[0].outputs[edge[1]][0])))

    def placed(self, offsets: Sequence[int], block: Callable[..., Any]) -> dict[Edge, Any]:
        """The array of every value that is not a view. `block(offset, shape, dtype)` makes one in the plan's memory."""
        values: dict[Edge, Any] = {}
        for edge, offset in zip(self.owners, offsets, strict=True):
            shape, dtype = edge[0].outputs[edge[1]]
            order = self.order(edge)
            made = block(offset, tuple(shape[d] for d in order), np.dtype(dtype))
            dense = order == tuple(range(len(order)))
            values[edge] = made if dense else made.transpose(tuple(int(d) for d in np.argsort(order)))
        values.update({(node, 0): array for node, array in self.graph.constants.items()})
        values.update({edge: tensor.array for edge, tensor in self.in_place.items()})
        for edge, owner in self.reused.items():
            values[edge] = values[owner].reshape(edge[0].outputs[edge[1]][0])
        for node in reversed(self.graph.nodes):
            if node.op == "join":
                for part, index in zip(node.inputs, node.attrs["indices"], strict=True):
                    if part is not None and self.owner[part] == self.owner[node, 0]:
                        values[part] = values[node, 0][thaw(index)]
        return values

    def _owners(self) -> dict[Edge, Edge]:
        owner: dict[Edge, Edge] = {}
        for node in self.graph.nodes:
            source = node.inputs[0] if node.op in OPS and OPS[node.op].view and node.inputs else None
            for index in range(len(node.outputs)):
                owner[node, index] = (node, index) if source is None else owner[source]
        for node in self.graph.nodes:
            if node.op == "join" and covers(node):
                for part in node.inputs:
                    if (
                        part is not None
                        and _any_strides(part[0])
                        and owner[part] == part
                        and self.only_reader(part) is node
                    ):
                        owner[part] = (node, 0)
        return owner

    def _lifetimes(self) -> tuple[dict[Edge, int], dict[Edge, int]]:
        """The first and last step at which an owner's memory is in use."""
        end = len(self.graph.nodes)
        first: dict[Edge, int] = {}
        last: dict[Edge, int] = {}
        for edge, owner in self.owner.items():
            first[owner] = min(first.get(owner, end), self.step[edge[0]])
            uses = [self.step[reader] for reader in self.readers.get(edge, ())]
            last[owner] = max(last.get(owner, self.step[edge[0]]), *uses, end if edge in self.wanted else 0)
        return first, last

    def _reuse(self) -> None:
        """A fused result lies where an input of its shape lay that nothing reads later: less memory to go through."""
        kept = {*self.graph.constants, *self.graph.inputs}
        views: dict[Edge, list[Edge]] = {}
        for edge, owner in self.owner.items():
            views.setdefault(owner, []).append(edge)
        for node in self.graph.nodes:
            if node.op != "fused":
                continue
            owners = [self.owner[edge] for edge in node.inputs if edge is not None]
            free = [
                edge
                for edge, owner in zip(filter(None, node.inputs), owners, strict=True)
                if owners.count(owner) == 1
                and owner[0] not in kept
                and owner not in self.in_place
                and self.last[owner] == self.step[node]
                and self._lies_as(edge, owner)
            ]
            for result in [(node, index) for index in range(len(node.outputs))]:
                chosen = next((e for e in free if e[0].outputs[e[1]] == node.outputs[result[1]]), None)
                if chosen is None or self.owner[result] != result or result in self.in_place:
                    continue
                owner = self.reused[result] = self.owner[chosen]
                free.remove(chosen)
                self.last[owner] = self.last[result]
                views[owner] += views[result]
                self.owner.update(dict.fromkeys(views[result], owner))

    def _lies_as(self, edge: Edge, owner: Edge) -> bool:
        """Are the elements of `edge` all of its owner's, in the order of memory?"""
        while edge != owner and edge[0].op == "reshape" and edge[0].inputs[0] is not None:
            edge = edge[0].inputs[0]
        edge = self.reused.get(edge, edge)
        return edge == owner and owner[0].op != "literal" and list(self.order(owner)) == sorted(self.order(owner))

    def _buffer(self, edge: Edge) -> Buffer:
        needed = max(size(edge) * edge[0].outputs[edge[1]][1].itemsize, 1)
        if edge[0] in self.graph.inputs:
            return Buffer(needed, -1, len(self.graph.nodes))
        return Buffer(needed, self.first[edge], self.last[edge])

    def _updates(self) -> dict[Edge, Tensor]:
        """Mutations that may be computed straight into the tensor's memory: the maker writes each element where it
        reads it, nothing reads the old value later, no other captured array shares the memory, and the value is not
        that of another tensor or gradient, too."""
        old = {id(array): (node, 0) for node, array in self.graph.constants.items()}
        shared = _sharing([*self.graph.constants.values(), *(tensor.array for tensor, _ in self.graph.mutations)])
        left = Counter([*(edge for _, edge in self.graph.mutations), *self.graph.gradients.values()])
        makers = {edge[0] for _, edge in self.graph.mutations}
        viewed = {
            maker: {self.owner[e] for e in maker.inputs if e is not None and self.owner[e] != e} for maker in makers
        }
        found: dict[Edge, Tensor] = {}
        for tensor, edge in self.graph.mutations:
            maker, array = edge[0], tensor.array
            before = old.get(id(array))
            if (
                maker.op in OPS
                and OPS[maker.op].same_place
                and self.owner[edge] == edge
                and array.flags.c_contiguous
                and maker.outputs[edge[1]] == (array.shape, array.dtype)
                and before not in viewed[maker]
                and left[edge] == 1
                and (before is None or self.last[before] <= self.step[maker])
                and id(array) not in shared
            ):
                found[edge] = tensor
        return found


def _sharing(arrays: Iterable[Any]) -> set[int]:
    """The ids of those arrays that may share memory with another one."""
    found: set[int] = set()
    spans: list[tuple[int, int, int]] = []
    for key, array in {id(array): array for array in arrays}.items():
        low, high = array_utils.byte_bounds(array) if isinstance(array, np.ndarray) else _of_device(array)
        if low < high:
            spans.append((low, high, key))
    spans.sort()
    reach, furthest = -1, 0
    for low, high, key in spans:
        if low < reach:
            found |= {key, furthest}
        if high > reach:
            reach, furthest = high, key
    return found


def _of_device(array: Any) -> tuple[int, int]:
    """Where an array's whole memory lies, on a device: views of it count as one."""
    return array.memory.address, array.memory.address + max(array.memory.nbytes, 1)
