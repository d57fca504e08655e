"""The one place where an op meets its inputs: computed at once, or recorded by a trace.

Eagerly an op runs a kernel (the fast one where there is one and it is worth it, else the reference) and, if a gradient
is wanted, leaves a node on the tape. While tracing nothing is computed: outputs are abstract, every op is recorded.
In-place changes are an out-of-place op whose result is written back, so that the tape and traces stay functional.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minigrad import dtypes, kernels
from minigrad.device import CUDA
from minigrad.graph import Edge, Node, here, state
from minigrad.ops.registry import OPS, Op
from minigrad.tensor import Storage, Tensor


def apply(op: Op, tensors: Sequence[Tensor], attrs: Mapping[str, Any]) -> Any:
    """Run `op` on tensors (all of them Tensors, dtypes already agreed). A tuple where it has several outputs."""
    recorder = state.recorder
    wanted = False
    device = "cpu"
    for tensor in tensors:
        storage = tensor.storage
        if tensor.base is not None and tensor.seen != storage.version:
            refresh(tensor)
        if tensor.needs_grad:
            wanted = True
        if storage.device != "cpu":
            device = storage.device
    wanted = wanted and state.grad_enabled and op.differentiable
    if device != "cpu":
        _together(op, tensors, device)
    if op is to_device_op:
        device = attrs["device"]
    if recorder is not None:
        return _record(op, tensors, attrs, wanted, recorder, device)
    outputs: tuple[Any, ...]
    if op is to_device_op:
        outputs = (_transferred(tensors[0], device),)
    else:
        arrays = [tensor.array for tensor in tensors] if device == "cpu" else _on_device(tensors)
        outputs = kernels.run(op, arrays, attrs)
    if op.view:
        source = tensors[0]
        results = [_view(output, source) for output in outputs]
        if not op.differentiable:  # a detached view shares memory, and has a history of its own from here on
            for result in results:
                result.base = None
    elif len(outputs) == 1 and device == "cpu":
        result = Tensor(outputs[0])
        if wanted:
            _attach(op, tensors, attrs, (result,), here())
        return result
    else:
        results = [Tensor(output, Storage(device)) for output in outputs]
    if wanted:
        _attach(op, tensors, attrs, results, here())
    return results[0] if len(results) == 1 else tuple(results)


def _together(op: Op, tensors: Sequence[Tensor], device: str) -> None:
    """Raise RuntimeError unless all tensors are on `device`; a scalar of the host without a gradient counts as a
    number, which is at home anywhere."""
    for tensor in tensors:
        if tensor.storage.device != device and (tensor.array.ndim or tensor.needs_grad):
            shapes = " and ".join(f"{list(t.array.shape)} on {t.storage.device}" for t in tensors)
            raise RuntimeError(f"{op.name} got tensors on different devices ({shapes}): move them to one with .to()")


def _on_device(tensors: Sequence[Tensor]) -> list[Any]:
    """The arrays of tensors on the device, and of numbers."""
    from minigrad.kernels.cuda import execute

    return [execute.literal(t.array) if t.storage.device == "cpu" else t.array for t in tensors]


def _transferred(tensor: Tensor, device: str) -> Any:
    from minigrad.kernels.cuda import execute

    return execute.transfer(tensor.array, device)


def _owner(array: np.ndarray) -> Any:
    """The array whose memory this is (a view of a view may point at the view in between)."""
    if array.__class__ is not np.ndarray:
        return array.memory  # type: ignore[attr-defined]  # on a device
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def _view(array: np.ndarray, source: Tensor) -> Tensor:
    """A tensor over `array`; a view of `source` if they share memory (a reshape may have copied)."""
    if _owner(array) is not _owner(source.array):
        return Tensor(array, Storage(source.storage.device))
    result = Tensor(array, source.storage)
    result.base = source if source.base is None else source.base
    result.seen = source.storage.version
    return result


def edge_of(tensor: Tensor) -> Edge:
    """Where gradients of `tensor` flow to; a leaf gets its node when it is first used."""
    if tensor.base is not None and tensor.seen != tensor.storage.version:
        refresh(tensor)
    if tensor.node is None:
        tensor.node = Node("leaf", {}, (), ((tensor.array.shape, tensor.array.dtype),), where=here())
        if state.recorder is not None:
            state.recorder.leaf(tensor)
    return tensor.node, tensor.index


def _attach(op: Op, tensors: Sequence[Tensor], attrs: Mapping[str, Any], results: Sequence[Tensor], where: Any) -> None:
    """Put a node on the tape and let the floating outputs point at it."""
    needs, edges, metas = [], [], []
    for tensor in tensors:
        array, need = tensor.array, tensor.needs_grad
        metas.append((array.shape, array.dtype))
        needs.append(need)
        edges.append(None if not need else edge_of(tensor) if tensor.node is None else (tensor.node, tensor.index))
    outputs = tuple([(result.array.shape, result.array.dtype) for result in results])
    node = Node(op.name, attrs, tuple(edges), outputs, tuple(metas), None, where)
    _save(op, node, tuple(needs), tensors, results)
    _point(op, node, results)


def _save(op: Op, node: Node, needs: tuple[bool, ...], tensors: Sequence[Tensor], results: Sequence[Tensor]) -> None:
    saves = op.saves.get(needs)
    if saves is None:
        saves = op.saves_for(needs)
    if saves:
        saved = node.saved = {}
        for which in saves:
            tensor = tensors[which] if which >= 0 else results[~which]
            storage = tensor.storage
            saved[which] = (tensor.array, storage, storage.version)


def _point(op: Op, node: Node, results: Sequence[Tensor]) -> None:
    differentiable = len(results) - op.aux
    for index, result in enumerate(results):
        dtype = result.array.dtype
        if index < differentiable and (dtype is dtypes.float32 or dtypes.is_floating(dtype)):
            result.node, result.index, result.needs_grad = node, index, True


def _record(
    op: Op, tensors: Sequence[Tensor], attrs: Mapping[str, Any], wanted: bool, recorder: Any, device: str
) -> Any:
    """Record `op` in the trace; outputs are abstract."""
    inputs = tuple(recorder.edge(tensor) for tensor in tensors)
    results: list[Tensor]
    if op.view:
        source = tensors[0].array
        outputs = op.evaluate([source], attrs) if source.__class__ is np.ndarray else kernels.run(op, [source], attrs)
        results = [_view(output, tensors[0]) for output in outputs]
        for result in results:
            if result.base is None:
                result.storage.abstract = True
            elif not op.differentiable or recorder.is_detached(tensors[0]):
                recorder.detach(result)
        if op is reshape_op and recorder.is_loose(tensors[0]) and not _only_splits(source.shape, attrs["shape"]):
            results = [Tensor(np.empty(attrs["shape"], source.dtype), Storage(device, abstract=True))]
            recorder.relate(tensors[0], results[0])
    else:
        metas = op.output_metas([(t.array.shape, t.array.dtype) for t in tensors], attrs)
        results = [Tensor(np.empty(shape, dtype), Storage(device, abstract=True)) for shape, dtype in metas]
        if not op.row_major and any(not t.is_contiguous() or recorder.is_loose(t) for t in tensors):
            for result in results:  # numpy keeps the order of dimensions of what it computes with
                recorder.loosen(result)
    node = Node(
        op.name,
        attrs,
        inputs,
        tuple((result.array.shape, result.array.dtype) for result in results),
        tuple((tensor.array.shape, tensor.array.dtype) for tensor in tensors),
        edges=tuple(edge_of(t) if wanted and t.needs_grad else None for t in tensors),
        where=here(),
    )
    recorder.add(node, results)
    if wanted:
        _save(op, node, tuple(t.needs_grad for t in tensors), tensors, results)
        _point(op, node, results)
    return results[0] if len(results) == 1 else tuple(results)


def _only_splits(old: tuple[int, ...], new: tuple[int, ...]) -> bool:
    """Does a reshape from `old` to `new` join no dimensions? Then it is a view, whatever the strides."""
    return set(itertools.accumulate(old, operator.mul)) <= {1, *itertools.accumulate(new, operator.mul)}


# --- changes in place -----------------------------------------------------------------------------


def recorded(tensor: Tensor, value: Tensor) -> bool:
    """Does a change of `tensor` in place to `value` have to be recorded?"""
    root = tensor if tensor.base is None else tensor.base
    return state.recorder is not None or (
        state.grad_enabled and (root.needs_grad or tensor.requires_grad or value.requires_grad)
    )


def write(tensor: Tensor, result: Tensor) -> Tensor:
    """Give `tensor` the value (and the history) of `result`, in its own memory; advances the storage's version.

    Raises ValueError when shapes differ, TypeError when the dtype cannot be stored, RuntimeError for a leaf that
    requires a gradient, for a view taken under no_grad, and for memory that cannot be written.
    """
    _keep(result.node, tensor.storage)  # the derivative of an in-place op may need the value that it overwrites
    maker = tensor.node if tensor.base is None else tensor.base.node
    if maker is not None and maker.saved and OPS[maker.op].keeps_output:
        _keep(maker, tensor.storage)
    result = _storable(tensor, to_device(result, tensor.storage.device))
    if tensor.base is not None and tensor.seen != tensor.storage.version:
        refresh(tensor)
    recorder = state.recorder
    root = tensor if tensor.base is None else tensor.base
    detached = recorder is not None and recorder.is_detached(tensor)
    tracked = state.grad_enabled and (tensor.needs_grad or result.needs_grad) and not detached
    if detached and state.grad_enabled and result.needs_grad:
        raise RuntimeError(
            "a trace does not follow a gradient into a detached tensor that is changed in place: change a clone() of it"
        )
    if state.grad_enabled and root.needs_grad and not detached:
        if root.is_leaf:
            raise RuntimeError(
                "a leaf that requires a gradient cannot be changed in place while gradients are recorded: "
                "do it under no_grad(), or on a clone()"
            )
        if not tensor.needs_grad:
            raise RuntimeError(
                "a view that was taken under no_grad() cannot be changed in place while gradients are recorded: "
                "take the view again here, or change it under no_grad()"
            )
    whole = result
    if (tracked or recorder is not None) and root is not tensor:
        whole = _replace_window(root, tensor, result)
    if recorder is not None:
        recorder.change(root, whole)
    else:
        _copy(tensor.array, result.array)
    tensor.storage.version += 1
    if tracked:
        root.node, root.index, root.needs_grad = whole.node, whole.index, whole.needs_grad
    return tensor


def _keep(node: Node | None, storage: Storage) -> None:
    """Copy what `node` has saved in a storage that is about to change."""
    if node is None or not node.saved:
        return
    for which, (array, saved_in, version) in node.saved.items():
        if saved_in is storage and version == storage.version:
            node.saved[which] = (array.copy(), Storage(storage.device, storage.abstract), 0)


def _copy(target: np.ndarray, source: np.ndarray) -> None:
    if target.__class__ is np.ndarray:
        np.copyto(target, source, casting="unsafe")
    else:
        target.runtime.copy(target, source)  # type: ignore[attr-defined]  # on a device


def _storable(tensor: Tensor, result: Tensor) -> Tensor:
    """`result` in the dtype of `tensor`, if it can be written there."""
    array = tensor.array
    if result.array.shape != array.shape:
        raise ValueError(
            f"an in-place operation cannot change the shape {list(array.shape)} to {list(result.array.shape)}"
        )
    if dtypes.category(result.array.dtype) > dtypes.category(array.dtype):
        raise TypeError(
            f"a {dtypes.name(result.array.dtype)} result cannot be stored in place in a "
            f"{dtypes.name(array.dtype)} tensor: convert one of them with .to(dtype)"
        )
    if not array.flags.writeable:
        raise RuntimeError(
            "this tensor cannot be changed in place: its memory is read-only, or its elements share memory "
            "(an expanded view): call .clone() first"
        )
    return cast(result, dtype=array.dtype)


def _dense(base: Tensor) -> tuple[Tensor, tuple[int, ...]]:
    """`base` with its dimensions in the order in which they lie in memory, and that order."""
    strides = base.array.strides
    order = tuple(sorted(range(len(strides)), key=lambda d: -strides[d]))
    dense = base if base.array.flags.c_contiguous else permute_op(base, dims=order)
    if not dense.array.flags.c_contiguous:
        raise RuntimeError(
            "a view of memory with gaps or in reverse order cannot follow a change in place: .clone() the base first"
        )
    return dense, order


def _layout(view: np.ndarray, base: np.ndarray) -> dict[str, Any]:
    """Where `view` lies in `base`: shape, strides and offset in elements."""
    size = base.dtype.itemsize
    offset = address(view) - address(base)
    return {
        "shape": view.shape,
        "strides": tuple(stride // size for stride in view.strides),
        "offset": offset // size if view.size else 0,
    }


def address(array: np.ndarray) -> int:
    """Where an array begins, in the memory that it lies in."""
    return array.__array_interface__["data"][0] if array.__class__ is np.ndarray else array.pointer  # type: ignore[attr-defined]


def _replace_window(base: Tensor, view: Tensor, value: Tensor) -> Tensor:
    """`base` with the elements that `view` shows replaced by `value`."""
    dense, order = _dense(base)
    result = strided_scatter_op(dense, value, **_layout(view.array, dense.array))
    return result if dense is base else permute_op(result, dims=tuple(int(d) for d in np.argsort(order)))


def refresh(view: Tensor) -> None:
    """After the base changed in place, derive the view from it again (its memory already shows the change)."""
    base = view.base
    assert base is not None
    view.seen = view.storage.version
    recorder = state.recorder
    if recorder is None and not base.needs_grad and not view.needs_grad:
        return
    before = state.grad_enabled
    state.grad_enabled = True  # the view's history is its base's, also when it is first looked at under no_grad
    try:
        dense, _ = _dense(base)
        again = as_strided_op(dense, **_layout(view.array, dense.array))
    finally:
        state.grad_enabled = before
    if recorder is not None:
        recorder.rebind(view, recorder.edge(again))
        if recorder.is_detached(view):
            return
    view.node, view.index, view.needs_grad = again.node, again.index, again.needs_grad


# --- composites -----------------------------------------------------------------------------------


def run_decomposition(op: Op, arrays: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """A composite's value by its decomposition, unrecorded."""
    before = state.grad_enabled, state.recorder
    state.grad_enabled, state.recorder = False, None
    try:
        results = decompose(op, [_read_only(array) for array in arrays], attrs)
    finally:
        state.grad_enabled, state.recorder = before
    return tuple(t.array if t.array.base is None else t.array.copy() for t in results)


def _read_only(array: np.ndarray) -> Tensor:
    if array.__class__ is not np.ndarray:
        return Tensor(array.read_only(), Storage(CUDA))  # type: ignore[attr-defined]  # on a device
    view = array[...]
    view.flags.writeable = False
    return Tensor(view)


def decompose(op: Op, tensors: Sequence[Tensor], attrs: Mapping[str, Any]) -> tuple[Tensor, ...]:
    """The outputs of a composite's decomposition. Raises TypeError where it returns anything but tensors."""
    assert op.decomposition is not None
    before, state.decomposing = state.decomposing, op.name
    try:
        result = op.decomposition(*tensors, **attrs)
    finally:
        state.decomposing = before
    results = result if isinstance(result, tuple) else (result,)
    for value in results:
        if not isinstance(value, Tensor):
            raise TypeError(
                f"composite {op.name} returned a {type(value).__name__}, expected a tensor or a tuple of them"
            )
    return results


# ops that in-place changes are made of
from minigrad.ops.elementwise import cast  # noqa: E402  (they need `apply`)
from minigrad.ops.shape import (  # noqa: E402
    as_strided_op,
    permute_op,
    reshape_op,
    strided_scatter_op,
    to_device,
    to_device_op,
)
