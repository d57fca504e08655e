"""What the values of a graph are like in a real run: `measure(graph, *inputs)`, for colours and for finding NaN."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from minigrad.graph import Graph
from minigrad.node import Node
from minigrad.ops.registry import OPS


@dataclass(frozen=True)
class Statistics:
    """Of the finite elements of a node's first output: extremes, mean, root mean square, norm. How many elements
    there are in all, and how many are NaN or infinite."""

    low: float
    high: float
    mean: float
    rms: float
    norm: float
    count: int
    nan: int
    infinite: int

    @property
    def healthy(self) -> bool:
        return not self.nan and not self.infinite

    def __str__(self) -> str:
        if self.count == 1 and self.healthy:
            return f"= {self.mean:.4g}"
        words = []
        if self.count > self.nan + self.infinite:
            words = [f"{self.low:.3g} to {self.high:.3g}", f"norm {self.norm:.3g}"]
        if self.nan:
            words.append(f"{self.nan:,} NaN")
        if self.infinite:
            words.append(f"{self.infinite:,} infinite")
        return ", ".join(words)


def describe(array: np.ndarray) -> Statistics:
    """The statistics of any array of numbers."""
    with np.errstate(all="ignore"):
        values = np.asarray(array).astype(np.float64, copy=False).ravel()
    finite = values[np.isfinite(values)]
    nan = int(np.isnan(values).sum())
    infinite = values.size - finite.size - nan
    if not finite.size:
        return Statistics(0.0, 0.0, 0.0, 0.0, 0.0, values.size, nan, infinite)
    largest = float(np.abs(finite).max())
    squares = float(np.square(finite / largest).sum()) if largest else 0.0  # scaled: squares of huge values overflow
    norm = largest * squares**0.5
    return Statistics(
        float(finite.min()), float(finite.max()), float((finite / finite.size).sum()), norm / finite.size**0.5, norm,
        values.size, nan, infinite,
    )  # fmt: skip


def measure(graph: Graph, *inputs: Any) -> dict[Node, Statistics]:
    """Replay `graph` on `inputs` with the reference kernels and describe every node's first output.

    Raises as `replay` does.
    """
    return {node: describe(outputs[0]) for node, outputs in replay(graph, *inputs)}


def replay(graph: Graph, *inputs: Any) -> Iterator[tuple[Node, tuple[np.ndarray, ...]]]:
    """Every node with its outputs, in the order of the graph, computed from `inputs` with the reference kernels.

    Values are dropped as soon as nothing later reads them. Raises ValueError for inputs that do not fit, KeyError for
    a foreign op, which has no reference.
    """
    if len(inputs) != len(graph.inputs):
        raise ValueError(f"the graph takes {len(graph.inputs)} inputs, got {len(inputs)}")
    last = {edge[0]: i for i, node in enumerate(graph.nodes) for edge in node.inputs if edge is not None}
    due: dict[int, list[Node]] = {}
    for node, position in last.items():
        due.setdefault(position, []).append(node)
    values: dict[Node, tuple[np.ndarray, ...]] = {node: (array,) for node, array in graph.constants.items()}
    values.update(
        (node, (np.asarray(getattr(given, "array", given)),)) for node, given in zip(graph.inputs, inputs, strict=True)
    )
    for position, node in enumerate(graph.nodes):
        if node.op == "literal":
            values[node] = (np.asarray(node.attrs["value"], node.outputs[0][1]),)
        elif node not in values:
            arguments = [values[edge[0]][edge[1]] for edge in node.inputs if edge is not None]
            values[node] = OPS[node.op].evaluate(arguments, node.attrs)
        yield node, values[node]
        for done in due.get(position, ()):
            values.pop(done, None)
