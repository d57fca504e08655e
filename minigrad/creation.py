"""Tensors from nothing or from data: tensor, zeros, ones, full, arange, linspace, eye, and their kin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad import dtypes, random
from minigrad.ops.shape import flatten_arguments
from minigrad.tensor import Tensor


def tensor(data: Any, dtype: np.dtype | None = None, requires_grad: bool = False) -> Tensor:
    """A copy of `data` (numbers, nested sequences, arrays, tensors). Python floats become float32, ints int64.

    Raises ValueError for ragged sequences, TypeError for data that are not numbers.
    """
    if isinstance(data, list | tuple) and any(isinstance(item, Tensor) for item in data):
        return tensor(
            np.array([np.asarray(item.detach() if isinstance(item, Tensor) else item) for item in data]),
            dtype,
            requires_grad,
        )
    try:
        array = np.array(data.array if isinstance(data, Tensor) else data, order="C")
    except ValueError as error:
        raise ValueError(f"tensor(): the nested sequences have different lengths ({error})") from None
    if not isinstance(data, np.ndarray | np.generic | Tensor) and array.dtype == np.float64:
        array = array.astype(dtypes.DEFAULT)
    if array.size == 0 and isinstance(data, list | tuple):
        array = array.astype(dtypes.DEFAULT)
    dtypes.category(array.dtype)
    if dtype is not None:
        array = array.astype(dtype)
    return Tensor(array).requires_grad_(requires_grad)


def as_tensor(data: Any, dtype: np.dtype | None = None) -> Tensor:
    """`data` itself if it is such a tensor; shares memory with an array; else a copy."""
    if isinstance(data, Tensor):
        return data if dtype is None else data.to(dtype)
    if isinstance(data, np.ndarray):
        return from_numpy(data) if dtype is None or data.dtype == dtype else from_numpy(data.astype(dtype))
    return tensor(data, dtype)


def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor that shares memory with `array`. Raises TypeError for anything but an array of numbers."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"from_numpy needs a numpy array, got {type(array).__name__}: use tensor()")
    dtypes.category(array.dtype)
    return Tensor(array)


def full(size: Sequence[int], value: Any, dtype: np.dtype | None = None, requires_grad: bool = False) -> Tensor:
    """`value` everywhere; its dtype is the value's (float32, int64 or bool) unless given."""
    array = np.full(flatten_arguments((size,)), value, dtype or dtypes.of_scalar(value, None))
    return Tensor(array).requires_grad_(requires_grad)


def zeros(*size: Any, dtype: np.dtype | None = None, requires_grad: bool = False) -> Tensor:
    return Tensor(np.zeros(flatten_arguments(size), dtype or dtypes.DEFAULT)).requires_grad_(requires_grad)


def ones(*size: Any, dtype: np.dtype | None = None, requires_grad: bool = False) -> Tensor:
    return full(flatten_arguments(size), 1, dtype or dtypes.DEFAULT, requires_grad)


def empty(*size: Any, dtype: np.dtype | None = None, requires_grad: bool = False) -> Tensor:
    """Memory of arbitrary content."""
    return Tensor(np.empty(flatten_arguments(size), dtype or dtypes.DEFAULT)).requires_grad_(requires_grad)


def zeros_like(x: Tensor, dtype: np.dtype | None = None, requires_grad: bool = False) -> Tensor:
    return full_like(x, 0, dtype, requires_grad)


def ones_like(x: Tensor, dtype: np.dtype | None = None, requires_grad: bool = False) -> Tensor:
    return full_like(x, 1, dtype, requires_grad)


def full_like(x: Tensor, value: Any, dtype: np.dtype | None = None, requires_grad: bool = False) -> Tensor:
    return full(x.array.shape, value, dtype or x.array.dtype, requires_grad)


def rand_like(x: Tensor, dtype: np.dtype | None = None) -> Tensor:
    return random.rand(x.array.shape, dtype=dtype or x.array.dtype)


def randn_like(x: Tensor, dtype: np.dtype | None = None) -> Tensor:
    return random.randn(x.array.shape, dtype=dtype or x.array.dtype)


def arange(start: Any, end: Any = None, step: Any = 1, dtype: np.dtype | None = None) -> Tensor:
    """start, start + step, ... below `end`. int64 for integers, float32 if any bound is a float."""
    if step == 0:
        raise ValueError("arange: the step must not be zero")
    low, high = (0, start) if end is None else (start, end)
    kind = dtypes.DEFAULT if any(isinstance(v, float | np.floating) for v in (low, high, step)) else dtypes.int64
    return Tensor(np.arange(low, high, step).astype(dtype or kind))


def linspace(start: float, end: float, steps: int, dtype: np.dtype | None = None) -> Tensor:
    """`steps` numbers evenly from `start` to `end`, both included."""
    return Tensor(np.linspace(start, end, steps).astype(dtype or dtypes.DEFAULT))


def eye(n: int, m: int | None = None, dtype: np.dtype | None = None) -> Tensor:
    """Ones on the diagonal ``(n, m or n)``."""
    return Tensor(np.eye(n, m, dtype=dtype or dtypes.DEFAULT))


def meshgrid(*tensors: Tensor, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinates of the grid of some vectors."""
    if indexing != "ij":
        raise ValueError(f"meshgrid: indexing {indexing!r} is not supported: use 'ij'")
    shape = tuple(t.array.size for t in tensors)
    return tuple(
        t.reshape([n if i == j else 1 for j, n in enumerate(shape)]).expand(shape) for i, t in enumerate(tensors)
    )
