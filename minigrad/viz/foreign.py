"""Graphs of torch modules, recorded on torch itself: every op that reaches its dispatcher, forward and backward, comes
to the interpreter `Foreign`, as every op of ours comes to the interpreter in force (`minigrad.interpreter`).

    graph = record(model, torch.randn(2, 3), backward=True)      # needs torch

The ops keep torch's names ("addmm"): the graph can be drawn, listed and searched, not run here. Module scopes come from
hooks on every module call. A backward op belongs to the forward op with the same autograd sequence number.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from types import CodeType
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten
from torch.utils.flop_counter import flop_registry

from minigrad import dtypes
from minigrad.graph import Graph
from minigrad.interpreter import Interpreter
from minigrad.node import Edge, Node
from minigrad.state import Scope
from minigrad.viz.format import LONG

_DTYPES = {str(getattr(torch, name)): name for name in LONG.values() if hasattr(torch, name)}
_PLACEMENT = ("device", "layout", "pin_memory")  # arguments that say where, not what
_DRAWS = (torch.ops.aten.normal_.default, torch.ops.aten.uniform_.default)  # what initialises parameters
_PERIOD = 1 << 16
_INTERNAL = ("torch", "minigrad")  # packages whose frames are nobody's program
Key = tuple[Any, ...]


def record(module: Callable[..., Any], *inputs: Any, backward: bool = False) -> Graph:
    """The graph of ``module(*inputs)``, run once with gradients enabled; with `backward` also of the derivative of the
    sum of its floating-point outputs. Parameters' `.grad` are left as they were.

    inputs: tensors, or nested tuples, lists and dicts of them. Raises what the module raises; ValueError where there is
    nothing to differentiate.
    """
    recorder = Foreign()
    if isinstance(module, torch.nn.Module):
        recorder.learn(module)
    leaves = [leaf for leaf in tree_flatten(inputs)[0] if isinstance(leaf, torch.Tensor)]
    for position, (leaf, name) in enumerate(zip(leaves, _names(module, inputs), strict=True)):
        recorder.source("input", leaf, name or f"x{position}")
    hooks = [
        torch.nn.modules.module.register_module_forward_pre_hook(recorder.enter),
        torch.nn.modules.module.register_module_forward_hook(recorder.leave, always_call=True),
    ]
    try:
        with torch.enable_grad(), _Interpreted(recorder):
            result = module(*inputs)
        outputs = [leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, torch.Tensor)]
        gradients = _differentiate(recorder, outputs) if backward else {}
    finally:
        for hook in hooks:
            hook.remove()
    edges = [recorder.edge(output) for output in outputs]
    graph = Graph(
        recorder.nodes,
        recorder.inputs,
        edges,
        {node: np.empty(0) for node in recorder.sources if node not in recorder.inputs},
        gradients={leaf: recorder.edge(gradient) for leaf, gradient in gradients.items()},
    )
    graph.library = "torch.nn"
    return graph


class _Mode(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports its compiler, which takes a second, to keep it off this class


class QuickDraws(_Mode):
    """Inside, large tensors are initialised with random numbers that repeat after 65,536 of them. A model that is only
    drawn does not show them, and to draw the 124 million of a small GPT-2 takes longer than all else."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function not in _DRAWS or args[0].numel() <= _PERIOD or not args[0].is_contiguous():
            return function(*args, **kwargs)
        numbers = args[0].view(-1)
        drawn = function(numbers[:_PERIOD], *args[1:], **kwargs)
        for part in numbers[_PERIOD:].split(_PERIOD):
            part.copy_(drawn[: len(part)])
        return args[0]


def _names(module: Any, inputs: tuple[Any, ...]) -> list[str]:
    try:
        parameters = list(inspect.signature(getattr(module, "forward", module)).parameters)
    except (TypeError, ValueError):
        parameters = []
    names = []
    for position, value in enumerate(inputs):
        count = sum(isinstance(leaf, torch.Tensor) for leaf in tree_flatten(value)[0])
        name = parameters[position] if position < len(parameters) else f"x{position}"
        names += [name] if count == 1 else [f"{name}.{i}" for i in range(count)]
    return names


