"""Changes in place: an op whose result is written back into the memory of a tensor.

So the tape and traces stay functional: a change gives the tensor a new node. A view has the memory of its base and
derives its history from it again once the base has changed.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.node import Node
from minigrad.ops.copies import to_device
from minigrad.ops.index import expand_leading, put_op, thaw, view_at
from minigrad.ops.operands import cast
from minigrad.ops.registry import OPS
from minigrad.ops.shape import as_strided_op, permute_op, strided_scatter_op
from minigrad.state import state
from minigrad.tensor import Storage, Tensor


def recorded(tensor: Tensor, value: Tensor) -> bool:
    """Does a change of `tensor` in place to `value` have to be recorded?"""
    root = tensor if tensor.base is None else tensor.base
    return state.interpreter.tracing or (
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
        follow_base(tensor)
    interpreter = state.interpreter
    root = tensor if tensor.base is None else tensor.base
    detached = not interpreter.follows_its_base(tensor)
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
    if (tracked or interpreter.tracing) and root is not tensor:
        whole = _replace_window(root, tensor, result)
    interpreter.write(tensor, result, root, whole)
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


def follow_base(view: Tensor) -> None:
    """After the base changed in place, derive the view from it again (its memory already shows the change)."""
    base = view.base
    assert base is not None
    view.seen = view.storage.version
    interpreter = state.interpreter
    if not (interpreter.tracing or base.needs_grad or view.needs_grad):
        return
    before = state.grad_enabled
    state.grad_enabled = True  # the view's history is its base's, also when it is first looked at under no_grad
    try:
        dense, _ = _dense(base)
        again = as_strided_op(dense, **_layout(view.array, dense.array))
    finally:
        state.grad_enabled = before
    interpreter.derived_again(view, again)
    if interpreter.follows_its_base(view):
        view.node, view.index, view.needs_grad = again.node, again.index, again.needs_grad


def setitem(x: Tensor, index: Any, value: Any) -> None:
    """`x[index] = value`, in place. Raises ValueError where the value does not fit, IndexError out of range, TypeError
    for what are no numbers."""
    if isinstance(value, Tensor):
        given = cast(value, dtype=x.array.dtype)
    elif isinstance(value, bool | int | float):
        given = Tensor(dtypes.scalar(value, x.array.dtype))
    else:
        values = np.asarray(value)
        dtypes.category(values.dtype)
        given = Tensor(values.astype(x.array.dtype))
    given = to_device(given, x.storage.device)
    try:
        view, places, tensors = view_at(x, index)
        if tensors and view.storage.device == "cpu" and not recorded(view, given):
            view.array[thaw(places, [t.array for t in tensors])] = given.array
            view.storage.version += 1
        elif tensors:
            write(view, put_op(view, given, *tensors, index=places))
        elif not _same_window(view, given):  # `x[i] += y` has written into the view already
            write(view, expand_leading(given, view.array.shape))
    except IndexError as error:
        raise IndexError(f"indexing a tensor of shape {list(x.array.shape)}: {error}") from None
    except ValueError as error:
        if not any(word in str(error) for word in ("broadcast", "expand", "cannot assign")):
            raise
        raise ValueError(
            f"assigning to a part of a tensor of shape {list(x.array.shape)}: a value of shape "
            f"{list(given.array.shape)} does not fit there ({error})"
        ) from None


def _same_window(view: Tensor, given: Tensor) -> bool:
    a, b = view.array, given.array
    if view.storage is not given.storage:
        return False
    return (a.shape, a.strides, address(a)) == (b.shape, b.strides, address(b))
