"""Elements taken and put along one dimension, by a tensor of indices: gather, scatter, index_select, one_hot."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.ops import rules
from minigrad.ops.arguments import expect_tensors
from minigrad.ops.copies import clone, placed, to_device, zeros_like_meta
from minigrad.ops.derivation import REPLACED, THERE, derive, grid, moving
from minigrad.ops.index import _readable, getitem, slice_add_op
from minigrad.ops.joins import narrow
from minigrad.ops.operands import cast
from minigrad.ops.registry import ANY_DTYPE, INTEGERS, Array, Op, op
from minigrad.ops.rules import normalise_dim
from minigrad.ops.shape import broadcast_to, reshape
from minigrad.tensor import Tensor


def out_of_range(user: str, dim: int, size: int) -> tuple[type[Exception], str]:
    """What `user` raises for an index outside 0 .. size - 1 of `dim`, and says of it, with {} for the index."""
    if user == "one_hot":
        return ValueError, f"one_hot: index {{}} is outside 0 to {size - 1}"
    return IndexError, f"{user}: index {{}} is out of range for dimension {dim} of size {size}"


def _check_range(index: Array, user: str, dim: int, size: int) -> None:
    """Raise what `out_of_range` says: numpy would count such an index from the end."""
    if index.size:
        low, high = int(index.min()), int(index.max())
        if low < 0 or high >= size:
            error, sentence = out_of_range(user, dim, size)
            raise error(sentence.format(low if low < 0 else high))


def _within(index: Array, *, user: str, dim: int, size: int) -> Array:
    _check_range(index, user, dim, size)
    return np.array(index, np.int64)


within = op(
    "within",
    _within,
    differentiable=False,
    shape=lambda metas, **_: [(metas[0][0], dtypes.int64)],
    samples=lambda rng: [((rng.integers(0, 4, (2, 3)),), {"user": "one_hot", "dim": 0, "size": 4})],
    formula="index, refused where it is outside 0 .. size - 1",
    kernels={"cuda.index": INTEGERS},
    derivation=derive("the result is the index itself, an integer: there is nothing to differentiate"),
)


def _along(index: Array, user: str, dim: int, size: int) -> tuple[Array, ...]:
    """Open indices for every dimension, with `index` itself along `dim`, of `size`. Raises IndexError out of range."""
    _check_range(index, user, dim, size)
    grid: list[Array] = list(np.indices(index.shape, sparse=True))
    grid[dim : dim + 1] = [index] * bool(grid)
    return tuple(grid)


def _size(shape: Sequence[int], dim: int) -> int:
    return shape[dim] if shape else 1


gather_op = op(
    "gather",
    lambda x, index, *, dim: x[_along(index, "gather", dim, _size(x.shape, dim))],
    {"x": lambda g, index, x_shape, dim: scatter_add_zeros(g, index, dim=dim, shape=x_shape)},
    shape=lambda metas, *, dim: [(metas[1][0], metas[0][1])],
    samples=lambda rng: [((rng.standard_normal((3, 4)), rng.integers(0, 4, (3, 2))), {"dim": 1})],
    formula="x[i][index[i][j]] along dim",
    exact_dtype=True,
    kernels={"cuda.index": ANY_DTYPE},
    derivation=moving(
        "y takes elements of x, some perhaps more than once",
        example=lambda: ([grid(2, 3), np.array([[0, 0], [2, 1]])], {"dim": 1}),
    ),
)


def gather(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Elements of `x` at `index` along `dim`; the result has the index's shape. Raises IndexError out of range."""
    d = normalise_dim(dim, x.array.ndim)
    _check_index("gather", x, d, index)
    if not index.array.size:
        return reshape(reshape(x, -1)[:0], index.array.shape)
    if x.array.ndim == index.array.ndim:
        return gather_op(x, index, dim=d)
    return reshape(gather_op(reshape(x, 1), reshape(index, 1), dim=0), index.array.shape)


