"""A copy of a module that shares nothing with it.

`copy.deepcopy` keeps functions as they are: a lambda that a module made for itself goes on to call the parts of the
first module. Here such functions are made anew around the parts of the copy. And it asks each value for a method
`__deepcopy__`, which a dict with ``__getattr__ = dict.__getitem__``, a usual config, answers with a KeyError. The empty
tables of hooks, a dozen in each module and most of what is to be copied, are made without asking at all.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from types import CellType, FunctionType
from typing import Any

import torch
from torch import nn


def copied(module: nn.Module) -> nn.Module:
    """A deep copy, with the functions that its parts hold as attributes."""
    memo: dict[int, Any] = {}
    for part in module.modules():
        for value in vars(part).values():
            _copy_by_hand(value, memo)
    result = copy.deepcopy(module, memo)
    for part in result.modules():
        for name, value in vars(part).items():
            if isinstance(value, FunctionType) and _holds(value, memo):
                vars(part)[name] = _around(value, memo)
    return result


def in_dtype(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """The module itself with its floating tensors in a dtype, and complex ones, such as tables of rotations, as complex
    as before: `module.to(dtype)` would drop their imaginary parts."""
    wide = torch.complex128 if dtype is torch.float64 else torch.complex64

    def cast(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(dtype if tensor.is_floating_point() else wide if tensor.is_complex() else tensor.dtype)

    return module._apply(cast)


def _copy_by_hand(value: Any, memo: dict[int, Any]) -> None:
    """Put the copy of a value that cannot be asked for `__deepcopy__`, or need not be, into the memo, where deepcopy
    finds it."""
    if type(value) is OrderedDict and not value:
        memo[id(value)] = OrderedDict()
        return
    try:
        getattr(value, "__deepcopy__", None)
    except Exception:
        made = memo[id(value)] = dict.__new__(type(value)) if isinstance(value, dict) else value
        if isinstance(value, dict):
            for content in value.values():
                _copy_by_hand(content, memo)
            dict.update(made, copy.deepcopy(dict(value), memo))


def _holds(function: FunctionType, memo: dict[int, Any]) -> bool:
    """Does a function close over something that was copied?"""
    return any(id(content) in memo for content in map(_content, function.__closure__ or ()))


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def _around(function: FunctionType, memo: dict[int, Any]) -> FunctionType:
    held = [(cell, id(_content(cell))) for cell in function.__closure__ or ()]
    cells = tuple(CellType(memo[key]) if key in memo else cell for cell, key in held)
    result = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    result.__kwdefaults__ = function.__kwdefaults__
    return result
