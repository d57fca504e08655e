"""Tensors from nothing or from data: tensor, zeros, ones, full, arange, linspace, eye, and their kin.

`device` is "cpu" (the default) or "cuda". Raises ValueError for another, CudaError where CUDA cannot be used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.kernels import usable
from minigrad.later import load
from minigrad.ops import rules
from minigrad.ops.arguments import expect_tensors
from minigrad.ops.copies import filled, placed, uninitialised
from minigrad.ops.rules import sizes
from minigrad.tensor import Tensor


def tensor(data: Any, dtype: np.dtype | None = None, requires_grad: bool = False, device: str | None = None) -> Tensor:
    """A copy of `data` (numbers, nested sequences, arrays, tensors). Python floats become float32, ints int64.

    Raises ValueError for ragged sequences, TypeError for data that are not numbers, OverflowError for numbers that an
    integer `dtype` (int64 unless given) does not hold.
    """
    if isinstance(data, Tensor) and data.is_cuda:
        home = data.storage.device if device is None else usable(device)
        return data.detach().to(home, dtype or data.dtype).clone().requires_grad_(requires_grad)
    try:
        if isinstance(data, list | tuple) and any(isinstance(item, Tensor) for item in data):
            data = np.array([np.asarray(item.detach() if isinstance(item, Tensor) else item) for item in data])
        array = np.array(data.array if isinstance(data, Tensor) else data, order="C")
    except ValueError as error:
        raise ValueError(f"tensor(): the nested sequences have different lengths ({error})") from None
    if dtype is None and not isinstance(data, np.ndarray | np.generic | Tensor) and array.dtype == np.float64:
        array = array.astype(dtypes.DEFAULT)
    if array.size == 0 and isinstance(data, list | tuple):
        array = array.astype(dtypes.DEFAULT)
    if dtype is None and isinstance(data, int | list | tuple) and array.dtype == np.uint64:
        dtype = dtypes.int64
    if array.dtype.kind in "OSU":
        raise TypeError(f"tensor(): numbers are expected, got {data!r:.40}")
    dtypes.category(array.dtype)
    if dtype is not None:
        dtype = dtypes.resolve(dtype)
        array = _exactly(array, dtype) if isinstance(data, int | float | list | tuple) else array.astype(dtype)
    return _on(array, device).requires_grad_(requires_grad)


def _exactly(array: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Numbers of the program as `dtype`. Raises OverflowError for what an integer type does not hold."""
    if dtype.kind in "iu" and array.size:
        limits = np.iinfo(dtype)
        if not ((array >= limits.min) & (array <= limits.max)).all():
            raise OverflowError(
                f"tensor(): a value is out of range for {dtypes.name(dtype)}, {limits.min} to {limits.max}"
            )
    return array.astype(dtype)


def _on(array: np.ndarray, device: str | None) -> Tensor:
    return Tensor(array) if device is None else placed(array, usable(device))


def as_tensor(data: Any, dtype: np.dtype | None = None, device: str | None = None) -> Tensor:
    """`data` itself if it is such a tensor; shares memory with an array on the host or (by
    `__cuda_array_interface__`) on the GPU; else a copy."""
    if not isinstance(data, Tensor) and hasattr(data, "__cuda_array_interface__"):
        data = load("minigrad.exchange:from_cuda_array")(data)
    if isinstance(data, Tensor):
        return data.to(device=device, dtype=dtype)
    if isinstance(data, np.ndarray):
        return _on(_checked(data if dtype is None else data.astype(dtypes.resolve(dtype), copy=False)), device)
    return tensor(data, dtype, device=device)


def from_dlpack(source: Any) -> Tensor:
    """A tensor over the memory of another library's array, on the CPU or a GPU: see `minigrad.exchange`.

    Raises TypeError for what has no `__dlpack__`, ValueError for a device of another kind.
    """
    made: Tensor = load("minigrad.exchange:from_dlpack")(source)
    return made


def from_numpy(array: np.ndarray, device: str | None = None) -> Tensor:
    """A tensor that shares memory with `array` (on a GPU: holds a copy).

    Raises TypeError for anything but an array of numbers.
    """
    return _on(_checked(array), device)


def _checked(array: np.ndarray) -> np.ndarray:
    if not isinstance(array, np.ndarray):
        raise TypeError(f"from_numpy needs a numpy array, got {type(array).__name__}: use tensor()")
    dtypes.category(array.dtype)
    return array


def _element(dtype: np.dtype | None) -> np.dtype:
    """The dtype of a new tensor, float32 unless given. Raises TypeError for one that minigrad does not have."""
    return dtypes.DEFAULT if dtype is None else dtypes.resolve(dtype)


def full(
    size: Sequence[int],
    value: Any,
    dtype: np.dtype | None = None,
    requires_grad: bool = False,
    device: str | None = None,
) -> Tensor:
    """`value` everywhere; its dtype is the value's (float32, int64 or bool) unless given.

    Raises TypeError for a value that is no number.
    """
    value = rules.number(value, "full: the value")
    home = "cpu" if device is None else usable(device)
    kind = _element(dtypes.of_scalar(value, None) if dtype is None else dtype)
    value = value if dtypes.is_floating(kind) else dtypes.scalar(value, kind)
    made = filled(sizes((size,)), value, kind, home)
    return made.requires_grad_(requires_grad)


def zeros(*size: Any, dtype: np.dtype | None = None, requires_grad: bool = False, device: str | None = None) -> Tensor:
    if device is not None:
        return full(sizes(size), 0, _element(dtype), requires_grad, device)
    return Tensor(np.zeros(sizes(size), _element(dtype))).requires_grad_(requires_grad)