def _differentiate(recorder: Foreign, outputs: list[torch.Tensor]) -> dict[Node, torch.Tensor]:
    """Run the backward pass from the sum of the outputs; the gradients of the parameters that it reaches."""
    roots = [output for output in outputs if output.requires_grad]
    if not roots:
        raise ValueError("there is nothing to differentiate: no output requires a gradient")
    parameters = [(node, tensor) for node, tensor in recorder.held.items() if tensor.requires_grad and tensor.is_leaf]
    seeds = [torch.ones_like(root) for root in roots]
    with _Interpreted(recorder):
        found = torch.autograd.grad(roots, [tensor for _, tensor in parameters], seeds, allow_unused=True)
    return {node: gradient for (node, _), gradient in zip(parameters, found, strict=True) if gradient is not None}


class _Interpreted(_Mode):
    """Inside, an interpreter says what becomes of torch's ops."""

    def __init__(self, interpreter: Interpreter) -> None:
        super().__init__()
        self.interpreter = interpreter

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.interpreter.apply(function, args, kwargs or {})


class Foreign(Interpreter):
    """Lets torch compute its ops and records them: what has been seen so far. A tensor is known by the memory that it
    shows: autograd hands saved tensors back as new objects over the same memory."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.inputs: list[Node] = []
        self.sources: list[Node] = []
        self.held: dict[Node, torch.Tensor] = {}
        self.alive: list[torch.Tensor] = []  # memory must not be used again while its address is a key
        self.current: dict[Key, Edge] = {}
        self.over: dict[Any, dict[Key, None]] = {}  # memory -> the keys of the tensors that show it
        self.paths: dict[int, str] = {}
        self.tensors: dict[int, str] = {}
        self.stack: list[tuple[str, Scope]] = []
        self.by_sequence: dict[int, Node] = {}

    def learn(self, module: torch.nn.Module) -> None:
        """Learn the paths of all modules and the names of all parameters and buffers."""
        self.paths = {id(inner): path for path, inner in module.named_modules()}
        self.tensors = {id(tensor): name for name, tensor in [*module.named_buffers(), *module.named_parameters()]}

    # --- module scopes

    def enter(self, module: torch.nn.Module, arguments: Any) -> None:
        outer, scope = self.stack[-1] if self.stack else ("", ())
        path = self.paths.get(id(module), "")
        name = path.removeprefix(outer + ".") if outer else path
        self.stack.append((path, (*scope, (name, type(module).__name__))))

    def leave(self, module: torch.nn.Module, arguments: Any, result: Any) -> None:
        if self.stack:
            self.stack.pop()

    # --- values

    @staticmethod
    def key(tensor: torch.Tensor) -> Key:
        if tensor.layout != torch.strided:
            return (id(tensor),)
        return (tensor.untyped_storage()._cdata, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())

    def edge(self, tensor: torch.Tensor) -> Edge:
        found = self.current.get(self.key(tensor))
        if found is not None:
            return found
        name = self.tensors.get(id(tensor), "")
        op = "leaf" if isinstance(tensor, torch.nn.Parameter) else "constant"
        return self.source(op, tensor, name), 0

    def source(self, op: str, tensor: torch.Tensor, name: str) -> Node:
        node = self.node(op, {}, (), [tensor])
        node.name = name
        self.sources.append(node)
        self.held[node] = tensor
        if op == "input":
            self.inputs.append(node)
        return node

    def node(
        self, op: str, attrs: dict[str, Any], inputs: tuple[Edge | None, ...], results: list[torch.Tensor]
    ) -> Node:
        node = Node(op, attrs, inputs, tuple(_meta(result) for result in results), where=_where())
        node.scope = self.stack[-1][1] if self.stack else ()
        self.nodes.append(node)
        for index, result in enumerate(results):
            self.bind(result, (node, index))
        return node

    def bind(self, tensor: torch.Tensor, edge: Edge) -> None:
        """`tensor` is the value of `edge` from now on."""
        key = self.key(tensor)
        self.current[key] = edge
        self.over.setdefault(key[0], {})[key] = None
        self.alive.append(tensor)

    def write(self, target: Any, value: Any, root: Any, whole: Any) -> None:
        """What shows some of the memory of `target` has the value of `whole` from now on."""
        key = self.key(target)
        for other in self.over[key[0]]:
            if _overlap(key, other):
                self.current[other] = self.edge(whole)

    # --- ops

    def apply(self, op: Any, tensors: Any, attrs: Mapping[str, Any]) -> Any:
        """What `op`, a function of torch's dispatcher, gives for its arguments, by position and by name."""
        sequence = torch._C._autograd._get_sequence_nr() - 1
        derivative = torch._C._current_autograd_node()
        result = op(*tensors, **attrs)
        results = [leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, torch.Tensor)]
        given = [leaf for leaf in tree_flatten((tensors, attrs))[0] if isinstance(leaf, torch.Tensor)]
        name = op.overloadpacket.__name__ if hasattr(op, "overloadpacket") else str(op)
        if name in ("detach", "alias") and given and results:  # the same value under another name
            self.bind(results[0], self.edge(given[0]))
            return result
        if results:
            inputs = tuple(self.edge(tensor) for tensor in given)
            node = self.node(name, _attributes(op, tensors, attrs, result), inputs, results)
            for tensor in _changed(op, tensors, attrs):
                self.write(tensor, results[0], tensor, results[0])
            if derivative is None:
                self.by_sequence.setdefault(sequence, node)
            else:
                node.backward_of = self.origin(derivative._sequence_nr())
                node.scope = ()
        return result

    def origin(self, sequence: int) -> Node | None:
        """The forward op of an autograd node. A change in place of a view makes several, and is known by the first."""
        near = (self.by_sequence.get(number) for number in range(sequence, sequence - 6, -1))
        return next((node for node in near if node is not None), None)


