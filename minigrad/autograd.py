"""The backward driver: the order of nodes, accumulation, reduction over broadcast axes, the gradient's dtype.

Nodes are visited in reverse order of creation (a heap), which is a reverse topological order, because a node is
always made after what it reads. Rules compute with tensors; under `create_graph` what they do is recorded too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.decomposition import decompose
from minigrad.interpreter import Interpreter
from minigrad.node import Edge, Node, ancestors
from minigrad.ops.arguments import expect_tensors
from minigrad.ops.copies import clone, filled
from minigrad.ops.registry import OPS, Op
from minigrad.ops.shape import alias
from minigrad.state import silently, state
from minigrad.tensor import Tensor, edge_of

FREED: dict[int, Any] = {}  # what `saved` points to once a backward pass has released it


def backward(
    tensors: Tensor | Sequence[Tensor],
    gradients: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
) -> None:
    """Accumulate the gradients of ``sum(tensor * gradient)`` into `.grad` of every leaf.

    Raises RuntimeError for a tensor without a gradient, a non-scalar without `gradients`, a graph already freed, or
    a saved value that was changed in place.
    """
    backward_from([tensors] if isinstance(tensors, Tensor) else list(tensors), gradients, retain_graph, create_graph)


def backward_from(roots: list[Tensor], gradients: Any, retain_graph: bool | None, create_graph: bool) -> None:
    """`backward`, which has made sure that `roots` are tensors."""
    seeds = _seeds(roots, gradients)
    silently(_run, seeds, {}, True, create_graph if retain_graph is None else retain_graph, create_graph)


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    *,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> Any:
    """The gradients of ``sum(output * grad_output)`` with respect to `inputs`; `.grad` stays as it is.

    Returns a tensor for one input, a tuple for several; None for an unused input if `allow_unused`, else RuntimeError.
    """
    roots = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    single = isinstance(inputs, Tensor)
    targets = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    for target in targets:
        if not target.requires_grad:
            raise RuntimeError("grad() was asked for the gradient of a tensor that does not require one")
    edges = [edge_of(target) for target in targets]
    wanted: dict[Edge, Tensor | None] = dict.fromkeys(edges)
    retain_graph = create_graph if retain_graph is None else retain_graph
    silently(_run, _seeds(roots, grad_outputs), wanted, False, retain_graph, create_graph)
    results = []
    for position, edge in enumerate(edges):
        found = wanted[edge]
        if found is None and not allow_unused:
            raise RuntimeError(
                f"input {position} of grad() was not used to compute the outputs: pass allow_unused=True to get None"
            )
        results.append(found)
    return results[0] if single else tuple(results)


def propagate(
    seeds: Sequence[tuple[Edge, Tensor]],
    wanted: dict[Edge, Tensor | None],
    accumulate: bool,
    retain_graph: bool,
    create_graph: bool,
    watch: Any,
) -> None:
    """The backward pass: carry `seeds` back to the leaves' `.grad` (backward), or to the edges of `wanted` (grad)."""
    between = _leading_to({edge[0] for edge in wanted}, seeds) if wanted else None
    arrived: dict[Node, list[Tensor | None]] = {}  # by node: the sum of what has come to each of its outputs
    waiting: list[tuple[int, Node]] = []  # a heap: the node that was made last is visited first
    interpreter = state.interpreter  # asked for once: what belongs to a thread is slow to look up

    def receive(edge: Edge, gradient: Tensor) -> None:
        node, index = edge
        sums = arrived.get(node)
        if sums is None:
            if between is not None and node not in between:
                return
            sums = arrived[node] = [None] * len(node.outputs)
            heappush(waiting, (-node.sequence, node))
        shape, dtype = node.outputs[index]
        if gradient.array.shape != shape or gradient.array.dtype is not dtype:
            gradient = fit(gradient, shape, dtype)
        sums[index] = gradient if sums[index] is None else sums[index] + gradient

    for edge, seed in seeds:
        receive(edge, seed)
    while waiting:
        node = heappop(waiting)[1]
        sums = arrived.pop(node)
        if node.hooks is not None or node.grads is not None or wanted or not node.edges:
            _complete(node, sums, wanted, accumulate, interpreter)
        results: Sequence[Tensor | None] = ()
        if node.edges:
            state.backward_of = node
            results = vjp(node, sums, create_graph)
        if watch is not None:
            watch.visit(node, sums, results)
        for target, gradient in zip(node.edges, results, strict=True):
            if target is not None and gradient is not None:
                receive(target, gradient)
        if not retain_graph and node.saved and interpreter.may_free(node):
            node.saved = FREED


# --- beside the pass ------------------------------------------------------------------------------