def ones(*size: Any, dtype: np.dtype | None = None, requires_grad: bool = False, device: str | None = None) -> Tensor:
    return full(sizes(size), 1, _element(dtype), requires_grad, device)


def empty(*size: Any, dtype: np.dtype | None = None, requires_grad: bool = False, device: str | None = None) -> Tensor:
    """Memory of arbitrary content."""
    shape = sizes(size)
    if device is not None and usable(device) != "cpu":
        return uninitialised(shape, _element(dtype), usable(device)).requires_grad_(requires_grad)
    return Tensor(np.empty(shape, _element(dtype))).requires_grad_(requires_grad)


def zeros_like(x: Tensor, dtype: np.dtype | None = None, requires_grad: bool = False) -> Tensor:
    return full_like(x, 0, dtype, requires_grad)


def ones_like(x: Tensor, dtype: np.dtype | None = None, requires_grad: bool = False) -> Tensor:
    return full_like(x, 1, dtype, requires_grad)


def full_like(x: Tensor, value: Any, dtype: np.dtype | None = None, requires_grad: bool = False) -> Tensor:
    return full(x.array.shape, value, dtype or x.array.dtype, requires_grad, x.storage.device)


def arange(
    start: Any,
    end: Any = None,
    step: Any = 1,
    dtype: np.dtype | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """start, start + step, ... below `end`. int64 for integers, float32 if any bound is a float.

    Raises ValueError for a step of zero, one that leads away from `end`, and bounds that are not finite, TypeError for
    bounds that are no numbers.
    """
    start, step = rules.number(start, "arange: the start"), rules.number(step, "arange: the step")
    end = None if end is None else rules.number(end, "arange: the end")
    if step == 0:
        raise ValueError("arange: the step must not be zero")
    low, high = (0, start) if end is None else (start, end)
    length = (float(high) - float(low)) * float(step)
    if not math.isfinite(length) or length < 0:
        raise ValueError(f"arange: steps of {step} do not lead from {low} to {high}")
    kind = dtypes.DEFAULT if any(isinstance(v, float) for v in (low, high, step)) else dtypes.int64
    kind = kind if dtype is None else _element(dtype)
    if kind == dtypes.int64:  # torch takes whole bounds and steps there, of other integers whole steps
        low, high, step = int(low), int(high), int(step)
        if not step:
            raise ValueError("arange: the step must not be zero, and is without its fraction")
    count = -((low - high) // step)
    if not dtypes.is_floating(kind):
        low, step = int(low), int(step)
    return _on((low + np.arange(int(count)) * step).astype(kind), device).requires_grad_(requires_grad)


def linspace(
    start: float,
    end: float,
    steps: int,
    dtype: np.dtype | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`steps` numbers evenly from `start` to `end`, both included, cut to whole ones for an integer dtype.

    Raises ValueError for a negative number of them.
    """
    (count,) = sizes((rules.integer(steps, "linspace: the number of steps"),))
    low, high = rules.number(start, "linspace: the start"), rules.number(end, "linspace: the end")
    kind = _element(dtype)
    if not dtypes.is_floating(kind):
        low, high = int(low), int(high)
    step, i = (high - low) / max(count - 1, 1), np.arange(count)
    values = np.where(i < count // 2, low + i * step, high - (count - 1 - i) * step)  # both ends are exact
    values = values if count != 1 else np.array([low])
    return _on(values.astype(kind), device).requires_grad_(requires_grad)


def eye(
    n: int,
    m: int | None = None,
    dtype: np.dtype | None = None,
    device: str | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Ones on the diagonal ``(n, m or n)``."""
    rows, columns = sizes((n, n if m is None else m))
    return _on(np.eye(rows, columns, dtype=_element(dtype)), device).requires_grad_(requires_grad)


def meshgrid(*tensors: Tensor | Sequence[Tensor], indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinates of the grid of some vectors (or numbers), given one by one or as one sequence.

    indexing "ij": dimension i is that of vector i; "xy": the first two are exchanged. Raises ValueError for vectors of
    more dimensions, of different dtypes, and for none.
    """
    vectors = tensors[0] if len(tensors) == 1 and not isinstance(tensors[0], Tensor) else tensors
    grid: list[Tensor] = []
    for vector in vectors:
        if not isinstance(vector, Tensor):
            raise TypeError(f"meshgrid: expected tensors, got {type(vector).__name__}: make it one with mg.tensor(...)")
        grid.append(vector)
    return _grid(grid, indexing)


def _grid(tensors: Sequence[Tensor], indexing: str) -> tuple[Tensor, ...]:
    if not tensors:
        raise ValueError("meshgrid: expected at least one vector")
    if indexing not in ("ij", "xy"):
        raise ValueError(f"meshgrid: indexing must be 'ij' or 'xy', got {indexing!r}")
    if len({t.array.dtype for t in tensors}) > 1:
        raise ValueError(f"meshgrid: the dtypes {[dtypes.name(t.array.dtype) for t in tensors]} differ")
    if indexing == "xy" and len(tensors) > 1:
        second, first, *rest = _grid([tensors[1], tensors[0], *tensors[2:]], "ij")
        return first, second, *rest
    if any(t.array.ndim > 1 for t in tensors):
        raise ValueError(f"meshgrid needs vectors, got shapes {', '.join(str(list(t.array.shape)) for t in tensors)}")
    shape = tuple(t.array.size for t in tensors)
    return tuple(
        t.reshape([n if i == j else 1 for j, n in enumerate(shape)]).expand(shape) for i, t in enumerate(tensors)
    )


expect_tensors(globals())
