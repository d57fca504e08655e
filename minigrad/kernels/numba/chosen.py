"""Rows times the matrices that they choose, in float32: each row reads its own matrix, whatever it is stored as.

Which matrix that is, is known only when the kernel runs. It is given the first one, and the addresses of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad.kernels.calls import Calls
from minigrad.kernels.numba.jit import intrinsic, kernel, types
from minigrad.kernels.numba.math import as_float

Array = np.ndarray
_ZERO = np.float32(0)
_UPPER = np.int32(16)
_PER_NS = 8  # products in a nanosecond


@intrinsic
def _moved(typing: Any, array: Any, address: Any) -> Any:
    """An array like `array` at another address."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        from numba.core import cgutils

        made = cgutils.create_struct_proxy(array)(context, builder, arguments[0])
        made.data = builder.inttoptr(arguments[1], made.data.type)
        return made._getvalue()

    return array(array, types.int64), build


@kernel
def _float32(start, stop, first, places, chosen, x, y):
    for r in range(x.shape[0]):
        matrix, given = _moved(first, places[chosen[r]]), x[r]
        for i in range(start, stop):
            row = matrix[i]
            total = _ZERO
            for j in range(given.shape[0]):
                total += row[j] * given[j]
            y[r, i] = total


@kernel
def _bfloat16(start, stop, first, places, chosen, x, y):
    for r in range(x.shape[0]):
        matrix, given = _moved(first, places[chosen[r]]), x[r]
        for i in range(start, stop):
            row = matrix[i]
            total = _ZERO
            for j in range(given.shape[0]):
                total += as_float(np.int32(row[j]) << _UPPER) * given[j]
            y[r, i] = total


@kernel
def _int8(start, stop, first, places, first_scales, scale_places, chosen, x, y):
    for r in range(x.shape[0]):
        matrix, given = _moved(first, places[chosen[r]]), x[r]
        scales = _moved(first_scales, scale_places[chosen[r]])
        for i in range(start, stop):
            row = matrix[i]
            total = _ZERO
            for j in range(given.shape[0]):
                total += np.float32(row[j]) * given[j]
            y[r, i] = total * scales[i]


_KERNELS = {"float32": _float32, "bfloat16": _bfloat16, "int8": _int8}


def chosen_linear(calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array], *, count: int) -> bool:
    """Declines matrices of other dtypes, or whose rows are not in order, or that differ."""
    (x, chosen, *parts), (y,) = inputs, outputs
    first = parts[0]
    alike = all((m.shape, m.dtype) == (first.shape, first.dtype) for m in parts[:count])
    if not alike or first.dtype.name not in _KERNELS or not all(part.flags.c_contiguous for part in parts):
        return False
    if not x.size or not first.size or chosen.dtype != np.int64 or any(s.dtype != np.float32 for s in parts[count:]):
        return False
    calls.add(_check, chosen, count)
    given: list[Array] = []
    for group in (parts[:count], parts[count:]):
        if group:
            seen = group[0].view(np.uint16) if group[0].dtype.name == "bfloat16" else group[0]
            given += [seen, np.array([each.ctypes.data for each in group], np.int64)]
    work = x.shape[0] * first.size // _PER_NS
    kernel = _KERNELS[first.dtype.name]
    calls.over_rows(kernel, len(first), work, *given, calls.contiguous(chosen), calls.contiguous(x), y)
    return True


def _check(chosen: Array, count: int) -> None:
    """A number outside would read anywhere."""
    if chosen.min() < 0 or chosen.max() >= count:
        raise IndexError(f"chosen_linear: {count} matrices are given, and one was chosen that is not among them")
