"""The one place where an op meets its inputs: computed at once, or recorded by a trace.

Eagerly an op runs a kernel (the fast one where there is one and it is worth it, else the reference) and, if a gradient
is wanted, leaves a node on the tape. While tracing nothing is computed: outputs are abstract, every op is recorded.
In-place changes are an out-of-place op whose result is written back, so that the tape and traces stay functional.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minigrad import dtypes, kernels
from minigrad.graph import Edge, Node, here, state
from minigrad.ops.registry import Op
from minigrad.tensor import Storage, Tensor

_NO_NEEDS: tuple[bool, ...] = ()


def apply(op: Op, tensors: Sequence[Tensor], attrs: Mapping[str, Any]) -> Any:
    """Run `op` on tensors (all of them Tensors, dtypes already agreed). A tuple where it has several outputs."""
    recorder = state.recorder
    wanted = False
    for tensor in tensors:
        if tensor.base is not None and tensor.seen != tensor.storage.version:
            refresh(tensor)
        if tensor.needs_grad:
            wanted = True
    wanted = wanted and state.grad_enabled and op.differentiable
    if recorder is not None:
        return _record(op, tensors, attrs, wanted, recorder)
    arrays = [tensor.array for tensor in tensors]
    outputs = kernels.run(op, arrays, attrs)
    if op.view:
        source = tensors[0]
        results = [_view(output, source) for output in outputs]
    else:
        results = [Tensor(output) for output in outputs]
    if wanted:
        _attach(op, tensors, attrs, results, where=here())
    return results[0] if len(results) == 1 else tuple(results)


def _owner(array: np.ndarray) -> Any:
    return array if array.base is None else array.base


def _view(array: np.ndarray, source: Tensor) -> Tensor:
    """A tensor over `array`; a view of `source` if they share memory (a reshape may have copied)."""
    if _owner(array) is not _owner(source.array):
        return Tensor(array)
    result = Tensor(array, source.storage)
    result.base = source if source.base is None else source.base
    result.seen = source.storage.version
    return result


def edge_of(tensor: Tensor) -> Edge:
    """Where gradients of `tensor` flow to; a leaf gets its node when it is first used."""
    if tensor.node is None:
        tensor.node = Node("leaf", {}, (), ((tensor.array.shape, tensor.array.dtype),), where=here())
    return tensor.node, tensor.index


def _attach(op: Op, tensors: Sequence[Tensor], attrs: Mapping[str, Any], results: Sequence[Tensor], where: Any) -> None:
    """Put a node on the tape and let the floating outputs point at it."""
    needs = tuple([tensor.needs_grad for tensor in tensors])
    edges = tuple([edge_of(tensor) if tensor.needs_grad else None for tensor in tensors])
    node = Node(
        op.name,
        attrs,
        edges,
        tuple([(result.array.shape, result.array.dtype) for result in results]),
        tuple([(tensor.array.shape, tensor.array.dtype) for tensor in tensors]),
        where=where,
    )
    _save(op, node, needs, tensors, results)
    _point(op, node, results)


def _save(op: Op, node: Node, needs: tuple[bool, ...], tensors: Sequence[Tensor], results: Sequence[Tensor]) -> None:
    saves = op.saves_for(needs)
    if saves:
        node.saved = {
            i: (t.array, t.storage, t.storage.version)
            for i, t in ((i, tensors[i] if i >= 0 else results[~i]) for i in saves)
        }


def _point(op: Op, node: Node, results: Sequence[Tensor]) -> None:
    differentiable = len(results) - op.aux
    for index, result in enumerate(results):
        if index < differentiable and dtypes.is_floating(result.array.dtype):
            result.node, result.index, result.needs_grad = node, index, True


def _record(op: Op, tensors: Sequence[Tensor], attrs: Mapping[str, Any], wanted: bool, recorder: Any) -> Any:
    """Record `op` in the trace; outputs are abstract."""
    inputs = tuple(recorder.edge(tensor) for tensor in tensors)
    results: list[Tensor]
    if op.view:
        outputs = op.evaluate([tensor.array for tensor in tensors], attrs)
        results = [_view(output, tensors[0]) for output in outputs]
        for result in results:
            if result.base is None:
                result.storage.abstract = True
    else:
        metas = op.output_metas([(t.array.shape, t.array.dtype) for t in tensors], attrs)
        results = [Tensor(np.empty(shape, dtype), Storage(abstract=True)) for shape, dtype in metas]
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


# --- changes in place -----------------------------------------------------------------------------


def write(tensor: Tensor, result: Tensor) -> Tensor:
    """Give `tensor` the value (and the history) of `result`, in its own memory; advances the storage's version.

    Raises ValueError when shapes differ, TypeError when the dtype cannot be stored, RuntimeError for a leaf that
    requires a gradient.
    """
    if result.array.shape != tensor.array.shape:
        raise ValueError(
            f"an in-place operation cannot change the shape {list(tensor.array.shape)} to {list(result.array.shape)}"
        )
    if dtypes.category(result.array.dtype) > dtypes.category(tensor.array.dtype):
        raise TypeError(
            f"a {dtypes.name(result.array.dtype)} result cannot be stored in place in a "
            f"{dtypes.name(tensor.array.dtype)} tensor: convert one of them with .to(dtype)"
        )
    if result.array.dtype != tensor.array.dtype:
        from minigrad.ops.elementwise import cast

        result = cast(result, dtype=tensor.array.dtype)
    recorder = state.recorder
    tracked = state.grad_enabled and (tensor.needs_grad or result.needs_grad)
    root = tensor if tensor.base is None else tensor.base
    if tracked and root.needs_grad and (root.node is None or root.node.op == "leaf"):
        raise RuntimeError(
            "a leaf that requires a gradient cannot be changed in place while gradients are recorded: "
            "do it under no_grad(), or on a clone()"
        )
    whole = result
    if (tracked or recorder is not None) and root is not tensor:
        whole = _scatter_into(root, tensor, result)
    if not tensor.storage.abstract and recorder is None:
        np.copyto(tensor.array, result.array, casting="unsafe")
    tensor.storage.version += 1
    if tracked:
        root.node, root.index, root.needs_grad = whole.node, whole.index, whole.needs_grad
    if recorder is not None:
        recorder.change(root, whole)
    if tensor is root:
        tensor.seen = tensor.storage.version
    return tensor


def _layout(view: np.ndarray, base: np.ndarray) -> dict[str, Any]:
    """Where `view` lies in `base`: shape, strides and offset in elements."""
    size = base.dtype.itemsize
    offset = view.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return {
        "shape": view.shape,
        "strides": tuple(stride // size for stride in view.strides),
        "offset": offset // size,
    }


def _scatter_into(base: Tensor, view: Tensor, value: Tensor) -> Tensor:
    from minigrad.ops.shape import strided_scatter

    return strided_scatter(base, value, **_layout(view.array, base.array))


def refresh(view: Tensor) -> None:
    """After the base changed in place, derive the view from it again (its memory already shows the change)."""
    base = view.base
    assert base is not None
    view.seen = view.storage.version
    if state.recorder is None and not (base.needs_grad and state.grad_enabled):
        return
    from minigrad.ops.shape import as_strided

    again = as_strided(base, **_layout(view.array, base.array))
    view.node, view.index, view.needs_grad = again.node, again.index, again.needs_grad
    if state.recorder is not None:
        state.recorder.rebind(view, state.recorder.edge(again))


# --- composites -----------------------------------------------------------------------------------


def run_decomposition(op: Op, arrays: Sequence[np.ndarray], attrs: Mapping[str, Any]) -> Any:
    """A composite's value by its decomposition, unrecorded."""
    assert op.decomposition is not None
    saved = state.grad_enabled, state.recorder
    state.grad_enabled, state.recorder = False, None
    try:
        result = op.decomposition(*[Tensor(array) for array in arrays], **attrs)
    finally:
        state.grad_enabled, state.recorder = saved
    return tuple(t.array for t in result) if isinstance(result, tuple) else result.array
