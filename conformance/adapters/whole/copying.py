"""A copy of a module that shares nothing with it but what nobody can copy, such as a lock.

`copy.deepcopy` keeps functions as they are: a lambda that a module made for itself goes on to call the parts of the
first module. Here such functions are made anew around the parts of the copy. And it asks each value for a method
`__deepcopy__`, which a dict with ``__getattr__ = dict.__getitem__``, a usual config, answers with a KeyError. Modules
that say nothing of their own about copying, nearly all, are copied attribute by attribute, in half of the time.
"""

from __future__ import annotations

import copy
import copyreg
import gc
import re
from collections import OrderedDict
from collections.abc import Iterator
from types import CellType, FunctionType, ModuleType, NoneType
from typing import Any

import torch
from torch import Tensor, nn


def copied(module: nn.Module) -> nn.Module:
    """A deep copy, with the functions that its parts hold as attributes."""
    memo: dict[int, Any] = {}
    parts = list(module.modules())
    plain: list[tuple[nn.Module, nn.Module]] = []
    for part in parts:
        kind: type[nn.Module] = part.__class__
        if _is_plain(kind):
            plain.append((part, object.__new__(kind)))
    memo |= {id(part): made for part, made in plain}
    for part in parts:
        for value in vars(part).values():
            _copy_by_hand(value, memo)
    for part, made in plain:
        vars(made).update({name: _copy(value, memo) for name, value in part.__getstate__().items()})
    result: nn.Module = copy.deepcopy(module, memo)
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


def main_dtype(module: nn.Module) -> torch.dtype:
    """The dtype of its first floating parameters."""
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)


def in_main_dtype(module: nn.Module, dtype: torch.dtype) -> nn.Module:
    """The module itself with its main dtype; as it is where it has that already, with others beside it."""
    return module if main_dtype(module) is dtype else in_dtype(module, dtype)


def _is_plain(kind: type[nn.Module]) -> bool:
    """Whether modules of a class are copied as `copy.deepcopy` copies any module: all that is in their `__dict__`."""
    own = ("__reduce_ex__", "__reduce__", "__getstate__", "__setstate__", "__new__")
    return (
        not hasattr(kind, "__deepcopy__")
        and all(getattr(kind, name) is getattr(nn.Module, name) for name in own)
        and kind not in copyreg.dispatch_table
        and not any("__slots__" in vars(one) for one in kind.__mro__)
    )


def _copy(value: Any, memo: dict[int, Any]) -> Any:
    """As `copy.deepcopy`, without its questions where the answer is known."""
    if type(value) in (bool, int, float, str, NoneType, FunctionType):
        return value
    if type(value) is not dict or id(value) in memo:
        return memo[id(value)] if id(value) in memo else _deep(value, memo)
    made = memo[id(value)] = {}
    made |= {copy.deepcopy(key, memo): _copy(content, memo) for key, content in value.items()}
    return made


def _deep(value: Any, memo: dict[int, Any]) -> Any:
    """As `copy.deepcopy`. What nobody can copy, such as a lock somewhere inside, is the same in the copy; all around it
    is copied."""
    while True:
        known = len(memo)
        try:
            return copy.deepcopy(value, memo)
        except TypeError as error:
            for key in list(memo)[known:]:
                del memo[key]  # the halves that an attempt leaves behind
            kind = re.search(r"cannot pickle '([\w.]+)' object", str(error))
            found = {id(one): one for one in _inside(value) if kind and type(one).__name__ == kind[1].split(".")[-1]}
            if not found.keys() - memo.keys():
                raise
            memo |= found


def _inside(value: Any) -> Iterator[Any]:
    """An object and all that it holds, but for what is of the program: classes, functions, modules."""
    waiting, seen = [value], set[int]()
    while waiting:
        one = waiting.pop()
        if id(one) not in seen and not isinstance(one, (type, FunctionType, ModuleType)):
            seen.add(id(one))
            yield one
            waiting += gc.get_referents(one)


def _copy_by_hand(value: Any, memo: dict[int, Any]) -> None:
    """Put the copy of a value that cannot be asked for `__deepcopy__`, or need not be, into the memo, where deepcopy
    finds it. Of a tensor that was computed from parameters, its numbers are copied."""
    for one in value if type(value) in (list, tuple) else value.values() if type(value) is dict else (value,):
        if isinstance(one, Tensor) and one.grad_fn is not None:
            memo[id(one)] = one.detach().clone()
    if id(value) in memo:
        return
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
