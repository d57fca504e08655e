"""torch's functions that move, cut and join tensors and that minigrad lacks, composed of its ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import minigrad
from minigrad import Tensor
from minigrad.ops import rules
from minigrad.ops.arguments import expect_tensors
from minigrad.torch import _creation


def _several(name: str, tensors: Any) -> list[Tensor]:
    given = list(tensors)
    if not given:
        raise ValueError(f"{name}: expected at least one tensor")
    return given


def _vectors(tensors: tuple[Any, ...]) -> Any:
    """Tensors given one by one or as one sequence."""
    return tensors[0] if len(tensors) == 1 and not isinstance(tensors[0], Tensor) else tensors


# --- other orders and shapes of the same elements -----------------------------------------------------------


def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Dimension(s) `source` at the place(s) `destination`, the others in their order.

    Raises ValueError where there are not as many of both, or one is named twice, IndexError for one out of range.
    """
    both = []
    for given in (source, destination):
        dims = [rules.normalise_dim(d, input.ndim) for d in (given if rules.several(given) else (given,))]
        if len(set(dims)) != len(dims):
            raise ValueError(f"movedim: a dimension is named twice in {given}")
        both.append(dims)
    sources, places = both
    if len(sources) != len(places):
        raise ValueError(f"movedim: {len(sources)} sources for {len(places)} destinations: give as many of both")
    if not input.ndim:
        return input.view(())
    rest = iter([d for d in range(input.ndim) if d not in sources])
    return input.permute(*[sources[places.index(d)] if d in places else next(rest) for d in range(input.ndim)])


def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    return input.transpose(axis0, axis1)


def tile(input: Tensor, *dims: Any) -> Tensor:
    """As repeat; missing leading counts are 1."""
    counts = list(dims[0]) if len(dims) == 1 and not isinstance(dims[0], int) else list(dims)
    return input.repeat(*[1] * (input.ndim - len(counts)), *counts)


def ravel(input: Tensor) -> Tensor:
    """All elements in one dimension; a copy unless they lie in row-major order."""
    return input.contiguous().reshape(-1)


def reshape_as(input: Tensor, other: Tensor) -> Tensor:
    return input.reshape(other.shape)


def atleast_1d(*tensors: Any) -> Any:
    """With at least one dimension; several tensors, or a sequence of them, give a tuple."""
    return _at_least(tensors, lambda x: x.reshape(1) if x.ndim < 1 else x)


def atleast_2d(*tensors: Any) -> Any:
    """With at least two dimensions: a vector becomes a row."""
    return _at_least(tensors, lambda x: x.reshape(1, -1) if x.ndim < 2 else x)


def atleast_3d(*tensors: Any) -> Any:
    """With at least three dimensions: a vector ``(n,)`` becomes ``(1, n, 1)``, a matrix ``(n, m, 1)``."""
    return _at_least(
        tensors, lambda x: x.unsqueeze(-1) if x.ndim == 2 else x.reshape(1, -1, 1) if x.ndim < 2 else x
    )  # fmt: skip


def _at_least(tensors: tuple[Any, ...], change: Any) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], Tensor):
        return change(tensors[0])
    return tuple(change(x) for x in _vectors(tensors))


def broadcast_tensors(*tensors: Any) -> tuple[Tensor, ...]:
    """All expanded to one shape."""
    given = _vectors(tensors)
    shape = np.broadcast_shapes(*[x.shape for x in given])
    return tuple(minigrad.broadcast_to(x, shape) for x in given)


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    return np.broadcast_shapes(*shapes)


def fliplr(input: Tensor) -> Tensor:
    """The second dimension in reverse order. Raises ValueError for vectors."""
    if input.ndim < 2:
        raise ValueError(f"fliplr needs at least 2 dimensions, got {input.ndim}")
    return input.flip(1)


def flipud(input: Tensor) -> Tensor:
    """The first dimension in reverse order. Raises ValueError for a tensor without dimensions."""
    if input.ndim < 1:
        raise ValueError("flipud needs at least 1 dimension, got 0")
    return input.flip(0)


