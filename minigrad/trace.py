"""Tracing: run a function on abstract tensors and keep what it did as a `Graph`.

Nothing is computed: shapes and dtypes flow, every op is recorded, backward passes and in-place changes included. What
the function reads without being given it (parameters, masks) becomes a constant of the graph; what it changes of the
outside becomes a mutation, and the outside itself is left as it was.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigrad import dispatch
from minigrad.graph import PACKAGE, Edge, Graph, Node, Visit, state
from minigrad.ops.registry import Meta
from minigrad.tensor import LITERAL, Storage, Tensor


class Recorder:
    """What a trace has seen so far."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.known: set[Node] = set()
        self.constants: dict[Node, np.ndarray] = {}
        self.captured: list[Tensor] = []  # the tensors behind the constants
        self.current: dict[int, tuple[Tensor, Edge]] = {}  # by id: the edge that is a tensor's value now
        self.changed: dict[int, tuple[Tensor, Storage, Any]] = {}  # outside tensors changed in place, as they were
        self.detached: set[int] = set()  # by id: tensors that share memory with their base, but no history
        self.visits: list[Visit] = []
        self.generators: dict[Any, str] = {}  # random generators that the trace draws from: on which device
        self.leaves: dict[Node, dict[int, Tensor | None] | None] = {}  # gradients before the trace
        self.own: set[Node] = set()  # leaves that the function makes of what it computes
        self.forgotten: dict[int, Tensor] = {}  # by id: leaves without a node, told to have no gradient
        self.before: dict[Node, Tensor | None] = {}  # those of them that the function looks at: what stands for them
        self.loose: set[int] = set()  # by id: storages whose elements an eager call may lay out otherwise
        self.related: dict[int, set[int]] = {}  # storages that may be one there: of a tensor and of its reshapes
        self.doubtful: set[int] = set()  # those of them of which another was changed
        self.by_layout = False  # does what the function reads depend on that?

    def add(self, node: Node, results: Sequence[Tensor]) -> None:
        """A new node and the tensors that are its outputs."""
        self.nodes.append(node)
        self.known.add(node)
        for index, result in enumerate(results):
            self.rebind(result, (node, index))

    def rebind(self, tensor: Tensor, edge: Edge) -> None:
        """From now on `tensor` is the value of `edge`."""
        self.current[id(tensor)] = (tensor, edge)

    def change(self, tensor: Tensor, result: Tensor) -> None:
        """`tensor` is about to be changed in place to `result`. One from outside has no values from now on."""
        if not tensor.storage.abstract:
            before = (tensor.storage.version, tensor.node, tensor.index, tensor.needs_grad)
            self.changed[id(tensor)] = (tensor, tensor.storage, before)
        edge = self.edge(result)
        self.doubtful |= self.related.get(id(tensor.storage), set()) - {id(tensor.storage)}
        tensor.storage.abstract = True
        self.rebind(tensor, edge)

    def detach(self, tensor: Tensor) -> None:
        self.detached.add(id(tensor))

    def is_detached(self, tensor: Tensor) -> bool:
        return id(tensor) in self.detached

    def loosen(self, tensor: Tensor) -> None:
        """An eager call may lay out the elements of `tensor` otherwise than row by row."""
        self.loose.add(id(tensor.storage))

    def is_loose(self, tensor: Tensor) -> bool:
        return id(tensor.storage) in self.loose

    def relate(self, tensor: Tensor, result: Tensor) -> None:
        """`result` is a view of `tensor` or a copy: that depends on how an eager call lays out its elements."""
        self.loosen(result)
        both = {id(tensor.storage), id(result.storage)}
        both |= self.related.get(id(tensor.storage), both)
        self.related.update(dict.fromkeys(both, both))

    def restore(self) -> None:
        """Leave the outside as it was."""
        for tensor, storage, before in self.changed.values():
            storage.abstract = False
            storage.version, tensor.node, tensor.index, tensor.needs_grad = before
        for node, grads in self.leaves.items():
            node.grads = grads

    def edge(self, tensor: Tensor) -> Edge:
        """The node and output that is `tensor`'s value now; a tensor from outside becomes a constant."""
        if tensor.base is not None and tensor.seen != tensor.storage.version:
            dispatch.refresh(tensor)
        self.by_layout = self.by_layout or id(tensor.storage) in self.doubtful
        found = self.current.get(id(tensor))
        before = found is not None and found[1][0] in self.constants  # as it was when the trace read it first
        if found is not None and not (before and tensor.storage.abstract):
            return found[1]
        if found is None and tensor.node is not None and tensor.node in self.known:
            return tensor.node, tensor.index
        if tensor.storage.abstract:
            raise RuntimeError(
                "a tensor without values was used in a trace: it was left over from an earlier trace, or it shares "
                "memory with a tensor that this trace changed in place"
            )
        if tensor.storage is LITERAL:
            node = Node("literal", {"value": tensor.array.item()}, (), ((tensor.array.shape, tensor.array.dtype),))
            self.add(node, [tensor])
            return node, 0
        if tensor.needs_grad and tensor.is_leaf:
            node = dispatch.edge_of(tensor)[0]
            if self.forgot(tensor):
                self.touch(node)
        else:
            node = Node("constant", {}, (), ((tensor.array.shape, tensor.array.dtype),))
        if not node.name:
            node.name = _name_of(tensor)
        self.add(node, [tensor])
        self.constants[node] = tensor.array
        self.captured.append(tensor)
        return node, 0

    def begin(self, seeds: Sequence[tuple[Edge, Tensor]]) -> None:
        """A backward pass starts."""

    def visit(self, node: Node, arrived: Sequence[Tensor | None], results: Sequence[Tensor | None]) -> None:
        """A backward pass has applied the derivative of `node`."""
        left = []
        for target, result in zip(node.edges, results, strict=False):
            edge = self._known(result)
            if target is not None and edge is not None:
                left.append((target, edge))
        self.visits.append(Visit(node, tuple(map(self._known, arrived)), tuple(left)))

    def _known(self, tensor: Tensor | None) -> Edge | None:
        found = self.current.get(id(tensor))
        return found[1] if found is not None and found[0] is tensor else None

    def leaf(self, tensor: Tensor) -> None:
        """`tensor` was given its node. Nothing outside knows it if the trace made the tensor (`x.detach()`, say)."""
        made = self._known(tensor)
        if made is not None and made[0] not in self.constants and id(tensor) not in self.changed:
            assert tensor.node is not None
            self.own.add(tensor.node)

    def touch(self, node: Node) -> None:
        """A leaf's gradient is about to change: remember what it was."""
        if node not in self.leaves:
            self.leaves[node] = None if node.grads is None else dict(node.grads)

    def forget(self, tensor: Tensor) -> None:
        """A leaf that has no node yet, and so no gradient, is told to have none: what it had before does not matter."""
        self.forgotten[id(tensor)] = tensor

    def forgot(self, tensor: Tensor) -> bool:
        return id(tensor) in self.forgotten

    def look(self, node: Node) -> None:
        """A leaf's gradient is about to be read. For one from before the trace stands a copy: at the next call the leaf
        may have another one, in other memory, or none."""
        if node in self.leaves:
            return
        self.touch(node)
        if node in self.own or (node in self.known and node not in self.constants):  # made by this trace
            return
        gradient = None if node.grads is None else node.grads.get(0)
        if gradient is not None:
            gradient = Tensor(gradient.array.copy(), Storage(gradient.storage.device))
            node.grads = {0: gradient}
        self.before[node] = gradient

    def left(self) -> dict[Node, Tensor | None]:
        """The gradients of leaves now, of those that are not as they were before the trace."""
        now = {node: None if node.grads is None else node.grads.get(0) for node in self.leaves}
        return {
            node: gradient
            for node, gradient in now.items()
            if node not in self.before or gradient is not self.before[node] or id(gradient) in self.changed
        }


