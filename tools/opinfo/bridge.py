"""Carrying what a sample holds from torch to minigrad: tensors keep strides and what they share, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import torch

import minigrad as mg

_NUMPY = {
    torch.float64: np.float64, torch.float32: np.float32, torch.float16: np.float16, torch.int64: np.int64,
    torch.int32: np.int32, torch.int16: np.int16, torch.int8: np.int8, torch.uint8: np.uint8, torch.bool: np.bool_,
    torch.bfloat16: ml_dtypes.bfloat16,
}  # fmt: skip
DTYPES = {theirs: np.dtype(own) for theirs, own in _NUMPY.items()}


class Outside(Exception):
    """A sample needs something that minigrad does not claim to have: complex numbers, sparse or quantised tensors."""


class Bridge:
    """minigrad's copies of torch's tensors: one for each tensor, memory shared where torch shares it."""

    def __init__(self) -> None:
        self.tensors: dict[int, mg.Tensor] = {}
        self.pairs: list[tuple[torch.Tensor, mg.Tensor]] = []
        self._memory: dict[tuple[int, int], np.ndarray] = {}

    def carry(self, value: Any) -> Any:
        """`value` with minigrad's tensors and dtypes for torch's. Raises Outside for what minigrad has nothing for."""
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, torch.dtype):
            return _dtype(value)
        if isinstance(value, torch.device):
            return str(value)
        if isinstance(value, torch.memory_format | torch.Generator | complex):
            raise Outside(f"{type(value).__name__} among the arguments")
        if isinstance(value, torch.layout) and value is not torch.strided:
            raise Outside(f"layout {value}")
        if isinstance(value, torch.Size):
            return tuple(value)
        if isinstance(value, dict):
            return {name: self.carry(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            items = [self.carry(item) for item in value]
            return items if isinstance(value, list) else tuple(items)
        return value

    def _tensor(self, value: torch.Tensor) -> mg.Tensor:
        if id(value) in self.tensors:
            return self.tensors[id(value)]
        if value.layout is not torch.strided or value.is_quantized or value.is_nested or value.device.type != "cpu":
            raise Outside(f"a tensor of layout {value.layout} on {value.device}")
        if value.ndim > 64:
            raise Outside("more dimensions than numpy has")
        made = mg.from_numpy(self._array(value.detach()))
        if value.requires_grad:
            made.requires_grad_()
        self.tensors[id(value)] = made
        self.pairs.append((value, made))
        return made

    def _array(self, value: torch.Tensor) -> np.ndarray:
        dtype = _dtype(value.dtype)
        if not value.numel():
            return np.empty(tuple(value.shape), dtype)
        storage = value.untyped_storage()
        place = storage.data_ptr(), storage.nbytes()
        memory = self._memory.get(place)
        if memory is None:
            memory = torch.empty(0, dtype=torch.uint8).set_(storage).numpy().copy()
            self._memory[place] = memory
        strides = tuple(stride * dtype.itemsize for stride in value.stride())
        return np.ndarray(tuple(value.shape), dtype, memory, value.storage_offset() * dtype.itemsize, strides)


def _dtype(dtype: torch.dtype) -> np.dtype:
    if dtype not in DTYPES:
        raise Outside(f"dtype {dtype}")
    return DTYPES[dtype]


def array(value: torch.Tensor | mg.Tensor) -> np.ndarray:
    """The values of either's tensor."""
    if isinstance(value, mg.Tensor):
        return value.detach().numpy()
    value = value.detach().resolve_conj().resolve_neg()
    if value.dtype == torch.bfloat16:
        return value.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return value.numpy()


def leaves(value: Any) -> list[Any]:
    """What a result consists of, in order: tensors, numbers, None."""
    if isinstance(value, list | tuple):
        return [leaf for item in value for leaf in leaves(item)]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    return [value]


def differentiable(values: list[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, torch.Tensor | mg.Tensor) and value.requires_grad]


def described(value: Any) -> str:
    """A sample's argument in a few words."""
    if isinstance(value, torch.Tensor):
        name = str(value.dtype).removeprefix("torch.")
        gaps = "" if value.is_contiguous() else f" strides {list(value.stride())}"
        few = f" {value.tolist()}" if value.numel() <= 6 else ""
        return f"{name}{list(value.shape)}{gaps}{few}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(described, value)) + "]"
    if isinstance(value, dict):
        return ", ".join(f"{name}={described(item)}" for name, item in value.items())
    return repr(value)


Call = Callable[..., Any]
