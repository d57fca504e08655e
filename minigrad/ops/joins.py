"""Tensors joined, parted and repeated along a dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.ops import rules
from minigrad.ops.arguments import expect_tensors
from minigrad.ops.copies import Shape, clone, placed
from minigrad.ops.derivation import derive, grid
from minigrad.ops.operands import cast
from minigrad.ops.registry import ANY_DTYPE, Meta, op
from minigrad.ops.rules import flatten_arguments, normalise_dim
from minigrad.ops.shape import axis, expand_op, flatten, reshape, reshape_op, unsqueeze
from minigrad.tensor import Tensor


def _cat_shape(metas: Sequence[Meta], *, dim: int) -> list[Meta]:
    shape = list(metas[0][0])
    shape[dim] = sum(meta[0][dim] for meta in metas)
    return [(tuple(shape), metas[0][1])]


def _cat_vjp(g: Tensor, shapes: Sequence[Shape], needs: Sequence[bool], dim: int) -> list[Tensor | None]:
    parts: list[Tensor | None] = []
    start = 0
    for shape, need in zip(shapes, needs, strict=True):
        parts.append(narrow(g, dim, start, shape[dim]) if need else None)
        start += shape[dim]
    return parts


cat_op = op(
    "cat", lambda *tensors, dim: np.asarray(np.concatenate(tensors, axis=dim), order="C"), _cat_vjp, shape=_cat_shape,
    row_major=True,
    samples=lambda rng: [
        ((rng.standard_normal((2, 3)), rng.standard_normal((2, 1)), rng.standard_normal((2, 0))), {"dim": 1})
    ],
    formula="tensors one after the other along dim", exact_dtype=True, kernels={"cuda.joins": ANY_DTYPE},
    derivation=derive(
        "y is the tensors side by side", "each gets its own part of g", tensors="split(g, tensors, dim)",
        example=lambda: ([grid(2, 3), grid(2, 1, seed=1)], {"dim": 1}),
    ),
)  # fmt: skip


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Join tensors along an existing dimension. Raises ValueError for none, or for shapes that differ elsewhere."""
    tensors = list(tensors)
    if not tensors:
        raise ValueError("cat: expected at least one tensor")
    if any(t.array.ndim > 1 for t in tensors):  # torch passes over empty vectors
        tensors = [t for t in tensors if t.array.shape != (0,)]
    d = axis("cat", tensors[0], dim)
    rest = [t.array.shape[:d] + t.array.shape[d + 1 :] for t in tensors]
    if any(r != rest[0] or t.array.ndim != tensors[0].array.ndim for r, t in zip(rest, tensors, strict=True)):
        raise ValueError(
            f"cat along dimension {dim}: shapes {[list(t.array.shape) for t in tensors]} differ in another dimension"
        )
    dtype = tensors[0].array.dtype
    for t in tensors[1:]:
        dtype = dtypes.promote(dtype, t.array.dtype)
    return cat_op(*[cast(t, dtype=dtype) for t in tensors], dim=d)


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """Join tensors of one shape along a new dimension."""
    tensors = list(tensors)
    if any(t.array.shape != tensors[0].array.shape for t in tensors):
        raise ValueError(f"stack: shapes {[list(t.array.shape) for t in tensors]} differ")
    if not tensors:
        raise ValueError("stack: expected at least one tensor")
    return cat([unsqueeze(t, dim) for t in tensors], normalise_dim(dim, tensors[0].array.ndim + 1))


