"""A tensor's history in words: what made it, what reads it, and how each path to the loss adds to its gradient."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from minigrad.autograd import fit, grad, vjp
from minigrad.gradmode import no_grad
from minigrad.node import Edge, Node, ancestors
from minigrad.ops.registry import OPS
from minigrad.study.step import Step, _value, variables, watching
from minigrad.tensor import Tensor, edge_of
from minigrad.viz.format import meta, short

MANY = 12  # paths that are still listed one by one


def history(tensor: Tensor, of: Tensor | None = None) -> str:
    """What `minigrad.study.explain` says about a tensor. Readers are those that are alive on the tape.

    `of` is the loss; without it, the one number that the tensor leads to. Nothing is freed, `.grad` stays.
    """
    names = variables()
    if tensor.node is None and not tensor.needs_grad:
        return f"{meta(tensor.array.shape, tensor.array.dtype)}: made without a history (it requires no gradient)"
    edge = edge_of(tensor)
    node = edge[0]
    users = readers()
    lines = [f"{_name(node, names)}: {meta(tensor.array.shape, tensor.array.dtype)}", *_made(node, names)]
    found = users.get(edge, [])
    lines.append(f"read by {len(found)} op{'s' * (len(found) != 1)} on the tape" + (":" if found else ""))
    for reader, slot in found:
        lines.append(f"  {_name(reader, names)} as {_slot(reader, slot)}, {reader.place}")
    root = edge_of(of) if of is not None else _root(edge, users)
    if root is None:
        return "\n".join([*lines, "gradient: it leads to no single number that is alive; pass of=loss"])
    if root == edge:
        return "\n".join([*lines, "gradient: it is the loss itself, so 1"])
    if edge not in {e for n in ancestors([root[0]], lambda n: n.edges) for e in n.edges}:
        return "\n".join([*lines, f"gradient: {_name(root[0], names)} does not depend on it"])
    try:
        return "\n".join([*lines, *_contributions(tensor, edge, root, of, names)])
    except RuntimeError as error:
        return "\n".join([*lines, f"gradient: {error}"])


def readers() -> dict[Edge, list[tuple[Node, int]]]:
    """For every edge of the tapes that are alive: the nodes that read it, and at which input.

    A node knows what it reads, never what reads it; so the living nodes are looked up where Python keeps them.
    """
    found: dict[Edge, list[tuple[Node, int]]] = {}
    for node in sorted((o for o in gc.get_objects() if type(o) is Node), key=lambda n: n.sequence):
        for slot, edge in enumerate(node.edges):
            if edge is not None:
                found.setdefault(edge, []).append((node, slot))
    return found


def _root(edge: Edge, users: Mapping[Edge, Sequence[tuple[Node, int]]]) -> Edge | None:
    """The one number that a value leads to and that nothing reads, if there is exactly one."""
    seen: set[Node] = set()
    stack = [edge[0]]
    ends: list[Node] = []
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        after = [user for i in range(len(node.outputs)) for user, _ in users.get((node, i), ())]
        stack.extend(after)
        if not after and np.prod(node.outputs[0][0], dtype=np.int64) == 1:
            ends.append(node)
    return (ends[0], 0) if len(ends) == 1 else None


def _made(node: Node, names: Mapping[Node, str]) -> list[str]:
    if node.op == "leaf":
        return ["made by the program, not by an op: a leaf, its gradient is kept in .grad"]
    attrs = ", ".join(f"{name}={short(value)}" for name, value in node.attrs.items())
    lines = [f"made by {node.op}{f'({attrs})' if attrs else ''}, {node.place}, from"]
    for slot, (edge, given) in enumerate(zip(node.edges, node.input_meta, strict=True)):
        source = "a value without a gradient" if edge is None else _name(edge[0], names)
        lines.append(f"  {_slot(node, slot)}: {source}, {meta(*given)}")
    return lines


def _slot(node: Node, slot: int) -> str:
    op = OPS[node.op]
    return op.inputs[slot] if slot < len(op.inputs) else f"{op.rest}[{slot - len(op.inputs)}]"


def _name(node: Node, names: Mapping[Node, str]) -> str:
    variable = node.name or names.get(node, "")
    if node.op == "leaf":
        return variable or "a leaf"
    return f"{variable} = {node.op}" if variable else node.op


def _contributions(tensor: Tensor, edge: Edge, root: Edge, of: Tensor | None, names: Mapping[Node, str]) -> list[str]:
    steps: list[Step] = []
    shape, dtype = root[0].outputs[root[1]]
    loss = of if of is not None else Tensor(np.ones(shape, dtype), None, root[0], root[1], True)
    seed = Tensor(np.ones(shape, dtype))
    with watching(steps.append):
        total = grad(loss, tensor, seed, retain_graph=True)
    lines = _value(f"gradient of {_name(root[0], names)}", total.array)
    lines = [line[2:] for line in lines]
    parts = [(step.node, c.value) for step in steps for c in step.contributions if c.edge == edge]
    for node, value in parts:
        lines += _value(f"through {_name(node, names)} ({node.place})", value)
    found = list(_paths(edge, root, MANY + 1))
    if len(found) > MANY:
        return [*lines, f"more than {MANY} paths lead there; the sums by reader are above"]
    if len(found) > len(parts) or any(len(path) > 2 for path, _ in found):
        lines.append(f"path by path ({len(found)}):")
        for path, value in found:
            lines += _value(" <- ".join(_name(node, names) for node in path), value)
    return lines


def _paths(edge: Edge, root: Edge, limit: int) -> Iterator[tuple[list[Node], np.ndarray]]:
    """Every path from the root down to `edge` and what it alone adds to the gradient (rules are linear in g)."""
    useful: set[Node] = set()
    for node in ancestors([root[0]], lambda n: n.edges):
        if edge in node.edges or any(e is not None and e[0] in useful for e in node.edges):
            useful.add(node)
    shape, dtype = root[0].outputs[root[1]]
    stack: list[tuple[list[Node], Edge, Tensor]] = [([], root, Tensor(np.ones(shape, dtype)))]
    with no_grad():
        while stack and limit:
            path, (node, index), gradient = stack.pop()
            slots: list[Tensor | None] = [None] * len(node.outputs)
            slots[index] = gradient
            for target, result in reversed(list(zip(node.edges, vjp(node, slots, False), strict=True))):
                if target is None or result is None:
                    continue
                fitted = fit(result, *target[0].outputs[target[1]])
                if target == edge:
                    limit -= 1
                    yield [*path, node, target[0]], fitted.array
                elif target[0] in useful:
                    stack.append(([*path, node], target, fitted))
