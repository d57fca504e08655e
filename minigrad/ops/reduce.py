"""Reductions and scans: sum, mean, max, min, variance, cumulative sums, argmax, sorting.

`dim` may be None (all dimensions), one or several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.ops import rules
from minigrad.ops.elementwise import as_operand, cast, floating, sqrt
from minigrad.ops.registry import Array, Meta, Sample, op
from minigrad.ops.rules import normalise_dim, normalise_dims, reduced
from minigrad.ops.shape import broadcast_to, reshape
from minigrad.tensor import Tensor

Dims = int | Sequence[int] | None


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
)


def sum(x: Tensor, dim: Dims = None, keepdim: bool = False, dtype: np.dtype | None = None) -> Tensor:
    """The sum over `dim`; booleans and integers add up in int64."""
    x = as_operand(x)
    wanted = dtype or (x.array.dtype if dtypes.is_floating(x.array.dtype) else dtypes.int64)
    return sum_op(cast(x, dtype=wanted), dims=normalise_dims(dim, x.array.ndim), keepdim=bool(keepdim))


def _count(shape: tuple[int, ...], dims: tuple[int, ...]) -> int:
    return int(np.prod([shape[d] for d in dims], dtype=np.int64))


def mean(x: Tensor, dim: Dims = None, keepdim: bool = False, dtype: np.dtype | None = None) -> Tensor:
    """The mean over `dim` (NaN over nothing). Raises TypeError for integers: convert first."""
    x = as_operand(x) if dtype is None else cast(as_operand(x), dtype=dtype)
    if not dtypes.is_floating(x.array.dtype):
        raise TypeError(f"mean needs a floating tensor, got {dtypes.name(x.array.dtype)}: convert it with .float()")
    dims = normalise_dims(dim, x.array.ndim)
    return sum_op(x, dims=dims, keepdim=bool(keepdim)) / float(_count(x.array.shape, dims))


def var(
    x: Tensor, dim: Dims = None, keepdim: bool = False, unbiased: bool = True, correction: int | None = None
) -> Tensor:
    """The variance over `dim`; divided by n - 1, or by n if not `unbiased` (or by n - correction)."""
    dims = normalise_dims(dim, x.array.ndim)
    less = (1 if unbiased else 0) if correction is None else correction
    centred = x - mean(x, dims, keepdim=True) if dims else x * 0.0
    return sum(centred * centred, dims, keepdim) / float(_count(x.array.shape, dims) - less)


def std(
    x: Tensor, dim: Dims = None, keepdim: bool = False, unbiased: bool = True, correction: int | None = None
) -> Tensor:
    """The square root of `var`."""
    return sqrt(var(x, dim, keepdim, unbiased, correction))


prod_op = op(
    "prod",
    lambda x, *, dims, keepdim: np.prod(x, axis=dims, keepdims=keepdim, dtype=x.dtype),
    {"x": lambda g, x, dims: _prod_vjp(g, x, dims)},
    shape=_shape,
    flops=rules.per_input(1),
    samples=_samples,
    formula="product over dims of x",
)


def _prod_vjp(g: Tensor, x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Each element's gradient is the product of the others: running products from both sides, exact also at zeros."""
    shape = x.array.shape
    kept = [d for d in range(len(shape)) if d not in dims]
    rows = reshape(x.permute(*kept, *dims), *[shape[d] for d in kept], -1) if shape else reshape(x, 1)
    n = rows.array.shape[-1]
    before, after = [], []
    left = right = Tensor(np.ones(rows.array.shape[:-1], x.array.dtype))
    for i in range(n):
        before.append(left)
        after.append(right)
        left, right = left * rows[..., i], right * rows[..., n - 1 - i]
    from minigrad.ops.shape import stack

    others = stack([b * a for b, a in zip(before, reversed(after), strict=True)], -1)
    others = reshape(others, *[shape[d] for d in kept], *[shape[d] for d in dims])
    return _spread(g, shape, dims) * (others.permute(*np.argsort([*kept, *dims])) if shape else reshape(others, ()))


