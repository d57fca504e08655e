"""Ops on values: `Eager` computes each at once, by the fast kernel where there is one and it is worth it, else by the
reference, and leaves a node on the tape if a gradient is wanted.

It is what interprets ops in every thread, until something else does: see `minigrad.interpreter`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from minigrad import dtypes, kernels
from minigrad.interpreter import Interpreter
from minigrad.node import Node, here
from minigrad.ops.registry import Op
from minigrad.state import State, eagerly, state
from minigrad.tensor import Storage, Tensor, edge_of


class Eager(Interpreter):
    """Computes what it is given."""

    run = staticmethod(kernels.run)

    def apply(self, op: Op, tensors: Sequence[Tensor], attrs: Mapping[str, Any]) -> Any:
        wanted = False
        device = "cpu"
        for tensor in tensors:
            storage = tensor.storage
            if tensor.base is not None and tensor.seen != storage.version:
                tensor.follow_base()
            if tensor.needs_grad:
                wanted = True
            if storage.device != "cpu":
                device = storage.device
        wanted = wanted and state.grad_enabled and op.differentiable
        outputs: tuple[Any, ...]
        if op.moves:
            device = attrs["device"]
            outputs = (kernels.gpu().transfer(tensors[0].array, device),)
        elif device == "cpu":
            outputs = self.run(op, [tensor.array for tensor in tensors], attrs)
        else:
            together(op, tensors, device)
            outputs = self.run(op, kernels.gpu().arrays(tensors), attrs)
        if op.view:
            source = tensors[0]
            results = [view_of(output, source) for output in outputs]
            if not op.differentiable:  # a detached view shares memory, and has a history of its own from here on
                for result in results:
                    result.base = None
        elif len(outputs) == 1 and device == "cpu":
            result = Tensor(outputs[0])
            if wanted:
                attach(op, tensors, attrs, (result,), here())
            return result
        else:
            results = [Tensor(output, Storage(device)) for output in outputs]
        if wanted:
            attach(op, tensors, attrs, results, here())
        return results[0] if len(results) == 1 else tuple(results)

    def write(self, target: Tensor, value: Tensor, root: Tensor, whole: Tensor) -> None:
        array, source = target.array, value.array
        if array.__class__ is np.ndarray:
            np.copyto(array, source, casting="unsafe")
        else:
            array.runtime.copy(array, source)  # type: ignore[attr-defined]  # on a device

    def own(self, gradient: Tensor) -> Tensor:
        return Tensor(gradient.array.copy(), Storage(gradient.storage.device))


Watcher = Callable[["Op", Sequence[np.ndarray], Sequence[np.ndarray]], None]  # op, inputs, outputs


class Watching(Eager):
    """Computes, and shows every op to a watcher; what a composite is made of is not shown. What is on a device is shown
    as copies on the host."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher

    def run(self, op: Op, arrays: Sequence[Any], attrs: Mapping[str, Any]) -> tuple[Any, ...]:
        with eagerly():
            outputs = kernels.run(op, arrays, attrs)
            self.watcher(op, _on_host(arrays), _on_host(outputs))
        return outputs


def _on_host(arrays: Sequence[Any]) -> list[np.ndarray]:
    return [array if isinstance(array, np.ndarray) else array.numpy() for array in arrays]


EAGER = State.interpreter = Eager()


@contextmanager
def watch(watcher: Watcher) -> Iterator[None]:
    """Call `watcher` after every op that this thread computes inside. In a trace nothing is computed."""
    before = state.interpreter
    if not before.tracing:
        state.interpreter = Watching(watcher)
    try:
        yield
    finally:
        state.interpreter = before


def together(op: Op, tensors: Sequence[Tensor], device: str) -> None:
    """Raise RuntimeError unless all tensors are on `device`; a scalar of the host without a gradient counts as a
    number, which is at home anywhere."""
    for tensor in tensors:
        if tensor.storage.device != device and (tensor.array.ndim or tensor.needs_grad):
            shapes = " and ".join(f"{list(t.array.shape)} on {t.storage.device}" for t in tensors)
            raise RuntimeError(f"{op.name} got tensors on different devices ({shapes}): move them to one with .to()")


def _owner(array: np.ndarray) -> Any:
    """The array whose memory this is (a view of a view may point at the view in between)."""
    if array.__class__ is not np.ndarray:
        return array.memory  # type: ignore[attr-defined]  # on a device
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def view_of(array: np.ndarray, source: Tensor) -> Tensor:
    """A tensor over `array`; a view of `source` if they share memory (a reshape may have copied)."""
    if _owner(array) is not _owner(source.array):
        return Tensor(array, Storage(source.storage.device))
    result = Tensor(array, source.storage)
    result.base = source if source.base is None else source.base
    result.seen = source.storage.version
    return result


def attach(op: Op, tensors: Sequence[Tensor], attrs: Mapping[str, Any], results: Sequence[Tensor], where: Any) -> None:
    """Put a node on the tape and let the floating outputs point at it."""
    needs, edges, metas = [], [], []
    for tensor in tensors:
        array, need = tensor.array, tensor.needs_grad
        metas.append((array.shape, array.dtype))
        needs.append(need)
        edges.append(None if not need else edge_of(tensor) if tensor.node is None else (tensor.node, tensor.index))
    outputs = tuple([(result.array.shape, result.array.dtype) for result in results])
    node = Node(op.name, attrs, tuple(edges), outputs, tuple(metas), None, where)
    save(op, node, tuple(needs), tensors, results)
    point(op, node, results)


def save(op: Op, node: Node, needs: tuple[bool, ...], tensors: Sequence[Tensor], results: Sequence[Tensor]) -> None:
    saves = op.saves.get(needs)
    if saves is None:
        saves = op.saves_for(needs)
    if saves:
        saved = node.saved = {}
        for which in saves:
            tensor = tensors[which] if which >= 0 else results[~which]
            storage = tensor.storage
            saved[which] = (tensor.array, storage, storage.version)


def point(op: Op, node: Node, results: Sequence[Tensor]) -> None:
    differentiable = len(results) - op.aux
    for index, result in enumerate(results):
        dtype = result.array.dtype
        if index < differentiable and (dtype is dtypes.float32 or dtypes.is_floating(dtype)):
            result.node, result.index, result.needs_grad = node, index, True
