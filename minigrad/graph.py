"""Graph: a traced computation, which can be replayed, drawn, compiled and compared."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from minigrad import dtypes, later
from minigrad.node import Edge, Node
from minigrad.ops.registry import OPS
from minigrad.tensor import Tensor


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
    library     the package whose modules the program is made of: what they do inside is known
    """

    library = "minigrad.nn"

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
        if len(inputs) != len(self.inputs):
            raise ValueError(f"the graph takes {len(self.inputs)} inputs, got {len(inputs)}")
        values: dict[Node, tuple[np.ndarray, ...]] = {node: (array,) for node, array in self.constants.items()}
        for node, given in zip(self.inputs, inputs, strict=True):
            array = given._values("run()") if isinstance(given, Tensor) else np.asarray(given)
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
        text: str = later.load("minigrad.viz.text:listing")(self)
        return text

    dot = later.method(
        "minigrad.viz:dot",
        "The drawing in graphviz's language. Keywords are those of `minigrad.viz.picture.Options`.",
    )
    svg = later.method(
        "minigrad.viz:svg",
        """The drawing as SVG, as `minigrad.viz.picture.Options` want it: ``graph.svg(depth=2)``,
        ``graph.svg(expand=("encoder.layers.0*",))``. Raises LayoutError, one sentence, where there is no graphviz.""",
    )
    png = later.method(
        "minigrad.viz:png",
        "The drawing as a PNG. Raises LayoutError where there is no graphviz, RasterError where nothing makes PNGs.",
    )
    html = later.method(
        "minigrad.viz:html",
        """One self-contained interactive page: expand, collapse, search, step through the backward pass. `inputs`
        puts the values of a run into it.""",
    )

    def _repr_svg_(self) -> str | None:
        """For notebooks, which show the listing where there is no graphviz."""
        try:
            text: str = self.svg()
        except later.load("minigrad.viz.layout:LayoutError"):
            return None
        return text
