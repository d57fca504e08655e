"""Node: one recorded operation, and how to walk what nodes are made from.

A node says which op made a value, from what, with which attributes, where in the program and inside which modules.
Values live elsewhere (in the Tensor, on the tape as `saved`, in a plan), and a node never points at its output, so that
memory is freed by reference counting alone. Every walk is iterative.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

import numpy as np

from minigrad import dtypes
from minigrad.state import state

if TYPE_CHECKING:
    from minigrad.tensor import Storage, Tensor

PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_CONTEXTLIB = contextlib.__file__  # a decorator made of a context manager runs a frame of that file
Edge = tuple["Node", int]  # a node and which of its outputs
Meta = tuple[tuple[int, ...], np.dtype]  # shape and dtype
Saved = tuple[np.ndarray, "Storage", int]  # an array, its storage, the version it had when saved

_sequence = itertools.count()


class Node:
    """One recorded operation.

    op        name of the op ("leaf", "input", "constant", "literal" for sources); it need not be registered
    attrs     its keyword arguments
    inputs    edges it reads (None where nothing recorded made the value)
    edges     edges its gradients flow to (None where no gradient is needed)
    outputs   (shape, dtype) of each output
    saved     what its VJP needs: input position i, or ~i for output i, to (array, storage, version)
    scope, source, backward_of: modules, program line, and the forward node whose VJP made this one
    grads     output -> accumulated gradient (of leaves; where `retain_grad` asked, None before there is one)
    """

    __slots__ = (
        "__weakref__",
        "attrs",
        "backward_of",
        "edges",
        "grads",
        "hooks",
        "input_meta",
        "inputs",
        "name",
        "op",
        "outputs",
        "saved",
        "scope",
        "sequence",
        "where",
    )

    def __init__(
        self,
        op: str,
        attrs: Mapping[str, Any],
        inputs: tuple[Edge | None, ...],
        outputs: tuple[tuple[tuple[int, ...], np.dtype], ...],
        input_meta: tuple[tuple[tuple[int, ...], np.dtype], ...] = (),
        edges: tuple[Edge | None, ...] | None = None,
        where: tuple[CodeType, int] | None = None,
    ) -> None:
        self.op = op
        self.attrs = attrs
        self.inputs = inputs
        self.edges = inputs if edges is None else edges
        self.outputs = outputs
        self.input_meta = input_meta
        self.saved: dict[int, Saved] | None = None
        self.sequence = next(_sequence)
        self.scope = state.scope
        self.where = where
        self.backward_of = state.backward_of
        self.hooks: dict[int, list[Callable[[Tensor], Tensor | None]]] | None = None
        self.grads: dict[int, Tensor | None] | None = None
        self.name = ""

    @property
    def source(self) -> tuple[str, int] | None:
        """(file, line) of the user's statement that made this node."""
        if self.where is None:
            return None
        code, instruction = self.where
        for start, end, line in code.co_lines():
            if start <= instruction < end and line is not None:
                return code.co_filename, line
        return code.co_filename, code.co_firstlineno

    @property
    def place(self) -> str:
        """Source and scope in words, for messages: "model.py:12, in layers.0.attn"."""
        words = []
        if self.source is not None:
            words.append(f"{os.path.basename(self.source[0])}:{self.source[1]}")
        if self.scope:
            words.append("in " + self.path)
        return ", ".join(words) or "unknown line"

    @property
    def path(self) -> str:
        """The module path: "layers.0.attn"."""
        return ".".join(name for name, _ in self.scope if name)

    def __repr__(self) -> str:
        shapes = ", ".join(f"{dtypes.name(dtype)}{list(shape)}" for shape, dtype in self.outputs)
        return f"<{self.op} {shapes}>"


def here() -> tuple[CodeType, int] | None:
    """The first frame outside this package: code object and instruction (the line is looked up only when asked)."""
    frame = sys._getframe(2)  # its caller is of this package
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(PACKAGE) and file != _CONTEXTLIB:
            return frame.f_code, frame.f_lasti
        frame = frame.f_back  # type: ignore[assignment]
    return None


def ancestors(roots: Iterable[Node], edges: Callable[[Node], Sequence[Edge | None]]) -> list[Node]:
    """Every node that `roots` depend on through `edges`, themselves included, in the order of creation, which is a
    topological order: a node is always made after what it reads."""
    seen: set[Node] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        stack.extend(edge[0] for edge in edges(node) if edge is not None and edge[0] not in seen)
    return sorted(seen, key=lambda node: node.sequence)
