"""The structure of a computation: nodes, module scopes, source lines, and `Graph`.

A `Node` says which op made a value, from what, with which attributes, where in the program and inside which
modules. Values live elsewhere (in the Tensor, on the tape as `saved`, in a plan), and a node never points at its
output, so that memory is freed by reference counting alone. Every walk is iterative.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from types import CodeType
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import numpy as np

from minigrad import dtypes

if TYPE_CHECKING:
    from minigrad.tensor import Storage, Tensor

P = ParamSpec("P")
R = TypeVar("R")

PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_CONTEXTLIB = contextlib.__file__  # a decorator made of a context manager runs a frame of that file
Edge = tuple["Node", int]  # a node and which of its outputs
Saved = tuple[np.ndarray, "Storage", int]  # an array, its storage, the version it had when saved
Scope = tuple[tuple[str, str], ...]  # (attribute name in the parent, class) from the outermost module inwards

_sequence = itertools.count()


class State(threading.local):
    """What is in force in this thread: gradient mode, the trace being recorded, the module scope, the phase."""

    grad_enabled: bool = True
    recorder: Any = None
    scope: Scope = ()
    backward_of: Node | None = None  # the node whose VJP is running
    quiet: bool = False  # numpy's floating-point warnings are off (see `silently`)
    backward_watch: Any = None  # sees every step of backward passes (see minigrad.study.step)
    decomposing: str = ""  # the composite whose decomposition is running: it has to be repeatable


state = State()


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


def _handling() -> tuple[ContextVar[Any] | None, Any]:
    """The context variable where numpy keeps what np.errstate sets, and its value inside np.errstate(all="ignore").

    (None, None) for a numpy that keeps it elsewhere.
    """
    before = copy_context()
    with np.errstate(all="ignore"):
        inside = copy_context()
    changed = [(variable, value) for variable, value in inside.items() if before.get(variable) is not value]
    return changed[0] if len(changed) == 1 else (None, None)


_HANDLING, _SILENCE = _handling()


def silently(function: Callable[P, R], *arguments: P.args, **keywords: P.kwargs) -> R:
    """Call `function` with numpy's floating-point warnings off: infinities and NaN are values here.

    Setting numpy's variable costs 0.3 us, np.errstate 1.1. Set back is what was there, and not by a token, which an
    interrupt between the call that makes it and the one that uses it would lose.
    """
    if state.quiet:
        return function(*arguments, **keywords)
    if _HANDLING is None:
        with np.errstate(all="ignore"):
            return function(*arguments, **keywords)
    before = _HANDLING.get()
    try:
        _HANDLING.set(_SILENCE)
        state.quiet = True
        return function(*arguments, **keywords)
    finally:
        state.quiet = False
        _HANDLING.set(before)


@contextmanager
def scope(name: str, kind: str) -> Iterator[None]:
    """Nodes made inside carry (name, kind) as the innermost entry of their scope, as those of a module do."""
    outer = state.scope
    state.scope = (*outer, (name, kind))
    try:
        yield
    finally:
        state.scope = outer


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


class Visit(NamedTuple):
    """A step of a backward pass inside a trace: the forward node whose derivative was applied, the gradients of its
    outputs that had arrived, and (where to, what) of the gradients that left, before broadcast axes are summed."""

    node: Node
    arrived: tuple[Edge | None, ...]
    left: tuple[tuple[Edge, Edge], ...]


class Graph:
    """A traced computation: nodes in topological order, with named inputs, constants and outputs.

    constants   node -> array, for tensors that the function reached without being given them (parameters too)
    captured    the tensors whose arrays the constants are (of a trace; a pass does not carry them on)
    generators  random generators that the trace draws from -> the device where (like captured, of a trace)
    mutations   (tensor, edge): tensors of the outside that the function changed in place, and their new value
    gradients   leaf -> edge: the gradients that the function left in `.grad`
    before      leaf -> its gradient before, a copy, where the function looks at it; None if it had none (of a trace)
    cleared     leaves that the function left without a gradient (of a trace)
    changed     (position, edge): inputs that the function changed in place, and their new value (of a trace)
    by_layout   do values depend on how an eager call lays out elements in memory, where a reshape of a tensor and a
                change in place of either meet (of a trace)
    visits      the steps of the backward passes that the function ran, in their order
    structure   how the outputs were nested: a function from the flat list back to the traced function's result
    """

    def __init__(
        self,
        nodes: list[Node],
        inputs: list[Node],
        outputs: list[Edge],
        constants: dict[Node, np.ndarray],
        mutations: Sequence[tuple[Tensor, Edge]] = (),
        gradients: Mapping[Node, Edge] | None = None,
        structure: Callable[[list[Any]], Any] | None = None,
        visits: Sequence[Visit] = (),
    ) -> None:
        self.nodes = nodes
        self.inputs = inputs
        self.outputs = outputs
        self.constants = constants
        self.captured: list[Tensor] = []
        self.generators: dict[Any, str] = {}
        self.before: dict[Node, Tensor | None] = {}
        self.cleared: list[Node] = []
        self.changed: list[tuple[int, Edge]] = []
        self.by_layout = False
        self.mutations = list(mutations)
        self.gradients = dict(gradients or {})
        self.visits = list(visits)
        self.structure = structure or (lambda flat: flat[0] if len(flat) == 1 else tuple(flat))

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def names(self) -> dict[Node, str]:
        """A name for every node, no two alike: its own where it has one, a literal's value, else %0, %1, ... in order.

        A name that several nodes have is followed by "~2", "~3", ... from the second on.
        """
        numbers, times = itertools.count(), Counter[str]()
        names = {}
        for node in self.nodes:
            if node.op == "literal":
                names[node] = repr(node.attrs["value"])
                continue
            times[node.name] += 1
            repeat = f"~{times[node.name]}" if times[node.name] > 1 else ""
            names[node] = node.name + repeat if node.name else f"%{next(numbers)}"
        return names

    def run(self, *inputs: Any) -> Any:
        """Replay with the reference kernels. Inputs are arrays or tensors in the order of tracing; returns arrays in
        the structure of the traced function. Mutations are not written back. Raises ValueError on another shape."""
        from minigrad.ops.registry import OPS

        if len(inputs) != len(self.inputs):
            raise ValueError(f"the graph takes {len(self.inputs)} inputs, got {len(inputs)}")
        values: dict[Node, tuple[np.ndarray, ...]] = {node: (array,) for node, array in self.constants.items()}
        for node, given in zip(self.inputs, inputs, strict=True):
            array = np.asarray(getattr(given, "array", given))
            shape, dtype = node.outputs[0]
            if array.shape != shape or array.dtype != dtype:
                raise ValueError(
                    f"input {node.name!r} was traced as {dtypes.name(dtype)}{list(shape)}, "
                    f"got {dtypes.name(array.dtype)}{list(array.shape)}: trace again for another shape or dtype"
                )
            values[node] = (array,)
        for node in self.nodes:
            if node.op == "literal":
                values[node] = (np.asarray(node.attrs["value"], node.outputs[0][1]),)
            elif node not in values:
                arguments = [values[edge[0]][edge[1]] for edge in node.inputs if edge is not None]
                values[node] = OPS[node.op].evaluate(arguments, node.attrs)
        return self.structure([values[node][index] for node, index in self.outputs])

    def __str__(self) -> str:
        from minigrad.viz.text import listing

        return listing(self)

    def dot(self, **options: Any) -> str:
        """The drawing in graphviz's language. Keywords are those of `minigrad.viz.picture.Options`."""
        from minigrad.viz import dot

        return dot(self, **options)

    def svg(self, **options: Any) -> str:
        """The drawing as SVG, as `minigrad.viz.picture.Options` want it: ``graph.svg(depth=2)``,
        ``graph.svg(expand=("encoder.layers.0*",))``. Raises LayoutError, one sentence, where there is no graphviz."""
        from minigrad.viz import svg

        return svg(self, **options)

    def png(self, **options: Any) -> bytes:
        """The drawing as a PNG. Raises LayoutError where there is no graphviz, RasterError where nothing makes PNGs."""
        from minigrad.viz import png

        return png(self, **options)

    def html(self, **options: Any) -> str:
        """One self-contained interactive page: expand, collapse, search, step through the backward pass. `inputs`
        puts the values of a run into it."""
        from minigrad.viz import html

        return html(self, **options)

    def _repr_svg_(self) -> str | None:
        """For notebooks, which show the listing where there is no graphviz."""
        from minigrad.viz.layout import LayoutError

        try:
            return self.svg()
        except LayoutError:
            return None