def metas_of(function: Callable[..., Any], metas: Sequence[Meta]) -> list[Meta]:
    """Shapes and dtypes of what `function` returns for tensors of `metas`, found without computing."""
    recorder = Recorder()
    tensors = [Tensor(np.empty(*meta), Storage(abstract=True)) for meta in metas]
    for tensor in tensors:
        recorder.add(Node("input", {}, (), ((tensor.array.shape, tensor.array.dtype),)), [tensor])
    before = state.recorder, state.grad_enabled
    state.recorder, state.grad_enabled = recorder, False
    try:
        outputs, _ = flatten(function(*tensors))
        return [(output.array.shape, output.array.dtype) for output in outputs]
    finally:
        state.recorder, state.grad_enabled = before
        recorder.restore()


def _name_of(tensor: Tensor) -> str:
    """What the running program calls a tensor from outside: the path of the module that holds it and its attribute
    there ("layers.0.attn.q_proj.weight"), the state of an optimizer ("head.weight.exp_avg"), or the variable of a
    function that is being traced. "" if nothing does."""
    from minigrad.nn import Module
    from minigrad.optim import Optimizer

    scope = state.scope
    frame = sys._getframe(1)
    while frame is not None and not (frame.f_code.co_name == "traced" and frame.f_code.co_filename == __file__):
        holder = frame.f_locals.get("self")
        if frame.f_code is Module.__call__.__code__:
            scope = scope[:-1]
        elif isinstance(holder, Module):
            path = [name for name, _ in scope if name]
            for name, value in vars(holder).items():
                if _holds(value, tensor):
                    return ".".join([*path, name])
        elif isinstance(holder, Optimizer):
            for parameter, held in holder.state.items():
                for name, value in held.items():
                    if value is tensor:
                        return f"{dispatch.edge_of(parameter)[0].name or 'parameter'}.{name}"
        if not frame.f_code.co_filename.startswith(PACKAGE):
            used = {name: frame.f_globals.get(name) for name in frame.f_code.co_names}
            for name, value in [*frame.f_locals.items(), *used.items()]:
                if value is tensor:
                    return name
        frame = frame.f_back  # type: ignore[assignment]
    return ""