def _run(
    seeds: Sequence[tuple[Edge, Tensor]],
    wanted: dict[Edge, Tensor | None],
    accumulate: bool,
    retain_graph: bool,
    create_graph: bool,
) -> None:
    """`propagate`, with what is in force during a backward pass: the gradient mode, and who watches."""
    before = state.grad_enabled, state.backward_of, state.backward_watch
    watch = before[-1]
    try:
        state.grad_enabled, state.backward_watch = create_graph, None  # a pass inside a rule is part of that rule
        if watch is not None:
            watch.begin(seeds)
        propagate(seeds, wanted, accumulate, retain_graph, create_graph, watch)
    finally:
        state.grad_enabled, state.backward_of, state.backward_watch = before


def _leading_to(targets: set[Node], seeds: Sequence[tuple[Edge, Tensor]]) -> set[Node]:
    """The nodes between the seeds and the targets."""
    useful: set[Node] = set()
    for node in ancestors((edge[0] for edge, _ in seeds), lambda node: node.edges):
        if node in targets or any(edge is not None and edge[0] in useful for edge in node.edges):
            useful.add(node)
    return useful


def _complete(
    node: Node,
    sums: list[Tensor | None],
    wanted: dict[Edge, Tensor | None],
    accumulate: bool,
    interpreter: Interpreter,
) -> None:
    """All contributions to this node's outputs are in: run hooks, then keep what is asked for."""
    for index, gradient in enumerate(sums):
        if gradient is None:
            continue
        for hook in () if node.hooks is None else node.hooks.get(index, ()):
            replaced = hook(gradient)
            if replaced is not None:
                if replaced.array.shape != gradient.array.shape:
                    raise RuntimeError(
                        f"a hook of {node.op} ({node.place}) returned a gradient of shape "
                        f"{list(replaced.array.shape)}, expected {list(gradient.array.shape)}"
                    )
                gradient = sums[index] = fit(replaced, *node.outputs[index])
        if wanted and (node, index) in wanted:
            wanted[node, index] = gradient
        if accumulate and (node.op == "leaf" or (node.grads is not None and index in node.grads)):
            interpreter.adds_gradient(node)
            node.grads = {} if node.grads is None else node.grads
            old = node.grads.get(index)
            if old is None:
                node.grads[index] = clone(gradient) if gradient.needs_grad else interpreter.own(gradient)
            elif interpreter.tracing or not _added(old, gradient):
                node.grads[index] = old + gradient


def _added(old: Tensor, gradient: Tensor) -> bool:
    """Add to an accumulated gradient in its own memory, where it is plain memory without a history."""
    total, more = old.array, gradient.array
    if (
        old.needs_grad
        or gradient.needs_grad
        or total.__class__ is not np.ndarray
        or more.__class__ is not np.ndarray
        or total.dtype is not more.dtype
        or dtypes.is_half(total.dtype)
        or not total.flags.writeable
    ):
        return False
    np.add(total, more, total)
    old.storage.version += 1
    return True


def fit(gradient: Tensor, shape: tuple[int, ...], dtype: np.dtype) -> Tensor:
    """Sum over the axes that were broadcast, and cast: a gradient has the shape and dtype of its tensor."""
    if gradient.array.shape != shape:
        extra = gradient.array.ndim - len(shape)
        dims = tuple(range(extra)) + tuple(
            i + extra for i, n in enumerate(shape) if n == 1 and gradient.array.shape[i + extra] != 1
        )
        gradient = gradient.sum(dims, keepdim=True).reshape(shape) if dims else gradient.reshape(shape)
    if gradient.array.dtype != dtype:
        gradient = gradient.to(dtype)
    return gradient


def _seeds(roots: Sequence[Tensor], gradients: Any) -> list[tuple[Edge, Tensor]]:
    given = list(gradients) if isinstance(gradients, (list, tuple)) else [gradients]
    if len(given) == 1 and given[0] is None:
        given = [None] * len(roots)
    if len(given) != len(roots):
        raise ValueError(f"{len(roots)} outputs need {len(roots)} gradients, got {len(given)}")
    seeds = []
    for root, seed in zip(roots, given, strict=True):
        if not root.requires_grad:
            raise RuntimeError(
                "this tensor has no gradient to compute: nothing it was made from requires one "
                "(set requires_grad, or check for no_grad() and detach())"
            )
        if seed is None:
            if root.array.size != 1:
                raise RuntimeError(
                    f"backward() without a gradient needs a scalar, this tensor has shape {list(root.array.shape)}: "
                    "sum it, or pass a gradient of that shape"
                )
            seed = filled(root.array.shape, 1, root.array.dtype, root.storage.device)
        elif not isinstance(seed, Tensor):
            raise TypeError(
                f"the gradient that backward begins with must be a tensor, or None for a scalar, got "
                f"{type(seed).__name__}: make it one with mg.tensor(...)"
            )
        elif seed.array.shape != root.array.shape:
            raise ValueError(
                f"the gradient has shape {list(seed.array.shape)}, its tensor {list(root.array.shape)}: they must agree"
            )
        seeds.append((edge_of(root), seed))
    return seeds