def _check_index(name: str, x: Tensor, dim: int, index: Tensor, src: Tensor | None = None) -> None:
    if dtypes.category(index.array.dtype) != 1:
        raise TypeError(f"{name}: the index must be an integer tensor, got {dtypes.name(index.array.dtype)}")
    if src is not None and src.array.dtype != x.array.dtype:
        raise TypeError(
            f"{name}: the source is {dtypes.name(src.array.dtype)}, the tensor {dtypes.name(x.array.dtype)}: convert "
            "one of them"
        )
    if not index.array.size:
        return
    if builtins.max(index.array.ndim, 1) != builtins.max(x.array.ndim, 1):
        raise ValueError(f"{name}: index has {index.array.ndim} dimensions, the tensor {x.array.ndim}: they must agree")
    sizes, held = index.array.shape or (1,), x.array.shape or (1,)
    inside = builtins.all(m <= n or d == dim for d, (m, n) in enumerate(zip(sizes, held, strict=True)))
    if src is not None and src.array.ndim:
        inside = inside and src.array.ndim == len(sizes)
        inside = inside and builtins.all(m <= n for m, n in zip(sizes, src.array.shape, strict=True))
    if not inside:
        source = "" if src is None else f" and the source {list(src.array.shape)}"
        raise ValueError(
            f"{name}: the index {list(index.array.shape)} must not be larger than the tensor {list(x.array.shape)}"
            f"{source}, but along dimension {dim} of the tensor"
        )


def _scatter_add_zeros(src: Array, index: Array, *, dim: int, shape: tuple[int, ...]) -> Array:
    result = np.zeros(shape, src.dtype)
    np.add.at(result, _along(index, "scatter_add", dim, _size(shape, dim)), src[tuple(slice(n) for n in index.shape)])
    return result