def _overlap(first: Key, second: Key) -> bool:
    """Do the stretches of one memory meet in which two tensors lie, even if they share no element (as two columns of a
    matrix)? Keys say where: memory, offset, shape, strides."""

    def span(key: Key) -> tuple[int, int]:
        _, offset, shape, strides = key
        return offset, offset + 1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))

    if len(first) == 1 or 0 in (*first[2], *second[2]):
        return first == second
    (start, end), (other, last) = span(first), span(second)
    return start < last and other < end


def _changed(function: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The tensors that an op changes in place, by its schema."""
    schema = getattr(function, "_schema", None)
    found = []
    for position, argument in enumerate(schema.arguments if schema is not None else ()):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            found += [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]
    return found


def _meta(tensor: torch.Tensor) -> tuple[tuple[int, ...], np.dtype]:
    name = _DTYPES.get(str(tensor.dtype))
    if name is None:  # complex, quantised, ...: numpy's nearest by size
        dtype = np.dtype(f"V{tensor.element_size()}") if not tensor.is_complex() else np.dtype(np.complex64)
    else:
        dtype = np.dtype(getattr(dtypes, "bool_" if name == "bool" else name, name))
    return tuple(tensor.shape), dtype


def _attributes(function: Any, args: Any, kwargs: Any, result: Any) -> dict[str, Any]:
    """Arguments that are no tensors and differ from the op's defaults, and the FLOPs where torch counts them."""
    attrs: dict[str, Any] = {}
    schema = getattr(function, "_schema", None)
    for position, argument in enumerate(schema.arguments if schema is not None else ()):
        value = args[position] if position < len(args) else kwargs.get(argument.name)
        tensors = any(isinstance(leaf, torch.Tensor) for leaf in tree_flatten(value)[0])
        if argument.name in _PLACEMENT or value is None or tensors:
            continue
        if not (argument.has_default_value() and value == argument.default_value):
            attrs[argument.name] = _plain(value)
    counted = flop_registry.get(getattr(function, "overloadpacket", None))
    if counted is not None:
        attrs["flops"] = int(counted(*args, **kwargs, out_val=result))
    return attrs


def _plain(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return tuple(_plain(item) for item in value)
    return value if isinstance(value, bool | int | float | str) else str(value).removeprefix("torch.")


def _where() -> tuple[CodeType, int] | None:
    """The innermost frame of the user's program: of the module that is recorded, or of what it calls."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code is not record.__code__:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _INTERNAL:
            return frame.f_code, frame.f_lasti
        frame = frame.f_back  # type: ignore[assignment]
    return None