def vjp(node: Node, gradients: Sequence[Tensor | None], create_graph: bool) -> Sequence[Tensor | None]:
    """The gradients of a node's inputs (None where none is wanted), given those of its outputs."""
    op = OPS[node.op]
    if node.saved is FREED:
        raise RuntimeError(
            f"the values saved by {node.op} ({node.place}) were freed by an earlier backward pass: "
            "pass retain_graph=True to the first one to go through the graph twice"
        )
    if op.joint is None and not op.rules:
        return _through_decomposition(op, node, gradients, create_graph)
    if gradients[0] is None:  # only a later output was used
        shape, dtype = node.outputs[0]
        device = next(gradient.storage.device for gradient in gradients if gradient is not None)
        gradients = [filled(shape, 0, dtype, device), *gradients[1:]]
    if op.joint is not None:
        results = op.joint(*[_READ[kind](what, node, gradients) for kind, what in op.slots[0]])
        return results if isinstance(results, tuple | list) else (results,)
    found: list[Tensor | None] = []
    for rule, slots, edge in zip(op.rules, op.slots, node.edges, strict=True):
        if edge is None or rule is None:
            found.append(None)
        else:
            found.append(rule(*[_READ[kind](what, node, gradients) for kind, what in slots]))
    return found


def saved(node: Node, which: int) -> Tensor:
    """Input `which` (or output `~which`) as it was saved, with its history. Raises RuntimeError if it changed since."""
    assert node.saved is not None
    array, storage, version = node.saved[which]
    if storage.version != version:
        name = f"input {which}" if which >= 0 else "the output"
        raise RuntimeError(
            f"{name} of {node.op} ({node.place}), a {dtypes.name(array.dtype)}{list(array.shape)}, was changed in "
            f"place after it was saved for the backward pass (version {version}, now {storage.version}): "
            "change a clone() of it instead"
        )
    if which < 0:
        edge = None if ~which >= len(node.outputs) - OPS[node.op].aux else (node, ~which)
    else:
        edge = node.edges[which]
    result = Tensor(array, storage) if edge is None else Tensor(array, storage, edge[0], edge[1], True)
    state.interpreter.taken_from_the_tape(result, node, which)
    return result


# What a rule's parameter of a kind stands for: see `minigrad.ops.registry`.
_READ: dict[str, Callable[[Any, Node, Sequence[Tensor | None]], Any]] = {
    "grad": lambda which, node, gradients: gradients[which],
    "saved": lambda which, node, gradients: saved(node, which),
    "shape": lambda which, node, gradients: node.input_meta[which][0],
    "shapes": lambda _, node, gradients: tuple([shape for shape, _ in node.input_meta]),
    "attr": lambda name, node, gradients: node.attrs[name],
    "attrs": lambda _, node, gradients: node.attrs,
    "needs": lambda _, node, gradients: tuple([edge is not None for edge in node.edges]),
    "rest": lambda _, node, gradients: [saved(node, i) for i in range(len(OPS[node.op].inputs), len(node.edges))],
}


def _from_inputs_alone(op: Op, results: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    """Raise RuntimeError if a decomposition used an outside tensor that requires a gradient: it would get none."""
    known = {tensor.node for tensor in inputs}
    roots = [result.node for result in results if result.node is not None]
    for node in ancestors(roots, lambda node: () if node in known else node.edges):
        if not node.edges and node not in known:
            raise RuntimeError(
                f"composite {op.name} uses a tensor that requires a gradient and is not among its arguments "
                f"({node.op}, {dtypes.name(node.outputs[0][1])}{list(node.outputs[0][0])}): pass it as an argument"
            )


def _through_decomposition(
    op: Op, node: Node, gradients: Sequence[Tensor | None], create_graph: bool
) -> Sequence[Tensor | None]:
    """A composite's derivative from its decomposition, run again on aliases of the saved inputs."""
    needs = [edge is not None for edge in node.edges]
    before = state.grad_enabled
    state.grad_enabled = True
    try:
        inputs = []
        for i, need in enumerate(needs):
            tensor = saved(node, i)
            if need and create_graph:
                tensor = alias(tensor)
            elif need:
                tensor = tensor.detach().requires_grad_()
            inputs.append(tensor)
        results = decompose(op, inputs, node.attrs)
    finally:
        state.grad_enabled = before
    _from_inputs_alone(op, results, inputs)
    pairs = [(r, g) for r, g in zip(results, gradients, strict=False) if g is not None and r.needs_grad]
    targets = [tensor for tensor, need in zip(inputs, needs, strict=True) if need]
    if not pairs:
        return [None] * len(needs)
    found = iter(
        grad([r for r, _ in pairs], targets, [g for _, g in pairs], create_graph=create_graph, allow_unused=True)
    )
    return [next(found) if need else None for need in needs]


expect_tensors(globals())
