"""Reductions and scans: sum, mean, max, min, variance, cumulative sums, argmax, sorting.

`dim` may be None (all dimensions), one or several."""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, NamedTuple, ParamSpec

import numpy as np

from minigrad import dtypes
from minigrad.ops import rules
from minigrad.ops.along import gather
from minigrad.ops.arguments import expect_tensors
from minigrad.ops.copies import clone, filled
from minigrad.ops.derivation import derive
from minigrad.ops.elementwise import maximum, minimum
from minigrad.ops.joins import stack
from minigrad.ops.logic import isfinite, isnan
from minigrad.ops.operands import as_operand, cast
from minigrad.ops.registry import ANY_DTYPE, DOUBLES, Array, Meta, Op, Sample, op
from minigrad.ops.rules import normalise_dim, normalise_dims, reduced
from minigrad.ops.selection import where
from minigrad.ops.shape import broadcast_to, reshape, squeeze
from minigrad.tensor import Tensor

Dims = int | Sequence[int] | None
P = ParamSpec("P")


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    for shape, dims, keepdim in (
        ((3, 4), (1,), False),
        ((2, 3, 4), (0, 2), True),
        ((3, 4), (0, 1), False),
        ((), (), True),
    ):
        yield (rng.permutation(int(np.prod(shape))).reshape(shape) * 0.5 - 1,), {"dims": dims, "keepdim": keepdim}


def _shape(metas: Sequence[Meta], *, dims: tuple[int, ...], keepdim: bool) -> list[Meta]:
    return [(reduced(metas[0][0], dims, keepdim), metas[0][1])]


def _spread(g: Tensor, shape: tuple[int, ...], dims: tuple[int, ...]) -> Tensor:
    """A reduced value laid out over the shape it was reduced from."""
    return broadcast_to(reshape(g, reduced(shape, dims, True)), shape)


# --- sums -------------------------------------------------------------------------------------------

sum_op = op(
    "sum",
    lambda x, *, dims, keepdim: np.sum(x, axis=dims, keepdims=keepdim, dtype=x.dtype),
    {"x": lambda g, x_shape, dims: _spread(g, x_shape, dims)},
    shape=_shape,
    flops=rules.per_input(1),
    samples=_samples,
    formula="sum over dims of x",
    kernels={"numba.sums": "float32", "cuda.reductions": ANY_DTYPE},
    derivation=derive("y = sum_i x_i, so dy = sum_i dx_i: every x_i gets the whole g", x="spread(g, x, dims)"),
)


def _adding(x: Tensor, dtype: np.dtype | None) -> np.dtype:
    """The dtype in which elements of `x` are added or multiplied, `dtype` where it is given."""
    return dtype or (x.array.dtype if dtypes.is_floating(x.array.dtype) else dtypes.int64)


def sum(x: Tensor, dim: Dims = None, keepdim: bool = False, dtype: np.dtype | None = None) -> Tensor:
    """The sum over `dim`; booleans and integers add up in int64."""
    x = as_operand(x)
    return sum_op(cast(x, dtype=_adding(x, dtype)), dims=normalise_dims(dim, x.array.ndim), keepdim=bool(keepdim))


def _count(shape: tuple[int, ...], dims: tuple[int, ...]) -> int:
    return int(np.prod([shape[d] for d in dims], dtype=np.int64))


def mean(x: Tensor, dim: Dims = None, keepdim: bool = False, dtype: np.dtype | None = None) -> Tensor:
    """The mean over `dim` (NaN over nothing). Raises TypeError for integers: convert first."""
    x = as_operand(x) if dtype is None else cast(as_operand(x), dtype=dtype)
    if not dtypes.is_floating(x.array.dtype):
        raise TypeError(f"mean needs a floating tensor, got {dtypes.name(x.array.dtype)}: convert it with .float()")
    return _mean(x, normalise_dims(dim, x.array.ndim), bool(keepdim))


def rounded_once(steps: Callable[Concatenate[Tensor, P], Tensor]) -> Callable[Concatenate[Tensor, P], Tensor]:
    """A function of several ops that takes half types through float32 and rounds at the end, as one op does."""

    @functools.wraps(steps)
    def call(x: Tensor, *args: P.args, **keywords: P.kwargs) -> Tensor:
        dtype = x.array.dtype
        if not dtypes.is_half(dtype):
            return steps(x, *args, **keywords)
        return cast(steps(cast(x, dtype=dtypes.float32), *args, **keywords), dtype=dtype)

    return call