def _pad_to(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`x` in the corner of zeros of `shape`."""
    return (
        x
        if x.array.shape == shape
        else slice_add_op(x, shape=shape, index=tuple(("slice", 0, n, None) for n in x.array.shape))
    )


scatter_add_op = op(
    "scatter_add_zeros",
    _scatter_add_zeros,
    {"src": lambda g, src_shape, index, dim: _pad_to(gather_op(g, index, dim=dim), src_shape)},
    shape=lambda metas, *, dim, shape: [(shape, metas[0][1])],
    flops=rules.per_input(1),
    samples=lambda rng: [((rng.standard_normal((3, 2)), rng.integers(0, 4, (3, 2))), {"dim": 1, "shape": (3, 4)})],
    formula="zeros, with src[i][j] added at [i][index[i][j]]",
    kernels={"cuda.index": ANY_DTYPE},
    derivation=derive(
        "y = M src with the 0-1 matrix M that puts elements in place; dL = <M^T g, dsrc>",
        THERE,
        src="take_along_axis(g, index, dim)",
        example=lambda: ([grid(2, 2), np.array([[0, 0], [2, 1]])], {"dim": 1, "shape": (2, 3)}),
    ),
)


def scatter_add_zeros(src: Tensor, index: Tensor, *, dim: int, shape: tuple[int, ...]) -> Tensor:
    """Zeros of `shape` with `src` added at `index` along `dim`."""
    return scatter_add_op(src, index, dim=dim, shape=shape)


def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of `x` at `index` ``(n,)`` along `dim`, a copy.

    Raises IndexError for an index outside 0 to size - 1, ValueError for an index that is no vector of integers.
    """
    if index.array.ndim > 1 or dtypes.category(index.array.dtype) != 1:
        raise ValueError(
            f"index_select: the index must be a vector of integers, got {dtypes.name(index.array.dtype)}"
            f"{list(index.array.shape)}"
        )
    d = normalise_dim(dim, x.array.ndim)
    ids = reshape(to_device(index, x.storage.device), -1)
    ids = within(ids, user="index_select", dim=d, size=x.array.shape[d] if x.array.ndim else 1)
    if x.array.ndim:
        return getitem(x, (slice(None),) * d + (ids,))
    if ids.array.size != 1:
        raise ValueError(f"index_select: a tensor without dimensions has one element, got {ids.array.size} indices")
    return getitem(reshape(x, 1), ids).reshape(())


def scatter_add(x: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
    """`x` with `src` added at `index` along `dim`; repeated indices add up."""
    d = normalise_dim(dim, x.array.ndim)
    _check_index("scatter_add", x, d, index, src)
    if not index.array.size:
        return clone(x)
    if x.array.ndim == index.array.ndim:
        return x + scatter_add_op(src, index, dim=d, shape=x.array.shape)
    return reshape(scatter_add(reshape(x, 1), 0, reshape(index, 1), reshape(src, 1)), x.array.shape)


def _scatter(x: Array, src: Array, index: Array, *, dim: int) -> Array:
    result = np.array(x, order="C")
    given = src[tuple(slice(n) for n in index.shape)] if src.ndim else src
    result[_along(index, "scatter", dim, _size(x.shape, dim))] = given
    return result


scatter_op: Op = op(
    "scatter",
    _scatter,
    {
        "x": lambda g, index, dim: scatter_op(g, zeros_like_meta((), g), index, dim=dim),
        "src": lambda g, src_shape, index, dim: (
            _pad_to(gather_op(g, index, dim=dim), src_shape) if src_shape else gather_op(g, index, dim=dim)
        ),
    },
    shape=rules.like_first,
    samples=lambda rng: [
        (
            (rng.standard_normal((3, 4)), rng.standard_normal((3, 2)), np.argsort(rng.random((3, 4)), 1)[:, :2]),
            {"dim": 1},
        )
    ],
    formula="x with x[i][index[i][j]] replaced by src[i][j]",
    exact_dtype=True,
    kernels={"cuda.index": ANY_DTYPE},
    derivation=derive(
        "y is x with x[i][index[i][j]] replaced by src[i][j]",
        REPLACED,
        let={"hit": "moved(0 * x, 0 * src + 1)"},
        x="g * (1 - hit)",
        src="take_along_axis(g, index, dim)",
        example=lambda: ([grid(2, 3), grid(2, 2, seed=1), np.array([[0, 1], [2, 0]])], {"dim": 1}),
    ),
)


def scatter(
    x: Tensor, dim: int, index: Tensor, src: Any = None, *, value: Any = None, reduce: str | None = None
) -> Tensor:
    """`x` with the elements at `index` along `dim` replaced by `src` (a tensor or a number, which `value` says too).

    reduce "add" or "multiply" does that instead. Raises TypeError for a source of another dtype, ValueError for another
    word and where shapes do not fit.
    """
    if (src is None) == (value is None):
        raise TypeError("scatter: give src or value")
    d = normalise_dim(dim, x.array.ndim)
    given = value if src is None else src
    src = given if isinstance(given, Tensor) else Tensor(dtypes.scalar(given, x.array.dtype))
    _check_index("scatter", x, d, index, src)
    if not index.array.size:
        return clone(x)
    if x.array.ndim != index.array.ndim:
        source = reshape(src, 1) if src.array.ndim or isinstance(given, Tensor) else src
        return reshape(scatter(reshape(x, 1), 0, reshape(index, 1), source, reduce=reduce), x.array.shape)
    if reduce is None:
        return scatter_op(x, src, index, dim=d)
    if reduce == "multiply":
        if not x.array.ndim:
            return x * src
        for i in range(index.array.shape[d]):  # one place of each row at a time: no two of them are the same
            ids = narrow(index, d, i, 1)
            factor = narrow(src, d, i, 1)[tuple(map(slice, ids.array.shape))] if src.array.ndim else src
            x = scatter_op(x, gather_op(x, ids, dim=d) * factor, ids, dim=d)
        return x
    if reduce != "add":
        raise ValueError(f"scatter: reduce must be None, 'add' or 'multiply', got {reduce!r}")
    return scatter_add(x, dim, index, src if src.array.ndim else broadcast_to(src, index.array.shape))


def one_hot(index: Tensor, num_classes: int = -1) -> Tensor:
    """int64 ``(..., num_classes)`` with a 1 at each index. Raises ValueError for an index outside, and where there is
    none to count the classes by."""
    if dtypes.category(index.array.dtype) != 1:
        raise TypeError(f"one_hot needs an integer tensor, got {dtypes.name(index.array.dtype)}")
    num_classes = rules.integer(num_classes, "num_classes")
    if num_classes < 0 and not _readable(index):
        raise RuntimeError("one_hot in a trace or on a GPU needs num_classes: its shape must not depend on values")
    if num_classes < 0 and not index.array.size:
        raise ValueError("one_hot of no index at all needs num_classes")
    if num_classes < 0:
        num_classes = builtins.max(int(index.array.max()) + 1, 0)
    classes = placed(np.arange(num_classes), index.storage.device)
    inside = within(index, user="one_hot", dim=-1, size=num_classes)
    return cast(inside.unsqueeze(-1) == classes, dtype=dtypes.int64)


expect_tensors(globals())
