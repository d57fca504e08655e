"""torch's functions that choose, count and order values and that minigrad lacks, composed of its ops.

Where a shape or an index depends on values, numpy finds it: such a function cannot be traced, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

import minigrad
from minigrad import Tensor, dtypes
from minigrad.ops import rules
from minigrad.ops.arguments import expect_tensors
from minigrad.ops.reduce import Chosen

# --- moments -----------------------------------------------------------------------------------------------


def var_mean(
    input: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: Any = None
) -> tuple[Tensor, Tensor]:
    """(variance, mean) over `dim`."""
    return _with_mean(minigrad.var, input, dim, unbiased, keepdim, correction)


def std_mean(
    input: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: Any = None
) -> tuple[Tensor, Tensor]:
    """(standard deviation, mean) over `dim`."""
    return _with_mean(minigrad.std, input, dim, unbiased, keepdim, correction)


def _with_mean(
    spread: Any, x: Tensor, dim: Any, unbiased: bool, keepdim: bool, correction: Any
) -> tuple[Tensor, Tensor]:
    if isinstance(dim, bool):
        dim, unbiased = None, dim
    return spread(x, dim, keepdim, unbiased, correction), x.mean(dim, keepdim)


def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of all elements; or (values, indices) along `dim`. NaN where there is one.

    Raises ValueError along an empty dimension.
    """
    if dim is None:
        if not input.numel():
            return minigrad.full((), float("nan"), dtype=input.dtype)
        return median(input.reshape(-1), 0).values
    d = rules.normalise_dim(dim, input.ndim)
    if not input.ndim:
        return Chosen(input.clone(), minigrad.zeros(dtype=dtypes.int64))
    if not input.shape[d]:
        raise ValueError(f"median: nothing to choose from along dimension {dim} of {list(input.shape)}")
    order = minigrad.argsort(input.detach(), d)
    place = order.narrow(d, (input.shape[d] - 1) // 2, 1)
    if dtypes.is_floating(input.dtype):
        missing = input.detach().isnan()
        first = minigrad.argmax(missing.to(dtypes.int8), d, keepdim=True)
        place = minigrad.where(missing.any(d, keepdim=True), first, place)
    values = input.gather(d, place)
    return Chosen(values, place.clone()) if keepdim else Chosen(values.squeeze(d), place.squeeze(d).clone())


def cummax(input: Tensor, dim: int) -> Chosen:
    """(running largest, where it stands) along `dim`; of equal ones the last."""
    return _running(input, dim, minigrad.ge)


def cummin(input: Tensor, dim: int) -> Chosen:
    """(running smallest, where it stands) along `dim`; of equal ones the last."""
    return _running(input, dim, minigrad.le)


def _running(input: Tensor, dim: int, better: Callable[[Tensor, Tensor], Tensor]) -> Chosen:
    """The best of all before each element in log2(n) steps: of 2, of 4, of 8, ... elements. NaN is the best."""
    d = rules.normalise_dim(dim, input.ndim)
    if not input.ndim:
        return Chosen(input.clone(), minigrad.zeros(dtype=dtypes.int64))
    n, values = input.shape[d], input.detach()
    places = minigrad.arange(n).reshape([n if i == d else 1 for i in range(input.ndim)]).expand(input.shape)
    reach = 1
    while reach < n:
        before, after = values.narrow(d, 0, n - reach), values.narrow(d, reach, n - reach)
        later = (after != after) | ((before == before) & better(after, before))
        place = minigrad.where(later, places.narrow(d, reach, n - reach), places.narrow(d, 0, n - reach))
        places = minigrad.cat([places.narrow(d, 0, reach), place], d)
        values = minigrad.cat([values.narrow(d, 0, reach), minigrad.where(later, after, before)], d)
        reach *= 2
    return Chosen(input.gather(d, places), places.contiguous())


def cumprod(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Running products along `dim`; booleans and integers are multiplied in int64."""
    wanted = dtype or (input.dtype if dtypes.is_floating(input.dtype) else dtypes.int64)
    x = input.to(wanted)
    d = rules.normalise_dim(dim, x.ndim)
    if not x.numel() or not x.ndim:
        return x.clone()
    if dtypes.is_half(wanted):
        return cumprod(x.float(), d).to(wanted)
    done: list[Tensor] = []
    for part in x.unbind(d):
        done.append(part if not done else done[-1] * part)
    return minigrad.stack(done, d)


def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Each element's difference to the one before it along `dim`, `n` times. Raises ValueError without dimensions."""
    if not input.ndim:
        raise ValueError("diff needs at least 1 dimension, got 0")
    if n < 0:
        raise ValueError(f"diff: n must not be negative, got {n}")
    d = rules.normalise_dim(dim, input.ndim)
    if n == 0:
        return input.clone()
    if prepend is not None or append is not None:
        input = minigrad.cat([x for x in (prepend, input, append) if x is not None], d)
    for _ in range(min(n, input.shape[d])):
        size = input.shape[d] - 1
        after, before = input.narrow(d, min(1, size + 1), max(size, 0)), input.narrow(d, 0, max(size, 0))
        input = after ^ before if input.dtype == dtypes.bool_ else after - before
    return input


def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None) -> Tensor:
    """minigrad.multinomial of weights ``(V,)`` or ``(N, V)``. Raises ValueError for other shapes."""
    if input.ndim not in (1, 2):
        raise ValueError(f"multinomial: weights must be (V,) or (N, V), got {list(input.shape)}")
    return minigrad.multinomial(input, num_samples, replacement, generator)


# --- counts and places: shapes depend on values, so none of these can be traced -------------------------------


def count_nonzero(input: Tensor, dim: Any = None) -> Tensor:
    return input.bool().sum(dim)


def nonzero(input: Tensor, as_tuple: bool = False) -> Any:
    """The indices of what is not zero, int64 ``(n, dims)``; a tensor for each dimension with `as_tuple`."""
    values = input.detach().numpy()
    found = np.nonzero(np.atleast_1d(values))
    if as_tuple:
        return tuple(minigrad.from_numpy(indices.astype(np.int64)) for indices in found)
    places = np.zeros((len(found[0]), values.ndim), np.int64)
    for d in range(values.ndim):
        places[:, d] = found[d]
    return minigrad.from_numpy(places)


def masked_select(input: Tensor, mask: Tensor) -> Tensor:
    """The elements where `mask`, one after the other. Raises TypeError for a mask that is not bool."""
    if mask.dtype != dtypes.bool_:
        raise TypeError(f"masked_select: the mask must be bool, got {dtypes.name(mask.dtype)}")
    shape = np.broadcast_shapes(input.shape, mask.shape)
    return minigrad.broadcast_to(input, shape)[minigrad.broadcast_to(mask, shape)].reshape(-1)


def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The different elements (slices along `dim`) in order; with their places and their counts if asked for."""
    values = input.detach().numpy()
    if dim is not None:
        dim = rules.normalise_dim(dim, input.ndim)
        if not input.ndim:
            values, dim = values.reshape(1), 0
        if 0 in values.shape and values.shape[dim]:
            raise ValueError(f"unique: slices along dimension {dim} of {list(input.shape)} are empty")
    found, inverse, counts = np.unique(values, return_inverse=True, return_counts=True, axis=dim, equal_nan=False)
    arrays = [found]
    if return_inverse:
        arrays.append(inverse.reshape(values.shape if dim is None else -1).astype(np.int64))
    if return_counts:
        arrays.append(counts.astype(np.int64))
    tensors = [minigrad.from_numpy(np.array(array, order="C")) for array in arrays]
    return tensors[0] if len(tensors) == 1 else tuple(tensors)


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """How often each of 0, 1, ... occurs, or the sum of its weights. Raises ValueError for negative ones."""
    values = input.numpy()
    if values.size and values.min() < 0:
        raise ValueError(f"bincount counts numbers from 0 on, got {values.min()}")
    given = None if weights is None else weights.detach().numpy()
    found = np.bincount(values, given, minlength)
    kind = np.int64 if given is None else np.float32 if given.dtype == np.float32 else np.float64
    return minigrad.from_numpy(found.astype(kind))


def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    """Which elements are among `test_elements`."""
    one, other = (x.detach().numpy() if isinstance(x, Tensor) else np.asarray(x) for x in (elements, test_elements))
    return minigrad.from_numpy(np.asarray(np.isin(one, other, invert=invert)))


def searchsorted(
    sorted_sequence: Tensor,
    input: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor:
    """Where values would stand in sorted rows ``(..., n)``: before equal ones, or behind them if `right`; the rows are
    sorted, or are in the order of `sorter`.

    Raises ValueError for a `side` that contradicts `right` and for rows that do not fit.
    """
    if side not in (None, "left", "right") or (side == "left" and right):
        raise ValueError(f"searchsorted: side {side!r} is not 'left' or 'right', or contradicts right={right}")
    rows = sorted_sequence.detach().numpy()
    values = input.detach().numpy() if isinstance(input, Tensor) else np.asarray(input)
    where: Any = "right" if right or side == "right" else "left"
    if sorter is not None:
        if sorter.shape != sorted_sequence.shape or sorter.dtype != dtypes.int64:
            raise ValueError(f"searchsorted: the sorter must be int64 of shape {list(sorted_sequence.shape)}")
        rows = np.take_along_axis(rows, sorter.numpy(), -1)
    if rows.ndim == 1:
        found = np.searchsorted(rows, values, where)
    elif rows.shape[:-1] != values.shape[:-1]:
        raise ValueError(f"searchsorted: rows {list(rows.shape)} and values {list(values.shape)} do not fit")
    else:
        lines = math.prod(rows.shape[:-1])
        flat, many = rows.reshape(lines, rows.shape[-1]), values.reshape(lines, values.shape[-1])
        parts: Any = [np.searchsorted(row, some, where) for row, some in zip(flat, many, strict=True)]
        found = np.array(parts, np.int64).reshape(values.shape)
    return minigrad.from_numpy(np.asarray(found, np.int32 if out_int32 else np.int64))


expect_tensors(globals())
