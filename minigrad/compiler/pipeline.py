"""The passes between a trace and a plan, in their order, for each device, and what is true between them.

A pass is a function from a graph to a graph that computes the same. It needs conditions that hold when it begins, and
ensures others, which hold from there on, until a pass spoils them. A condition is a function that yields the nodes that
break it. `check` looks at a graph after a pass; tests run every stage through it (tests/minigrad/test_pipeline.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from minigrad.compiler.epilogue import fuse_epilogues
from minigrad.compiler.fusion import fuse_elementwise
from minigrad.compiler.passes import (
    add_in_dropout,
    drop_aliases,
    drop_dead,
    fold_constants,
    fold_transposes,
    join_slices,
    own_gradients,
    share_equal,
)
from minigrad.compiler.projection import chunk_projection
from minigrad.compiler.rewrite import results
from minigrad.graph import Graph
from minigrad.node import Node
from minigrad.ops.registry import OPS, Meta

Condition = Callable[[Graph], Iterator[Node]]


class PassError(AssertionError):
    """A pass has left a graph that is not well formed, or that breaks what passes before it ensured."""


# --- conditions: each yields the nodes that break it -------------------------------------------------


def no_alias_is_left(graph: Graph) -> Iterator[Node]:
    """No op only hands on its input."""
    yield from _removed_by(drop_aliases, graph)


def nothing_stands_twice(graph: Graph) -> Iterator[Node]:
    """No two nodes compute the same of the same."""
    yield from _removed_by(share_equal, graph)


def all_is_needed(graph: Graph) -> Iterator[Node]:
    """Some result needs each node."""
    yield from _removed_by(drop_dead, graph)


def gradients_lie_apart(graph: Graph) -> Iterator[Node]:
    """Every gradient that is left has memory that nothing else has."""
    before = set(graph.nodes)
    yield from (edge[0] for edge in own_gradients(graph).gradients.values() if edge[0] not in before)


def _removed_by(run: Callable[[Graph], Graph], graph: Graph) -> Iterable[Node]:
    """What a pass that only removes would still remove, with what would read something else then."""
    after = run(graph)
    return () if len(after) == len(graph) else [node for node in graph.nodes if node not in set(after.nodes)]


# --- the pipelines -----------------------------------------------------------------------------------


class Pass(NamedTuple):
    """A pass with the conditions that it needs when it begins, ensures from there on, and spoils."""

    run: Callable[[Graph], Graph]
    needs: tuple[Condition, ...] = ()
    ensures: tuple[Condition, ...] = ()
    spoils: tuple[Condition, ...] = ()

    @property
    def name(self) -> str:
        return self.run.__name__


_SIMPLER = (
    Pass(drop_aliases, ensures=(no_alias_is_left,)),
    Pass(fold_constants),
    Pass(fold_transposes, needs=(no_alias_is_left,)),
    Pass(join_slices, needs=(no_alias_is_left,)),
    Pass(share_equal, ensures=(nothing_stands_twice,)),
    Pass(drop_dead, ensures=(all_is_needed,)),
    Pass(chunk_projection, needs=(no_alias_is_left, nothing_stands_twice, all_is_needed)),
    Pass(add_in_dropout, needs=(no_alias_is_left, all_is_needed)),
    Pass(own_gradients, needs=(all_is_needed,), ensures=(gradients_lie_apart,), spoils=(nothing_stands_twice,)),
    Pass(fuse_elementwise, needs=(gradients_lie_apart,)),
    Pass(drop_dead, ensures=(all_is_needed,)),
)
PIPELINES: dict[str, tuple[Pass, ...]] = {
    "cpu": _SIMPLER,
    "cuda": (*_SIMPLER, Pass(fuse_epilogues, needs=(all_is_needed,))),
}


def optimise(graph: Graph, device: str = "cpu") -> list[tuple[str, Graph]]:
    """The graph after each pass of a device's pipeline, by the pass's name; the first entry is the trace itself."""
    stages = [("trace", graph)]
    for step in PIPELINES[device]:
        stages.append((step.name, step.run(stages[-1][1])))
    return stages


def check(stages: Iterable[tuple[str, Graph]], device: str = "cpu") -> None:
    """Look at what `optimise` made: every stage is well formed, and keeps what the passes until there ensured.

    Raises PassError with the pass, the condition and a node that breaks it.
    """
    held: dict[Condition, None] = {}
    passes = iter(PIPELINES[device])
    for name, graph in stages:
        if name != "trace":
            step = next(passes)
            held = {one: None for one in (*held, *step.ensures) if one not in step.spoils}
        for fault in faults(graph):
            raise PassError(f"{name} leaves a graph that is not well formed: {fault}")
        for condition in held:
            for node in condition(graph):
                raise PassError(f"{name} breaks {condition.__name__}: {node!r}")


def faults(graph: Graph) -> Iterator[str]:
    """What is wrong with a graph as such: a node twice or read before it is computed, an output that is not there, and
    shapes and dtypes that the op's rule does not give."""
    known: set[Node] = set()
    for node in graph.nodes:
        if node in known:
            yield f"{node!r} stands there twice"
        for edge in node.inputs:
            if edge is not None and edge[0] not in known:
                yield f"{node!r} reads {edge[0]!r}, which is not computed before it"
            elif edge is not None and edge[1] >= len(edge[0].outputs):
                yield f"{node!r} reads output {edge[1]} of {edge[0]!r}, which has {len(edge[0].outputs)}"
        known.add(node)
        if node in graph.constants or node in graph.inputs or node.op not in OPS:
            continue
        if node.outputs != _by_rule(node):
            yield f"{node!r} has the outputs {node.outputs}, not those of its op's rule"
    for edge in results(graph):
        if edge[0] not in known:
            yield f"a result is {edge[0]!r}, which the graph does not compute"


def _by_rule(node: Node) -> tuple[Meta, ...]:
    """Shapes and dtypes of a node's outputs, as its op has them."""
    metas = [edge[0].outputs[edge[1]] for edge in node.inputs if edge is not None]
    op = OPS[node.op]
    if not op.view:
        return op.output_metas(metas, node.attrs)
    return tuple((view.shape, view.dtype) for view in op.evaluate([np.empty(*meta) for meta in metas], node.attrs))
