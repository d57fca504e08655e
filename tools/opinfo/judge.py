"""Comparing what torch and minigrad gave: shapes, dtypes, values, shared memory; and what a refusal is worth."""

from __future__ import annotations

import linecache
import re
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import torch

import minigrad as mg
from tools.opinfo.bridge import DTYPES, array, leaves

PACKAGE = str(Path(mg.__file__).parent)
# relative to a value, and to the largest value of its result: float32 sums of a few thousand in another order
TOLERANCES = {"float64": 1e-9, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


def difference(theirs: Any, mine: Any, dtypes: bool = True) -> str | None:
    """What differs between two results, None where they are equal."""
    expected, got = leaves(theirs), leaves(mine)
    if len(expected) != len(got):
        return f"{len(expected)} results in torch, {len(got)} here"
    if _held(theirs) != _held(mine):
        return f"{_held(theirs)} in torch, {_held(mine)} here"
    for number, (one, other) in enumerate(zip(expected, got, strict=True)):
        found = _differs(one, other, dtypes)
        if found:
            return found if len(expected) == 1 else f"result {number}: {found}"
    return None


def _held(results: Any) -> str:
    """What holds several results: a list, a tuple, or one with these names."""
    if not isinstance(results, list | tuple):
        return "no tuple"
    kind = "list" if isinstance(results, list) else "tuple"
    return " ".join([f"a {kind}", *getattr(type(results), "__match_args__", ())])


def _differs(one: Any, other: Any, dtypes: bool) -> str | None:
    if isinstance(one, torch.Tensor) != isinstance(other, mg.Tensor):
        return f"{_kind(one)} in torch, {_kind(other)} here"
    if not isinstance(one, torch.Tensor):
        if isinstance(one, torch.dtype):
            one = DTYPES.get(one)
        same = one == other or (one != one and other != other)
        if isinstance(one, float) and not same:
            same = bool(np.isclose(one, other, rtol=1e-5))
        return None if same else f"{one} in torch, {other} here"
    if tuple(one.shape) != other.shape:
        return f"shape {list(one.shape)} in torch, {list(other.shape)} here"
    if dtypes and DTYPES.get(one.dtype) != other.dtype:
        return f"dtype {str(one.dtype).removeprefix('torch.')} in torch, {other.dtype.name} here"
    return apart(array(one), array(other))


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}"


def apart(expected: np.ndarray, got: np.ndarray, largest: float = 0.0, bound: float = 0.0) -> str | None:
    """Where two arrays of one shape differ by more than their dtype explains: the first such element.

    largest: of values that these were computed from; bound: relative, instead of the dtype's.
    """
    if not expected.size:
        return None
    dtypes = [str(values.dtype) for values in (got, expected)]
    bound = (bound or max(TOLERANCES.get(dtype, 0.0) for dtype in dtypes)) * any(d in TOLERANCES for d in dtypes)
    if not bound:
        unequal = expected != got
    else:
        expected, got = expected.astype(np.float64), got.astype(np.float64)
        finite = np.isfinite(expected)
        scale = np.max(np.abs(expected), where=finite, initial=largest)
        with np.errstate(invalid="ignore", over="ignore"):
            close = np.abs(expected - got) <= bound * (np.abs(expected) + min(scale, 1e30) + 1e-2)
        same = (expected == got) | (np.isnan(expected) & np.isnan(got))
        unequal = ~np.where(finite & np.isfinite(got), close, same)
    if not unequal.any():
        return None
    place = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(unequal)))
    one, other = (float(np.atleast_1d(values)[place]) for values in (expected, got))
    at = f" at {list(place)}" if np.ndim(unequal) else ""
    return f"{one:.9g} in torch, {other:.9g} here{at} ({int(unequal.sum())} of {unequal.size})"


def sharing(theirs: Any, mine: Any, pairs: list[tuple[torch.Tensor, mg.Tensor]]) -> str | None:
    """Does a result share an input's memory on one side only, or lie without gaps in torch only?"""
    for one, other in zip(leaves(theirs), leaves(mine), strict=True):
        if not isinstance(one, torch.Tensor) or not one.numel():
            continue
        for source, copy in pairs:
            if not source.numel():
                continue
            in_torch = one.untyped_storage().data_ptr() == source.untyped_storage().data_ptr()
            here = np.may_share_memory(array(other), array(copy))
            if in_torch != here and (in_torch or np.shares_memory(array(other), array(copy))):
                return f"{'a view' if in_torch else 'a copy'} in torch, {'a view' if here else 'a copy'} here"
        if one.is_contiguous() and not other.is_contiguous():
            return f"contiguous in torch, strides {list(other.stride())} here"
    return None


def refusal(error: BaseException) -> tuple[bool, str]:
    """Is it a refusal that was meant, in one sentence? Raised by minigrad's own `raise`, or by a call's signature."""
    sentence = f"{type(error).__name__}: {error}"
    frames = traceback.extract_tb(error.__traceback__)
    last = frames[-1]
    signature = isinstance(error, TypeError) and re.search(r"argument|positional", str(error)) is not None
    own = (
        last.filename.startswith(PACKAGE) and linecache.getline(last.filename, last.lineno or 0).strip()[:5] == "raise"
    )
    clear = (own or (signature and "numpy" not in last.filename)) and 0 < len(str(error)) < 500
    return bool(clear and "\n" not in str(error)), sentence.splitlines()[0][:300]
