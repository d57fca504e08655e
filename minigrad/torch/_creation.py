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
    """`function` with torch's `device` and `pin_memory`, which is ignored. Raises ValueError for any but the CPU."""

    @functools.wraps(function)
    def call(*args: Any, device: Any = None, pin_memory: bool = False, **kwargs: Any) -> Any:
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


_randint.__name__, _empty_like.__name__ = "randint", "empty_like"
arange, empty, eye, full, full_like = map(_here, (minigrad.arange, minigrad.empty, minigrad.eye, minigrad.full,
                                                  minigrad.full_like))  # fmt: skip
linspace, ones, ones_like, tensor = map(_here, (minigrad.linspace, minigrad.ones, minigrad.ones_like, minigrad.tensor))
as_tensor, zeros, zeros_like = map(_here, (minigrad.as_tensor, minigrad.zeros, minigrad.zeros_like))
rand, rand_like, randn, randn_like = map(_here, (minigrad.rand, minigrad.rand_like, minigrad.randn,
                                                 minigrad.randn_like))  # fmt: skip
randint, randperm, empty_like = map(_here, (_randint, minigrad.randperm, _empty_like))
