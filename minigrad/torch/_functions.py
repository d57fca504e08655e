"""torch's functions that minigrad lacks, as functions and as methods of tensors.

A tensor of the stand-in is a minigrad tensor, so importing `minigrad.torch` adds METHODS to that class; what minigrad
itself has stays as it is.
"""

from __future__ import annotations

from typing import Any

from minigrad import Tensor, dtypes, inplace
from minigrad.torch import _arithmetic as arithmetic
from minigrad.torch import _creation
from minigrad.torch import _shapes as shapes
from minigrad.torch import _statistics as statistics


def _like(make: Any) -> Any:
    def method(self: Tensor, *size: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
        made = make(*size, dtype=dtype or self.dtype, device=device)
        return made.requires_grad_(requires_grad)

    return method


def new_full(
    self: Tensor, size: Any, fill_value: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    return _creation.full(size, fill_value, dtype=dtype or self.dtype, device=device, requires_grad=requires_grad)


def new_tensor(self: Tensor, data: Any, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    return _creation.tensor(data, dtype=dtype or self.dtype, device=device, requires_grad=requires_grad)


def type_(self: Tensor, dtype: Any) -> Tensor:
    """In another dtype. (Its name, without an argument, is not given: write .dtype.)"""
    return self.to(dtype)


def zero_(input: Tensor) -> Tensor:
    """0 everywhere, in place."""
    return input.zero_()


_NAMES = {
    arithmetic: "logical_not logical_and logical_or logical_xor isclose addmm addmv addbmm baddbmm mv lerp "
    "addcmul addcdiv clamp_min clamp_max trunc fix frac fmod nan_to_num positive logaddexp atan tan sinh cosh exp2 "
    "bitwise_not bitwise_and bitwise_or bitwise_xor",
    shapes: "movedim swapaxes tile ravel reshape_as fliplr flipud select tensor_split take index_copy index_add "
    "index_fill take_along_dim diag diag_embed",
    statistics: "median cummax cummin cumprod diff count_nonzero nonzero masked_select unique bincount",
}
METHODS: dict[str, Any] = {name: getattr(module, name) for module, names in _NAMES.items() for name in names.split()}
METHODS |= {
    "new_zeros": _like(_creation.zeros),
    "new_ones": _like(_creation.ones),
    "new_empty": _like(_creation.empty),
    "new_full": new_full,
    "new_tensor": new_tensor,
    "swapdims": shapes.swapaxes,
    "moveaxis": shapes.movedim,
    "type": type_,
    "short": lambda self: self.to(dtypes.int16),
    "nelement": Tensor.numel,
    "ndimension": Tensor.dim,
    "bmm": Tensor.matmul,
    "mm": Tensor.matmul,
    "divide": Tensor.div,
    "true_divide": Tensor.div,
    "multiply": Tensor.mul,
    "subtract": Tensor.sub,
    "negative": Tensor.neg,
    "absolute": Tensor.abs,
    "clip": Tensor.clamp,
}


def _in_place(function: Any) -> Any:
    def method(self: Tensor, *args: Any, **keywords: Any) -> Tensor:
        return inplace.write(self, function(self, *args, **keywords))

    return method


_CHANGING = (
    "lerp addcmul addcdiv index_fill index_add index_copy addmm addmv addbmm baddbmm clamp_min clamp_max clip "
    "trunc frac fmod nan_to_num logical_not logical_and logical_or logical_xor bitwise_not bitwise_and bitwise_or "
    "bitwise_xor cumprod multiply divide subtract negative absolute"
)
METHODS |= {f"{name}_": _in_place(METHODS[name]) for name in _CHANGING.split()}


def give_methods() -> None:
    """Add METHODS to the class of tensors, where it has no method of that name."""
    for name, method in METHODS.items():
        if not hasattr(Tensor, name):
            setattr(Tensor, name, method)
