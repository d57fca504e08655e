"""Running what a composite is made of: its decomposition, a plain function of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from minigrad.device import CUDA
from minigrad.state import eagerly, state
from minigrad.tensor import Storage, Tensor

if TYPE_CHECKING:
    from minigrad.ops.registry import Op


def run_decomposition(op: Op, arrays: Sequence[Any], attrs: Mapping[str, Any]) -> Any:
    """A composite's value by its decomposition, unrecorded."""
    before = state.grad_enabled
    try:
        state.grad_enabled = False
        with eagerly():
            results = decompose(op, [_read_only(array) for array in arrays], attrs)
    finally:
        state.grad_enabled = before
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
