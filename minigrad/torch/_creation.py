"""Shims of what makes tensors: torch's `device` argument, calls of torch.Tensor, and torch's ways to say a size."""

from __future__ import annotations

import functools
from typing import Any

import minigrad
from minigrad import dtypes
from minigrad.device import CPU, Device


def check_device(what: str, device: Any) -> None:
    """Raise ValueError for any device but the CPU."""
    if device is not None and Device(device).type != CPU:
        raise ValueError(f"torch.{what}: there is no device {str(device)!r} here, only 'cpu'")


def _here(function: Any) -> Any:
    """`function` with torch's `device`; raises ValueError for any but the CPU. How memory is laid out is ignored."""

    @functools.wraps(function)
    def call(*args: Any, device: Any = None, pin_memory: bool = False, layout: Any = None, **kwargs: Any) -> Any:
        check_device(function.__name__, device)
        return function(*args, **kwargs)

    return call


class _TensorType(type):
    """Every tensor is an instance, and a call makes one from numbers, as torch.Tensor does."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, minigrad.Tensor)

    def __call__(cls, *args: Any) -> minigrad.Tensor:
        if len(args) == 1 and not isinstance(args[0], int):
            return minigrad.tensor(args[0], dtype=dtypes.float32)
        return minigrad.empty(*args)


class Tensor(minigrad.Tensor, metaclass=_TensorType):
    """minigrad.Tensor; `Tensor([1.0, 2.0])` is float32, `Tensor(2, 3)` has arbitrary content."""

    __slots__ = ()


class Generator(minigrad.Generator):
    """minigrad.Generator, which is on the CPU."""

    def __init__(self, device: str = "cpu") -> None:
        super().__init__()


def FloatTensor(data: Any) -> minigrad.Tensor:
    return minigrad.tensor(data, dtype=dtypes.float32)


def LongTensor(data: Any) -> minigrad.Tensor:
    return minigrad.tensor(data, dtype=dtypes.int64)


def _randint(
    low: int, high: Any = None, size: Any = None, *, generator: Any = None, dtype: Any = dtypes.int64
) -> minigrad.Tensor:
    """int64 in [low, high): `randint(high, size)` or `randint(low, high, size)`."""
    if size is None:
        low, high, size = 0, low, high
    return minigrad.randint(low, high, tuple(size), generator=generator).to(dtype)


def _empty_like(x: minigrad.Tensor, dtype: Any = None, requires_grad: bool = False) -> minigrad.Tensor:
    return minigrad.empty(*x.shape, dtype=dtype or x.dtype, requires_grad=requires_grad)


def _sized(make: Any) -> Any:
    """`make(*size)` with torch's other way to say the size, `size=`."""

    @functools.wraps(make)
    def call(*args: Any, size: Any = None, **kwargs: Any) -> Any:
        return make(*args, **kwargs) if size is None else make(tuple(size), *args, **kwargs)

    return _here(call)


_randint.__name__, _empty_like.__name__ = "randint", "empty_like"
arange, eye, full_like, linspace = map(_here, (minigrad.arange, minigrad.eye, minigrad.full_like, minigrad.linspace))
ones_like, tensor, as_tensor, zeros_like = map(
    _here, (minigrad.ones_like, minigrad.tensor, minigrad.as_tensor, minigrad.zeros_like)
)
empty, full, ones, zeros, rand, randn = map(
    _sized, (minigrad.empty, minigrad.full, minigrad.ones, minigrad.zeros, minigrad.rand, minigrad.randn)
)
rand_like, randn_like, randint, randperm, empty_like = map(
    _here, (minigrad.rand_like, minigrad.randn_like, _randint, minigrad.randperm, _empty_like)
)
