"""What PyTorch tests its operators with: `op_db`, and minigrad's function for each entry that it has one for."""

from __future__ import annotations

import dis
import importlib.util
import sys
import unittest
import warnings
from collections.abc import Iterator
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

import numpy
import torch

import minigrad.torch as ours
from minigrad import Tensor

DTYPES = ("float64", "float32", "bfloat16", "float16", "int64", "int32", "int16", "int8", "uint8", "bool")


@cache
def database() -> list[Any]:
    """Every entry of torch's `op_db`. Its import wants `expecttest`, of which only a base class of tests is used."""
    if importlib.util.find_spec("expecttest") is None:
        bare: Any = ModuleType("expecttest")
        bare.TestCase = unittest.TestCase
        sys.modules["expecttest"] = bare
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return list(op_db)


def title(entry: Any) -> str:
    """An entry's name with its variant: "max.reduction_no_dim"."""
    return f"{entry.name}.{entry.variant_test_name}" if entry.variant_test_name else str(entry.name)


# results are arbitrary or random: their shapes and dtypes are compared
RANDOM = (
    "bernoulli", "empty", "empty_like", "empty_permuted", "empty_strided", "multinomial", "new_empty",
    "new_empty_strided", "normal", "rand_like", "randint", "randint_like", "randn", "randn_like", "uniform",
    "exponential", "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.alpha_dropout", "nn.functional.rrelu",
)  # fmt: skip
# equal elements may come in any order: (values, indices) or indices
ORDERS = ("sort", "argsort", "topk", "msort", "kthvalue", "median", "mode")

# entries whose name is not how a program writes the function
_SPELLED = {"bool": "Tensor.bool", "to": "Tensor.to", "item": "Tensor.item", "dtype": "", "float": "Tensor.float",
            "double": "Tensor.double", "half": "Tensor.half", "int": "Tensor.int", "long": "Tensor.long",
            "short": "Tensor.short"}  # fmt: skip


def namesake(entry: Any) -> Any:
    """minigrad's function under an entry's name, else its method, else None."""
    name = _SPELLED.get(entry.name, entry.name)
    written = _rewritten(entry.op)
    if written is not None:
        return written
    if name.startswith("Tensor."):
        return getattr(Tensor, name.removeprefix("Tensor."), None)
    found: Any = ours
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            return getattr(Tensor, name, None) if "." not in name else None
    return found if callable(found) else None


def _rewritten(function: Any) -> Any:
    """A small function of torch's tests (`lambda x: torch.sum(x, 0)`) with minigrad's names for torch's; None for what
    is no such function, or asks for a name that minigrad lacks."""
    if not isinstance(function, FunctionType) or not function.__module__.startswith("torch.testing."):
        return None
    if not _has(function.__code__):
        return None
    names = {**function.__globals__, "torch": ours, "np": numpy, "F": ours.nn.functional}
    made = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def _has(code: Any) -> bool:
    """Does the stand-in have every name that follows `torch.` in this code?"""
    place: Any = None
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_GLOBAL" and step.argval in ("torch", "F"):
            place = ours if step.argval == "torch" else ours.nn.functional
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD") and place is not None:
            try:
                place = getattr(place, step.argval)
            except AttributeError:
                return False
            place = place if isinstance(place, ModuleType) else None
        elif step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            if hasattr(torch.Tensor, step.argval) and not hasattr(Tensor, step.argval):
                return False
        elif step.opname not in ("PRECALL", "CACHE"):
            place = None
    return True


def dtypes_of(entry: Any) -> list[torch.dtype]:
    """Those that both torch and minigrad have for an entry."""
    supported = entry.supported_dtypes("cpu")
    return [dtype for dtype in (getattr(torch, name) for name in DTYPES) if dtype in supported]


def inputs(entry: Any, dtype: torch.dtype, gradient: bool, reference: bool) -> Iterator[Any]:
    """Samples of an entry; `reference` adds those with which torch holds its kernels to numpy."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        make = entry.reference_inputs if reference else entry.sample_inputs
        yield from make("cpu", dtype, requires_grad=gradient)


def errors(entry: Any) -> Iterator[Any]:
    """Calls that torch refuses."""
    if entry.error_inputs_func is not None:
        torch.manual_seed(0)
        yield from entry.error_inputs("cpu")
