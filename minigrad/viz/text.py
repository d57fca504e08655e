"""A graph as a readable listing: one line a node, like a program."""

from __future__ import annotations

from collections.abc import Callable

from minigrad.graph import Edge, Graph, Node
from minigrad.viz.format import attribute, meta


def reference(names: dict[Node, str]) -> Callable[[Edge | None], str]:
    """How an edge is written: %3, or %3.1 for a second output."""

    def written(edge: Edge | None) -> str:
        if edge is None:
            return "_"
        node, index = edge
        return names[node] + (f".{index}" if index else "")

    return written


def listing(graph: Graph) -> str:
    """The program of `graph`: inputs, constants, one line an op with shape, module and source line, outputs."""
    names = graph.names()
    edge = reference(names)
    lines = ["graph(" + ", ".join(f"{names[node]}: {meta(*node.outputs[0])}" for node in graph.inputs) + "):"]
    rows: list[tuple[str, str]] = []
    for node in graph.nodes:
        if node in graph.inputs or node.op == "literal":
            continue
        if node in graph.constants:
            rows.append((f"{names[node]} = constant {meta(*node.outputs[0])}", node.path))
            continue
        arguments = [edge(e) for e in node.inputs] + [f"{k}={attribute(v)}" for k, v in node.attrs.items()]
        outputs = ", ".join(meta(*output) for output in node.outputs)
        notes = [node.path] if node.path else []
        if node.backward_of is not None and node.backward_of in names:
            notes.append(f"backward of {names[node.backward_of]}")
        if node.source is not None:
            notes.append(f"{node.source[0].rsplit('/', 1)[-1]}:{node.source[1]}")
        rows.append((f"{names[node]} = {node.op}({', '.join(arguments)}) -> {outputs}", ", ".join(notes)))
    width = min(max((len(left) for left, _ in rows), default=0), 80)
    lines += [f"    {left.ljust(width)}  # {right}" if right else f"    {left}" for left, right in rows]
    lines.append("    return " + ", ".join(edge(e) for e in graph.outputs))
    return "\n".join(lines)