@rounded_once
def _mean(x: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    return sum_op(x, dims=dims, keepdim=keepdim) / float(_count(x.array.shape, dims))


def _deviations(
    x: Tensor, dim: Dims | bool, unbiased: bool, correction: float | None
) -> tuple[Tensor, tuple[int, ...], float]:
    """x minus its mean over `dim`, the dimensions, and what the sum of squares is divided by.

    The mean is rounded; where it is far from zero the deviations all miss the same amount, which their mean is.
    """
    if isinstance(dim, bool):  # x.var(False)
        unbiased = dim
        dim = None
    if not dtypes.is_floating(x.array.dtype):
        raise TypeError(f"var and std need a floating tensor, got {dtypes.name(x.array.dtype)}: use .float()")
    dims = normalise_dims(dim, x.array.ndim)
    less = (1 if unbiased else 0) if correction is None else correction
    centred = x - mean(x, dims, keepdim=True)
    return centred, dims, float(builtins.max(_count(x.array.shape, dims) - less, 0))


@rounded_once
def var(
    x: Tensor,
    dim: Dims | bool = None,
    keepdim: bool = False,
    unbiased: bool = True,
    correction: float | None = None,
) -> Tensor:
    """The variance over `dim`; divided by n - 1, or by n if not `unbiased` (or by n - correction).

    `x.var(False)` is the one over all elements that is not unbiased. Raises TypeError for integers.
    """
    centred, dims, count = _deviations(x, dim, unbiased, correction)
    missed = sum(centred, dims, keepdim)
    squares = sum(centred * centred, dims, keepdim)
    size = _count(x.array.shape, dims)
    return (squares - missed * missed / float(size) if size else squares) / count


@rounded_once
def std(
    x: Tensor,
    dim: Dims | bool = None,
    keepdim: bool = False,
    unbiased: bool = True,
    correction: float | None = None,
) -> Tensor:
    """The square root of `var`, also where squares overflow; its gradient where all elements are equal is 0."""
    centred, dims, count = _deviations(x, dim, unbiased, correction)
    centred = centred - mean(centred, dims, keepdim=True)
    return norm(centred, dim=dims, keepdim=keepdim) / count**0.5


prod_op = op(
    "prod",
    lambda x, *, dims, keepdim: np.prod(x, axis=dims, keepdims=keepdim, dtype=x.dtype),
    {"x": lambda g, x, dims: _prod_vjp(g, x, dims)},
    shape=_shape,
    flops=rules.per_input(1),
    samples=_samples,
    formula="product over dims of x",
    kernels={"cuda.reductions": ANY_DTYPE},
    derivation=derive(
        "y = prod_i x_i, so dy = sum_i (product of all but x_i) dx_i",
        "the product of the others is y / x_i where x_i is not 0; the rule multiplies from both sides, exact at 0, too",
        x="spread(g, x, dims) * spread(y, x, dims) / x",
        example=lambda: ([np.array([[0.5, 2.0, -1.0], [1.5, -0.4, 3.0]])], {"dims": (1,), "keepdim": False}),
    ),
)


def _prod_vjp(g: Tensor, x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Each element's gradient is the product of the others: running products from both sides, exact also at zeros."""
    shape = x.array.shape
    if not x.array.size:
        return _spread(g, shape, dims)
    kept = [d for d in range(len(shape)) if d not in dims]
    rows = reshape(x.permute(*kept, *dims), *[shape[d] for d in kept], -1) if shape else reshape(x, 1)
    n = rows.array.shape[-1]
    before, after = [], []
    left = right = filled(rows.array.shape[:-1], 1, x.array.dtype, x.storage.device)
    for i in range(n):
        before.append(left)
        after.append(right)
        left, right = left * rows[..., i], right * rows[..., n - 1 - i]
    others = stack([b * a for b, a in zip(before, reversed(after), strict=True)], -1)
    others = reshape(others, *[shape[d] for d in kept], *[shape[d] for d in dims])
    return _spread(g, shape, dims) * (others.permute(*np.argsort([*kept, *dims])) if shape else reshape(others, ()))


def prod(x: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: np.dtype | None = None) -> Tensor:
    """The product over `dim`; booleans and integers are multiplied in int64."""
    x = cast(x, dtype=_adding(x, dtype))
    return prod_op(x, dims=normalise_dims(dim, x.array.ndim), keepdim=bool(keepdim))


# --- largest and smallest ---------------------------------------------------------------------------


def _extreme_vjp(g: Tensor, x: Tensor, out: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Ties share the gradient equally."""
    hit = cast(x == _spread(out, x.array.shape, dims), dtype=g.array.dtype)
    share = hit / sum_op(hit, dims=dims, keepdim=True)
    return _spread(g, x.array.shape, dims) * share


_EXTREME = derive(
    "y = x_k for the chosen k, so dy = dx_k",
    "where several are equal they share the gradient",
    let={"hit": "x == spread(y, x, dims)"},
    x="spread(g, x, dims) * hit / sum(hit, dims)",
)


def _extreme_op(name: str, function: Any, formula: str) -> Op:
    return op(
        name,
        lambda x, *, dims, keepdim: function(x, axis=dims, keepdims=keepdim),
        {"x": _extreme_vjp},
        shape=_shape,
        flops=rules.per_input(1),
        samples=_samples,
        formula=formula,
        kernels={"cuda.reductions": ANY_DTYPE},
        derivation=_EXTREME,
    )


amax_op = _extreme_op("amax", np.max, "the largest over dims of x")
amin_op = _extreme_op("amin", np.min, "the smallest over dims of x")


def _not_empty(name: str, x: Tensor, dims: tuple[int, ...]) -> tuple[int, ...]:
    if 0 in [x.array.shape[d] for d in dims]:
        raise ValueError(f"{name}: nothing to choose from along an empty dimension of shape {list(x.array.shape)}")
    return dims


def amax(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The largest over `dim`; ties share the gradient. Raises ValueError over nothing."""
    return amax_op(x, dims=_not_empty("amax", x, normalise_dims(dim, x.array.ndim)), keepdim=bool(keepdim))


def amin(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The smallest over `dim`; ties share the gradient. Raises ValueError over nothing."""
    return amin_op(x, dims=_not_empty("amin", x, normalise_dims(dim, x.array.ndim)), keepdim=bool(keepdim))


_INDEX = derive("the result is an index, an integer that stays when x moves a little: no gradient flows through it")


def _arg(name: str, function: Any, formula: str, kernels: Mapping[str, str]) -> Op:
    return op(
        name,
        lambda x, *, dim, keepdim: np.asarray(function(x, axis=dim if x.ndim else None, keepdims=keepdim), np.int64),
        shape=lambda metas, *, dim, keepdim: [(reduced(metas[0][0], (dim,), keepdim), dtypes.int64)],
        flops=rules.per_input(1), samples=lambda rng: [((rng.standard_normal((3, 4)),), {"dim": 1, "keepdim": False})],
        formula=formula, differentiable=False, kernels={"cuda.reductions": ANY_DTYPE, **kernels}, derivation=_INDEX,
    )  # fmt: skip


_argmax_op = _arg("argmax", np.argmax, "the index of the largest along dim", {"numba.argmax": "float32"})
_argmin_op = _arg("argmin", np.argmin, "the index of the smallest along dim", {})


def _arg_along(chosen: Op, x: Tensor, dim: int | None, keepdim: bool) -> Tensor:
    if dim is None:
        flat = _arg_along(chosen, reshape(x, -1), 0, False)
        return reshape(flat, (1,) * x.array.ndim) if keepdim else flat
    d = normalise_dim(dim, x.array.ndim)
    if x.array.ndim:
        _not_empty(chosen.name, x, (d,))
    return chosen(x, dim=d, keepdim=bool(keepdim))


def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index (int64) of the first largest along `dim`, or in the flattened tensor. ValueError over nothing."""
    return _arg_along(_argmax_op, x, dim, keepdim)


def argmin(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index (int64) of the first smallest along `dim`, or in the flattened tensor. ValueError over nothing."""
    return _arg_along(_argmin_op, x, dim, keepdim)


class Chosen(NamedTuple):
    """What `max`, `min`, `sort` and `topk` along a dimension return."""

    values: Tensor
    indices: Tensor


def max(x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """The largest of all; or (values, indices) along `dim`; or elementwise with another tensor."""
    return _extreme(x, dim, keepdim, amax, argmax, maximum)


def min(x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """The smallest of all; or (values, indices) along `dim`; or elementwise with another tensor."""
    return _extreme(x, dim, keepdim, amin, argmin, minimum)


def _extreme(x: Tensor, dim: Any, keepdim: bool, value: Any, index: Any, elementwise: Any) -> Any:
    if isinstance(dim, Tensor):
        return elementwise(x, dim)
    if dim is None:
        return value(x)
    place = index(x, dim, keepdim=True)
    chosen = gather(x, dim, place) if x.array.ndim else clone(x)
    return Chosen(chosen, place) if keepdim or not x.array.ndim else Chosen(squeeze(chosen, dim), squeeze(place, dim))


def _over_none(dim: Dims) -> bool:
    """Is it `()`? In torch that means all dimensions elsewhere, but none to `all` and `any`."""
    return isinstance(dim, list | tuple) and not dim


def _truth(x: Tensor) -> np.dtype:
    """The dtype of the answers of `all` and `any`: bool, but for uint8, whose answers are 0 and 1, as in torch."""
    return dtypes.uint8 if x.array.dtype == dtypes.uint8 else dtypes.bool_


def all(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Is every element along `dim` true (not zero)? Without any dimension, `dim=()`, that is asked of each element."""
    true = x != 0
    if not _over_none(dim):
        true = amin(true, dim, keepdim) if x.array.size else sum(true, dim, keepdim) == 0
    return cast(true, dtype=_truth(x))


def any(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Is some element along `dim` true (not zero)? Without any dimension, `dim=()`, that is asked of each element."""
    true = x != 0
    if not _over_none(dim):
        true = amax(true, dim, keepdim) if x.array.size else sum(true, dim, keepdim) > 0
    return cast(true, dtype=_truth(x))


def equal(a: Tensor, b: Tensor) -> bool:
    """Do two tensors have one shape and the same values?"""
    return a.array.shape == b.array.shape and builtins.bool(all(a == b))


def allclose(a: Tensor, b: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Is |a - b| <= atol + rtol |b| everywhere (equal infinities count as close; NaN only if `equal_nan`)?"""
    close = ((a - b).abs() <= atol + rtol * b.abs()) & isfinite(b) | (a == b)
    return builtins.bool(all(close | (isnan(a) & isnan(b)) if equal_nan else close))


def _norm_vjp(g: Tensor, x: Tensor, out: Tensor, dims: tuple[int, ...]) -> Tensor:
    length = _spread(out, x.array.shape, dims)
    return _spread(g, x.array.shape, dims) * where(length == 0, 0.0, x / where(length == 0, 1.0, length))


def _norm(x: Array, *, dims: tuple[int, ...], keepdim: bool) -> Array:
    """Squares that float32 does not hold, or holds with few digits only, are added up in float64."""
    length = np.sqrt(np.sum(x * x, axis=dims, keepdims=keepdim, dtype=x.dtype))
    if x.dtype == np.float32 and not ((length > 1e-15) & (length < 1e18)).all():
        length = np.sqrt(np.sum(np.square(x, dtype=np.float64), axis=dims, keepdims=keepdim)).astype(np.float32)
    return length


norm_op = op(
    "norm",
    _norm,
    {"x": _norm_vjp},
    shape=_shape,
    flops=rules.per_input(2),
    samples=_samples,
    formula="sqrt of the sum over dims of x^2; the gradient at 0 is 0",
    kernels={"cuda.reductions": DOUBLES},
    derivation=derive(
        "y^2 = sum_i x_i^2, so 2 y dy = sum_i 2 x_i dx_i",
        "where y = 0 it has a corner, and the slope is taken as 0",
        x="spread(g, x, dims) * x / spread(y, x, dims)",
    ),
)


def norm(
    x: Tensor, p: float | str = 2, dim: Dims = None, keepdim: bool = False, *, dtype: np.dtype | None = None
) -> Tensor:
    """(sum |x|^p)^(1/p) over `dim`, Euclidean unless p is given; the largest |x| for p = inf, the smallest for -inf,
    how many are not 0 for p = 0. The gradient of the Euclidean norm at 0 is 0.

    Raises ValueError for other names than "fro", the Euclidean norm, TypeError for integers without a floating `dtype`.
    """
    x = as_operand(x) if dtype is None else cast(as_operand(x), dtype=dtype)
    if not dtypes.is_floating(x.array.dtype):
        raise TypeError(f"norm needs a floating tensor, got {dtypes.name(x.array.dtype)}: convert it with .float()")
    if p == "fro":
        p = 2
    if isinstance(p, str):
        raise ValueError(f"norm: p must be a number or 'fro', the Euclidean norm, got {p!r}")
    dims = normalise_dims(dim, x.array.ndim)
    if p == 2:
        return norm_op(x, dims=dims, keepdim=bool(keepdim))
    return _power_norm(x, float(rules.number(p, "norm: p")), dims, bool(keepdim))


@rounded_once
def _power_norm(x: Tensor, p: float, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    size = x.abs()
    if math.isinf(p):
        return amax(size, dims, keepdim) if p > 0 else amin(size, dims, keepdim)
    if p == 0:
        return sum(cast(x != 0, dtype=x.array.dtype), dims, keepdim) + sum(x * 0.0, dims, keepdim) * 0.0
    if p == 1:
        return sum(size, dims, keepdim)
    return sum(where(size == 0, 0.0 if p > 0 else float("inf"), size**p), dims, keepdim) ** (1.0 / p)


# --- scans and sorting ------------------------------------------------------------------------------


def _running(function: Any, x: Array, dim: int) -> Array:
    """A running sum or product: in float64 and rounded once, for its errors grow with the length."""
    if not x.ndim:
        return x.copy()
    wide = np.float64 if x.dtype.kind == "f" else x.dtype
    return function(x, axis=dim, dtype=wide).astype(x.dtype, copy=False)


cumsum_op = op(
    "cumsum",
    lambda x, *, dim: _running(np.cumsum, x, dim),
    {"x": lambda g, dim: g.flip(dim).cumsum(dim).flip(dim) if g.array.ndim else g},
    shape=rules.like_first,
    flops=rules.per_input(1),
    samples=lambda rng: [((rng.standard_normal((3, 4)),), {"dim": d}) for d in (0, 1)],
    formula="sum of the elements up to and including this one along dim",
    kernels={"cuda.reductions": ANY_DTYPE},
    derivation=derive(
        "y_i = sum of x_j over j <= i: x_j is part of y_j, y_(j+1), ...",
        "dL/dx_j = sum of g_i over i >= j: a running sum from the other end",
        x="flip(cumsum(flip(g, dim), dim), dim)",
    ),
)


def cumsum(x: Tensor, dim: int, *, dtype: np.dtype | None = None) -> Tensor:
    """Running sums along `dim`; booleans and integers add up in int64."""
    return cumsum_op(cast(x, dtype=_adding(x, dtype)), dim=normalise_dim(dim, x.array.ndim))


def _argsort(x: Array, *, dim: int, descending: bool) -> Array:
    """Stable in both directions; NaN counts as the largest."""
    if not x.ndim:
        return np.zeros((), np.int64)
    if not descending:
        return np.argsort(x, axis=dim, kind="stable").astype(np.int64)
    backwards = np.argsort(np.flip(x, dim), axis=dim, kind="stable")
    return np.ascontiguousarray(np.flip(x.shape[dim] - 1 - backwards, dim)).astype(np.int64)


argsort_op = op(
    "argsort",
    _argsort,
    shape=lambda metas, **_: [(metas[0][0], dtypes.int64)],
    samples=lambda rng: [
        ((rng.integers(0, 3, (3, 4)).astype(np.float64),), {"dim": 1, "descending": down}) for down in (False, True)
    ],
    formula="the order that sorts x along dim",
    differentiable=False,
    derivation=_INDEX,
    on_host="an order is asked for rarely, on small arrays (sampling, routing), by code that looks at it next",
)


def argsort(x: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Indices (int64) that sort `x` along `dim`, equal elements in their order, asked for (`stable`) or not."""
    return argsort_op(x, dim=normalise_dim(dim, x.array.ndim), descending=bool(descending))


def sort(x: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Chosen:
    """(sorted values, their indices) along `dim`; equal elements keep their order, asked for (`stable`) or not."""
    order = argsort(x, dim, descending)
    return Chosen(gather(x, dim, order) if x.array.ndim else clone(x), order)


def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Chosen:
    """The `k` largest (or smallest) along `dim`, in order: (values, indices). Raises ValueError for k out of range."""
    d = normalise_dim(dim, x.array.ndim)
    n = x.array.shape[d] if x.array.ndim else 1
    k = rules.integer(k, "topk: k")
    if not 0 <= k <= n:
        raise ValueError(f"topk: k = {k} is not between 0 and {n}, the size of dimension {dim}")
    values, indices = sort(x, d, descending=largest)
    if not x.array.ndim:
        return Chosen(values, indices)
    return Chosen(values.narrow(d, 0, k).contiguous(), indices.narrow(d, 0, k).contiguous())


expect_tensors(globals())