def narrow(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    """`length` elements from `start` (negative: from the end) along `dim`, a view. Raises IndexError out of range."""
    d = axis("narrow", x, dim)
    if isinstance(start, Tensor) and start.array.dtype == dtypes.bool_:
        raise TypeError("narrow: the start must be an integer, got a bool tensor")
    start, length = rules.integer(start, "narrow: the start"), rules.integer(length, "narrow: the length")
    n = x.array.shape[d]
    first = start + n if start < 0 else start
    if not (0 <= first <= n and 0 <= length <= n - first):
        raise IndexError(f"narrow: {length} elements from {start} do not lie in dimension {dim} of size {n}")
    return _part(x, d, first, length)


def _part(x: Tensor, d: int, start: int, length: int) -> Tensor:
    return x[(slice(None),) * d + (slice(start, start + length),)]


def split(x: Tensor, size: int | Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Views of `x` of `size` elements each along `dim` (the last may be smaller), or of the given sizes.

    Raises ValueError for a size that is not positive, and for sizes that are negative or do not add up.
    """
    d = axis("split", x, dim)
    n = x.array.shape[d]
    if not rules.several(size):
        size = rules.integer(size, "split: the size")
        if size <= 0:
            raise ValueError(f"split: the size must be positive, got {size}")
        sizes = [min(size, n - start) for start in range(0, n, size)] or [0]
    else:
        sizes = list(flatten_arguments((size,)))
        if sum(sizes) != n or any(part < 0 for part in sizes):
            raise ValueError(
                f"split: sizes {sizes} must not be negative and add up to {n}, the size of dimension {dim}"
            )
    starts = np.cumsum([0, *sizes])
    return tuple(_part(x, d, int(start), length) for start, length in zip(starts, sizes, strict=False))


def chunk(x: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` views of equal size along `dim` (the last may be smaller)."""
    chunks = rules.integer(chunks, "chunk: the number of chunks")
    if chunks <= 0:
        raise ValueError(f"chunk: the number of chunks must be positive, got {chunks}")
    n = x.array.shape[axis("chunk", x, dim)]
    return split(x, max(-(-n // chunks), 1), dim) if n else split(x, [0] * chunks, dim)


def unbind(x: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices of `x` along `dim`, as views without it. Raises TypeError for a tensor without dimensions."""
    if not x.array.ndim:
        raise TypeError("a tensor without dimensions cannot be taken apart or iterated over")
    d = normalise_dim(dim, x.array.ndim)
    return tuple(x[(slice(None),) * d + (i,)] for i in range(x.array.shape[d]))


def repeat(x: Tensor, *sizes: Any) -> Tensor:
    """Tile `x`: sizes[i] copies along dimension i (a copy)."""
    given = flatten_arguments(sizes)
    extra = len(given) - x.array.ndim
    if extra < 0:
        raise ValueError(f"repeat: {len(given)} sizes for a tensor of {x.array.ndim} dimensions; give at least as many")
    if any(count < 0 for count in given):
        raise ValueError(f"repeat: the counts must not be negative, got {list(given)}")
    shape = (1,) * extra + x.array.shape
    doubled = tuple(n for size in shape for n in (1, size))
    wide = tuple(n for count, size in zip(given, shape, strict=True) for n in (count, size))
    spread = expand_op(reshape_op(x, shape=doubled), shape=wide)
    return reshape(spread, tuple(count * size for count, size in zip(given, shape, strict=True))).clone()


def repeat_interleave(x: Tensor, repeats: int | Tensor, dim: int | None = None) -> Tensor:
    """Each element `repeats` times in a row (a number, or a tensor of counts) along `dim` (flattened if None)."""
    if dim is None:
        x, dim = flatten(x), 0
    d = axis("repeat_interleave", x, dim)
    shape = x.array.shape
    if isinstance(repeats, Tensor):
        if dtypes.category(repeats.array.dtype) != 1:
            raise TypeError(f"repeat_interleave: counts must be integers, got {dtypes.name(repeats.array.dtype)}")
        if repeats.array.shape not in ((), (1,), (shape[d],)):
            raise ValueError(
                f"repeat_interleave: counts of shape {list(repeats.array.shape)} do not fit dimension {dim} of size "
                f"{shape[d]}: give one count, or one for each element"
            )
        counts = repeats.numpy()
        if (counts < 0).any():
            raise ValueError(f"repeat_interleave: counts must not be negative, got {counts.min()}")
        return x.index_select(d, placed(np.repeat(np.arange(shape[d]), counts), x.storage.device))
    repeats = rules.integer(repeats, "repeat_interleave: repeats")
    if repeats < 0:
        raise ValueError(f"repeat_interleave: repeats must not be negative, got {repeats}")
    wide = (*shape[: d + 1], repeats, *shape[d + 1 :])
    spread = reshape(expand_op(unsqueeze(x, d + 1), shape=wide), *shape[:d], shape[d] * repeats, *shape[d + 1 :])
    return spread if spread.base is None else clone(spread)


def roll(x: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Tensor:
    """Shift elements along dimensions (or in the flattened tensor); what leaves at the end comes in at the start.

    Raises ValueError unless there is a shift for each dimension.
    """
    if dims is None and not rules.several(shifts):
        return reshape(_rolled(reshape(x, -1), shifts, 0), x.array.shape)
    each, along = flatten_arguments((shifts,)), () if dims is None else flatten_arguments((dims,))
    if not each:
        raise ValueError("roll: give at least one shift")
    if len(each) != len(along):
        raise ValueError(f"roll: {len(each)} shifts for {len(along)} dimensions: give one for each")
    for shift, dim in zip(each, along, strict=True):
        x = _rolled(x, shift, dim)
    return x


def _rolled(x: Tensor, shift: Any, dim: int) -> Tensor:
    d = axis("roll", x, dim)
    n = x.array.shape[d]
    cut = -rules.integer(shift, "a shift") % n if n else 0
    return cat([narrow(x, d, cut, n - cut), narrow(x, d, 0, cut)], d)


expect_tensors(globals())