# --- parts -----------------------------------------------------------------------------------------------


def select(input: Tensor, dim: int, index: int) -> Tensor:
    """The slice at `index` of a dimension, a view without it. Raises IndexError out of range."""
    if not input.ndim:
        raise IndexError("select: a tensor without dimensions has nothing to select")
    return input[(slice(None),) * rules.normalise_dim(dim, input.ndim) + (rules.integer(index, "select: the index"),)]


def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """So many parts, the first ones larger by one where they cannot be equal; or parts that begin at the indices."""
    if not input.ndim:
        raise ValueError("tensor_split needs at least 1 dimension, got 0")
    dim = rules.normalise_dim(dim, input.ndim)
    n = input.shape[dim]
    if isinstance(indices_or_sections, Tensor):
        indices_or_sections = indices_or_sections.tolist()
    if rules.several(indices_or_sections):
        ends = [min(max(i + n if i < 0 else i, 0), n) for i in indices_or_sections]
    else:
        count = rules.integer(indices_or_sections, "tensor_split: the number of parts")
        if count < 1:
            raise ValueError(f"tensor_split: the number of parts must be positive, got {count}")
        ends = [i * (n // count) + min(i, n % count) for i in range(1, count)]
    return tuple(
        input.narrow(dim, start, max(end - start, 0)) for start, end in zip([0, *ends], [*ends, n], strict=True)
    )


def take(input: Tensor, index: Tensor) -> Tensor:
    """The elements at `index` of the flattened tensor."""
    size = max(input.numel(), 1)
    ids = minigrad.where(index < 0, index + size, index)
    return input.reshape(-1).gather(0, ids.reshape(-1).long()).reshape(index.shape)


def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
    """The slices of `source` in the place of those at `index` ``(n,)`` along `dim`."""
    return _placed("index_copy", input, dim, index, source, lambda x, d, ids, values: x.scatter(d, ids, values))


def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    """The slices of `source` added, times alpha, at the indices `index` ``(n,)`` along `dim`."""
    scaled = source if alpha == 1 else source * alpha
    return _placed("index_add", input, dim, index, scaled, lambda x, d, ids, values: x.scatter_add(d, ids, values))


def _placed(name: str, input: Tensor, dim: int, index: Tensor, source: Tensor, put: Any) -> Tensor:
    d = rules.normalise_dim(dim, input.ndim)
    whole = input.reshape(1) if not input.ndim else input
    values = source.reshape(1) if not source.ndim else source
    rest = [list(x.shape[:d] + x.shape[d + 1 :]) for x in (whole, values)]
    if index.ndim > 1 or index.numel() != values.shape[d] or rest[0] != rest[1]:
        raise ValueError(
            f"{name}: indices {list(index.shape)} and a source {list(source.shape)} do not fit dimension {dim} of "
            f"{list(input.shape)}"
        )
    places = index.long().reshape(*[-1 if i == d else 1 for i in range(whole.ndim)])
    return put(whole, d, minigrad.broadcast_to(places, values.shape), values).reshape(input.shape)


def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Tensor:
    """`value` at the indices `index` ``(n,)`` along `dim`. Raises IndexError out of range."""
    d = rules.normalise_dim(dim, input.ndim)
    if index.ndim > 1:
        raise IndexError(f"index_fill: the index must be a vector, got shape {list(index.shape)}")
    if isinstance(value, Tensor) and value.ndim:
        raise ValueError(f"index_fill: the value must be a number or without dimensions, got {list(value.shape)}")
    n = input.shape[d] if input.ndim else 1
    ids = index.long()
    if ids.numel() and not -n <= int(ids.min()) <= int(ids.max()) < n:
        raise IndexError(f"index_fill: an index is out of range for dimension {dim} of size {n}")
    hit = minigrad.from_numpy(np.isin(np.arange(n), ids.numpy() % max(n, 1)))
    shape = [-1 if i == d else 1 for i in range(input.ndim)]
    return input.masked_fill(hit.reshape(*shape) if input.ndim else hit.reshape(()), value)


def take_along_dim(input: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
    """As gather, with sizes broadcast but along `dim`; of the flattened tensor where it is None."""
    if dim is None:
        return input.reshape(-1).gather(0, indices.reshape(-1))
    if input.ndim != indices.ndim:
        raise ValueError(f"take_along_dim: {input.ndim} dimensions and {indices.ndim} of the indices must agree")
    d = rules.normalise_dim(dim, input.ndim)
    lead = np.broadcast_shapes(*[(*t.shape[:d], 1, *t.shape[d + 1 :]) for t in (input, indices)])

    def spread(t: Tensor) -> Tensor:
        return minigrad.broadcast_to(t, (*lead[:d], t.shape[d], *lead[d + 1 :]))

    return spread(input).gather(d, spread(indices))


# --- diagonals ---------------------------------------------------------------------------------------------


def diag(input: Tensor, diagonal: int = 0) -> Tensor:
    """A vector as the diagonal of a matrix, or a copy of the diagonal of a matrix. Raises ValueError for all else."""
    if input.ndim == 2:
        return minigrad.diagonal(input, diagonal).clone()
    if input.ndim != 1:
        raise ValueError(f"diag needs a vector or a matrix, got shape {list(input.shape)}")
    return diag_embed(input, diagonal)


def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Vectors ``(..., n)`` as the diagonals of matrices in dimensions `dim1` and `dim2` of the result."""
    ndim = input.ndim + 1
    first, second = rules.normalise_dim(dim1, ndim), rules.normalise_dim(dim2, ndim)
    if not input.ndim or first == second:
        raise ValueError(f"diag_embed: dimensions {dim1} and {dim2} are not two of a vector's matrix")
    size = input.shape[-1] + abs(offset)
    shape = list(input.shape[:-1])
    for d in sorted((first, second)):
        shape.insert(d, size)
    made = minigrad.zeros(*shape, dtype=input.dtype)
    made.diagonal(offset, first, second).copy_(input)
    return made


def tril_indices(row: int, col: int, offset: int = 0, dtype: Any = None, device: Any = None, layout: Any = None) -> Any:
    """The places (rows, columns) ``(2, n)`` on and below a diagonal."""
    return _triangle("tril_indices", np.tril_indices, row, col, offset, dtype, device)


def triu_indices(row: int, col: int, offset: int = 0, dtype: Any = None, device: Any = None, layout: Any = None) -> Any:
    """The places (rows, columns) ``(2, n)`` on and above a diagonal."""
    return _triangle("triu_indices", np.triu_indices, row, col, offset, dtype, device)


def _triangle(name: str, places: Any, row: int, col: int, offset: int, dtype: Any, device: Any) -> Tensor:
    _creation.check_device(name, device)
    if row < 0 or col < 0:
        raise ValueError(f"{name}: sizes must not be negative, got {row} and {col}")
    found = minigrad.from_numpy(np.stack(places(row, offset, col)).astype(np.int64))
    return found if dtype is None else found.to(dtype)


# --- joins -------------------------------------------------------------------------------------------------


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along the second dimension; vectors and numbers along the first."""
    given = [atleast_1d(x) for x in _several("hstack", tensors)]
    return minigrad.cat(given, 0 if given[0].ndim < 2 else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along the first dimension; vectors as rows."""
    return minigrad.cat([atleast_2d(x) for x in _several("vstack", tensors)], 0)


def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along the third dimension."""
    return minigrad.cat([atleast_3d(x) for x in _several("dstack", tensors)], 2)


def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Joined along the second dimension; vectors and numbers as columns."""
    columns = [x.reshape(-1, 1) if x.ndim < 2 else x for x in _several("column_stack", tensors)]
    return minigrad.cat(columns, 1)


expect_tensors(globals())