def _holds(value: Any, tensor: Tensor) -> bool:
    """Is it the tensor, or something with the tensor in its table (positional codes that are kept for each dtype)?"""
    from minigrad.nn import Module

    if value is tensor:
        return True
    if isinstance(value, Tensor | Module | type) or not hasattr(value, "__dict__"):
        return False
    tables = [inner for inner in vars(value).values() if isinstance(inner, dict)]
    return any(entry is tensor for table in tables for entry in table.values())


def _argument_names(function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> list[str]:
    """A name for every tensor among the arguments: the parameter's, with the position in it where it holds several."""
    try:
        bound = inspect.signature(getattr(function, "forward", function)).bind_partial(*arguments)
        given = list(bound.arguments.items())
    except (TypeError, ValueError):  # no signature, or arguments that do not fit: the call itself will say so
        given = [(f"x{i}", argument) for i, argument in enumerate(arguments)]
    return [name for called, value in [*given, *keywords.items()] for name in _numbered(called, value)]


def _numbered(name: str, value: Any) -> list[str]:
    count = len(flatten(value)[0])
    return [name] if count == 1 else [f"{name}.{i}" for i in range(count)]


def flatten(value: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """The tensors of nested tuples, lists and dicts in order, and how to build the nest again."""
    if isinstance(value, Tensor):
        return [value], lambda flat: flat[0]
    if isinstance(value, tuple | list | dict):
        items = list(value.values()) if isinstance(value, dict) else list(value)
        parts = [flatten(item) for item in items]
        sizes = [len(leaves) for leaves, _ in parts]

        def rebuild(flat: list[Any]) -> Any:
            built, start = [], 0
            for size, (_, build) in zip(sizes, parts, strict=True):
                built.append(build(flat[start : start + size]))
                start += size
            if isinstance(value, dict):
                return dict(zip(value, built, strict=True))
            return type(value)(*built) if hasattr(value, "_fields") else type(value)(built)  # a named tuple has _fields

        return [leaf for leaves, _ in parts for leaf in leaves], rebuild
    return [], lambda flat: value


def trace(function: Callable[..., Any]) -> Callable[..., Graph]:
    """`trace(fn)(*inputs)`: the Graph of `fn` for inputs of these shapes and dtypes.

    Tensors among the arguments (also inside tuples, lists and dicts) become the graph's inputs; other arguments are
    constants of the program. Raises TypeError for what is no function, RuntimeError where the function looks at values
    (`.item()`, `if tensor:`).
    """
    if not callable(function):
        raise TypeError(f"trace: a function is expected, got {type(function).__name__}")

    def traced(*arguments: Any, **keywords: Any) -> Graph:
        given, rebuild = flatten((arguments, keywords))
        names = _argument_names(function, arguments, keywords)
        recorder = Recorder()
        inputs: list[Node] = []
        stand_ins: list[Tensor] = []
        before = state.recorder
        if before is not None:
            raise RuntimeError("trace() was called while another trace is being recorded")
        for position, tensor in enumerate(given):
            meta = (tensor.array.shape, tensor.array.dtype)
            op = "leaf" if tensor.needs_grad else "input"
            node = Node(op, {}, (), (meta,))
            node.name = names[position]
            storage = Storage(tensor.storage.device, abstract=True)
            stand_in = Tensor(np.empty(*meta), storage, node, 0, tensor.needs_grad)
            if not tensor.is_contiguous():
                recorder.loosen(stand_in)
            recorder.add(node, [stand_in])
            inputs.append(node)
            stand_ins.append(stand_in)
        state.recorder = recorder
        watch, state.backward_watch = state.backward_watch, recorder
        try:
            new_arguments, new_keywords = rebuild(stand_ins)
            result = function(*new_arguments, **new_keywords)
            outputs, structure = flatten(result)
            edges = [recorder.edge(output) for output in outputs]
            left = recorder.left()
            gradients = {node: recorder.edge(gradient) for node, gradient in left.items() if gradient is not None}
            changed = [(i, recorder.edge(tensor)) for i, tensor in enumerate(stand_ins) if tensor.storage.version]
            mutations = [(tensor, recorder.edge(tensor)) for tensor, _, _ in recorder.changed.values()]
            given_doubtful = any(id(tensor.storage) in recorder.doubtful for tensor in stand_ins)
        finally:
            state.recorder, state.backward_watch = before, watch
            recorder.restore()
        made = Graph(recorder.nodes, inputs, edges, recorder.constants, mutations, gradients, structure)
        made.changed, made.before = changed, recorder.before
        made.by_layout = recorder.by_layout or given_doubtful
        made.cleared = [node for node, gradient in left.items() if gradient is None]
        made.visits, made.captured, made.generators = recorder.visits, recorder.captured, recorder.generators
        return made

    return traced
