"""What a function is made of, where it is no op itself: `composed("mean")` traces it on an example."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import minigrad as mg
from minigrad import functional
from minigrad.graph import Graph
from minigrad.ops.registry import OPS
from minigrad.tensor import Tensor


def composed(name: str) -> list[str]:
    """The function in words: signature, what it says, the ops it is made of, and the program that an example leaves.

    Empty where minigrad has no such function, or one that leaves no program (such as `numpy` or `zeros`).
    """
    function = next(
        (found for place in (mg, functional, Tensor) if callable(found := getattr(place, name, None))), None
    )
    if name.startswith("_") or name.endswith("_") or function is None or inspect.isclass(function):
        return []
    graph = _traced(function)
    if graph is None:
        return []
    ops = _ops(graph)
    return [
        f"{name}{_signature(function)}",
        "",
        *(inspect.getdoc(function) or "").split("\n\n")[0].splitlines(),
        "",
        "made of",
        f"  {', '.join(ops)}",
        "",
        "example",
        *(f"  {line.partition('  # ')[0].rstrip()}" for line in str(graph).splitlines()),  # no source lines
        "",
        f"`minigrad explain {ops[0]}` takes an op apart.",
    ]


def _signature(function: Callable[..., Any]) -> str:
    try:
        return str(inspect.signature(function)).replace("'", "")
    except (TypeError, ValueError):
        return "(...)"


def _traced(function: Callable[..., Any]) -> Graph | None:
    """The program of the first example that the function takes."""
    for tensors, others in _examples():
        try:
            graph = mg.trace(lambda *given, others=others: function(*given, *others))(*tensors)
        except Exception:  # it takes other arguments; there is a next example
            continue
        if _ops(graph):
            return graph
    return None


def _ops(graph: Graph) -> list[str]:
    """The ops of a program, each once; inputs and numbers are none."""
    return list(dict.fromkeys(node.op for node in graph.nodes if node.op in OPS))


def _examples() -> Iterator[tuple[list[Tensor], list[Any]]]:
    """Arguments as functions take them: one tensor; queries, keys and values; input, weight and bias; two; dims."""
    random = np.random.default_rng(0)

    def numbers(*shape: int) -> Tensor:
        return mg.tensor(random.standard_normal(shape).astype("float32"))

    x = numbers(2, 3)
    yield [x], []
    yield [numbers(1, 2, 3, 4), numbers(1, 2, 5, 4), numbers(1, 2, 5, 4)], []
    yield [x, numbers(4, 3), numbers(4)], []
    yield [x, numbers(2, 3)], []
    yield [x, mg.tensor(np.array([[True, False, True], [False, False, True]]))], [0.0]
    yield [x, mg.tensor(np.array([0, 2]))], []
    yield [x], [0, 1]
    yield [x], [1]
    yield [x], [(2, 3)]
    yield [numbers(2, 3), numbers(3, 4)], []
    yield [numbers(3), numbers(3)], []
    yield [numbers(2, 2, 3), numbers(2, 3, 4)], []