def prod(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The product over `dim`."""
    x = x if dtypes.is_floating(x.array.dtype) else cast(x, dtype=dtypes.int64)
    return prod_op(x, dims=normalise_dims(dim, x.array.ndim), keepdim=bool(keepdim))


# --- largest and smallest ---------------------------------------------------------------------------


def _extreme_vjp(g: Tensor, x: Tensor, out: Tensor, dims: tuple[int, ...]) -> Tensor:
    """Ties share the gradient equally."""
    hit = cast(x == _spread(out, x.array.shape, dims), dtype=g.array.dtype)
    share = hit / sum_op(hit, dims=dims, keepdim=True)
    return _spread(g, x.array.shape, dims) * share


amax_op = op(
    "amax",
    lambda x, *, dims, keepdim: np.max(x, axis=dims, keepdims=keepdim),
    {"x": _extreme_vjp},
    shape=_shape,
    flops=rules.per_input(1),
    samples=_samples,
    formula="the largest over dims of x",
)
amin_op = op(
    "amin",
    lambda x, *, dims, keepdim: np.min(x, axis=dims, keepdims=keepdim),
    {"x": _extreme_vjp},
    shape=_shape,
    flops=rules.per_input(1),
    samples=_samples,
    formula="the smallest over dims of x",
)


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


def _arg(name: str, function: Any, formula: str) -> Any:
    return op(
        name,
        lambda x, *, dim, keepdim: function(x, axis=dim, keepdims=keepdim),
        shape=lambda metas, *, dim, keepdim: [(reduced(metas[0][0], (dim,), keepdim), dtypes.int64)],
        flops=rules.per_input(1),
        samples=lambda rng: [((rng.standard_normal((3, 4)),), {"dim": 1, "keepdim": False})],
        formula=formula,
        differentiable=False,
    )


_argmax_op = _arg("argmax", np.argmax, "the index of the largest along dim")
_argmin_op = _arg("argmin", np.argmin, "the index of the smallest along dim")


def argmax(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index (int64) of the first largest along `dim`, or in the flattened tensor. ValueError over nothing."""
    if dim is None:
        x, dim = reshape(x, -1), 0
    d = normalise_dim(dim, x.array.ndim)
    return _argmax_op(x, dim=_not_empty("argmax", x, (d,))[0], keepdim=keepdim)


def argmin(x: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """The index (int64) of the first smallest along `dim`, or in the flattened tensor."""
    if dim is None:
        x, dim = reshape(x, -1), 0
    d = normalise_dim(dim, x.array.ndim)
    return _argmin_op(x, dim=_not_empty("argmin", x, (d,))[0], keepdim=keepdim)


def max(x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """The largest of all; or (values, indices) along `dim`; or elementwise with another tensor."""
    return _extreme(x, dim, keepdim, amax, argmax, "maximum")


def min(x: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """The smallest of all; or (values, indices) along `dim`; or elementwise with another tensor."""
    return _extreme(x, dim, keepdim, amin, argmin, "minimum")


def _extreme(x: Tensor, dim: Any, keepdim: bool, value: Any, index: Any, elementwise: str) -> Any:
    from minigrad.ops import elementwise as ops
    from minigrad.ops.index import gather
    from minigrad.ops.shape import squeeze

    if isinstance(dim, Tensor):
        return getattr(ops, elementwise)(x, dim)
    if dim is None:
        return value(x)
    where = index(x, dim, keepdim=True)
    chosen = gather(x, dim, where) if x.array.ndim else x
    return (chosen, where) if keepdim or not x.array.ndim else (squeeze(chosen, dim), squeeze(where, dim))


def all(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Is every element along `dim` true (not zero)?"""
    return amin(x != 0, dim, keepdim) if x.array.size else sum(x != 0, dim, keepdim) == 0


def any(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Is some element along `dim` true (not zero)?"""
    return amax(x != 0, dim, keepdim) if x.array.size else sum(x != 0, dim, keepdim) > 0


def norm(x: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """The Euclidean norm over `dim`."""
    x = floating(x)
    return sqrt(sum(x * x, dim, keepdim))


# --- scans and sorting ------------------------------------------------------------------------------

cumsum_op = op(
    "cumsum",
    lambda x, *, dim: np.cumsum(x, axis=dim, dtype=x.dtype) if x.ndim else x.copy(),
    {"x": lambda g, dim: g.flip(dim).cumsum(dim).flip(dim) if g.array.ndim else g},
    shape=rules.like_first,
    flops=rules.per_input(1),
    samples=lambda rng: [((rng.standard_normal((3, 4)),), {"dim": d}) for d in (0, 1)],
    formula="sum of the elements up to and including this one along dim",
)


def cumsum(x: Tensor, dim: int) -> Tensor:
    """Running sums along `dim`; booleans and integers add up in int64."""
    x = x if dtypes.is_floating(x.array.dtype) else cast(x, dtype=dtypes.int64)
    return cumsum_op(x, dim=normalise_dim(dim, x.array.ndim))


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
)


def argsort(x: Tensor, dim: int = -1, descending: bool = False) -> Tensor:
    """Indices (int64) that sort `x` along `dim`, equal elements in their order."""
    return argsort_op(x, dim=normalise_dim(dim, x.array.ndim), descending=bool(descending))


def sort(x: Tensor, dim: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]:
    """(sorted values, their indices) along `dim`."""
    from minigrad.ops.index import gather

    order = argsort(x, dim, descending)
    return (gather(x, dim, order) if x.array.ndim else x), order


def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True) -> tuple[Tensor, Tensor]:
    """The `k` largest (or smallest) along `dim`, in order: (values, indices). Raises ValueError for k out of range."""
    d = normalise_dim(dim, x.array.ndim)
    n = x.array.shape[d] if x.array.ndim else 1
    if not 0 <= k <= n:
        raise ValueError(f"topk: k = {k} is not between 0 and {n}, the size of dimension {dim}")
    values, indices = sort(x, d, descending=largest)
    return values.narrow(d, 0, k), indices.narrow(d, 0, k)
