"""Element types: their names, categories, and how two of them meet (torch's promotion rules).

A dtype is a numpy dtype. float32 is the default; float16 and bfloat16 are storage: arithmetic on them is done in
float32 and rounded once.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

float32, float64, float16 = np.dtype("float32"), np.dtype("float64"), np.dtype("float16")
int8, int16, int32, int64 = np.dtype("int8"), np.dtype("int16"), np.dtype("int32"), np.dtype("int64")
bfloat16 = np.dtype(ml_dtypes.bfloat16)  # 8 exponent bits, 8 significant bits
uint8, bool_ = np.dtype("uint8"), np.dtype("bool")

DEFAULT = float32


@lru_cache(maxsize=256)
def category(dtype: np.dtype) -> int:
    """0 bool, 1 integer, 2 floating. Raises TypeError for anything else: complex, strings, objects, more than 64 bits,
    and bytes in the order of another machine, which kernels would take for other numbers."""
    if not dtype.isnative:
        raise TypeError(f"the bytes of {dtype} are in the order of another machine: use .astype('{dtype.name}') first")
    if dtype.kind in "biuf" and dtype.itemsize <= 8:
        return {"b": 0, "i": 1, "u": 1, "f": 2}[dtype.kind]
    if dtype == bfloat16:
        return 2
    raise TypeError(f"minigrad has no dtype {dtype}; use bool, an integer type, float16, bfloat16, float32 or float64")


def resolve(dtype: Any) -> np.dtype:
    """A dtype of minigrad's, given as one, by name or as a type (float, np.float32). Raises TypeError for all else."""
    if not isinstance(dtype, np.dtype):
        if not isinstance(dtype, str | type):
            raise TypeError(f"a dtype is expected, like mg.float32, got {type(dtype).__name__}")
        try:
            dtype = np.dtype(dtype)
        except TypeError:
            raise TypeError(f"{dtype!r} is no dtype: use one like mg.float32") from None
    category(dtype)
    return dtype


def is_floating(dtype: np.dtype) -> bool:
    return dtype.kind == "f" or dtype == bfloat16


def is_half(dtype: np.dtype) -> bool:
    """float16 and bfloat16: stored, never computed in."""
    return dtype.itemsize == 2 and (dtype.kind == "f" or dtype == bfloat16)


@lru_cache(maxsize=1024)
def promote(a: np.dtype, b: np.dtype, a_is_scalar: bool = False, b_is_scalar: bool = False) -> np.dtype:
    """The dtype of a result of `a` and `b`: the higher category wins; within one, the wider type; a zero-dimensional
    operand counts only if its category is higher (torch's rule)."""
    if a == b:
        return a
    rank_a, rank_b = category(a), category(b)
    if rank_a != rank_b:
        return a if rank_a > rank_b else b
    if a_is_scalar != b_is_scalar:
        return b if a_is_scalar else a
    if is_half(a) and is_half(b):
        return float32
    if is_half(a) or is_half(b):
        return b if is_half(a) else a
    return np.promote_types(a, b)


def of_scalar(value: Any, other: np.dtype | None) -> np.dtype:
    """The dtype that the Python number `value` takes beside `other`: scalars are weak."""
    rank = 0 if isinstance(value, bool | np.bool_) else 1 if isinstance(value, int | np.integer) else 2
    if other is not None and category(other) >= rank:
        return other
    return (bool_, int64, DEFAULT)[rank]


@lru_cache(maxsize=256)
def largest(dtype: np.dtype) -> float:
    """The largest finite value of a floating dtype."""
    return float(ml_dtypes.finfo(dtype).max)


def scalar(value: Any, dtype: np.dtype, exact: bool = False) -> np.ndarray:
    """A Python number as a zero-dimensional array. A float too large for `dtype` is infinite there.

    Raises OverflowError for a value that an integer type does not hold (infinity and NaN too), and if `exact` for a
    finite float out of range.
    """
    if isinstance(value, float) and is_floating(dtype) and abs(value) > largest(dtype):
        if exact and not math.isinf(value):
            raise OverflowError(f"{value:g} is beyond the largest {name(dtype)}, {largest(dtype):g}: use float('inf')")
        value = math.copysign(math.inf, value)
    try:
        return np.array(value, dtype)
    except (OverflowError, ValueError):
        raise OverflowError(
            f"{value} is out of range for {name(dtype)}: convert the tensor with .to(dtype) first"
        ) from None


@lru_cache(maxsize=256)
def name(dtype: np.dtype) -> str:
    return str(dtype.name)
