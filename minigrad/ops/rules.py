"""Shape rules and costs that whole families of ops share."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import numpy as np

from minigrad import dtypes
from minigrad.node import Meta


def size(meta: Meta) -> int:
    return int(np.prod(meta[0], dtype=np.int64))


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """np.broadcast_shapes, which stops at 32 dimensions, for as many as arrays have. Raises ValueError."""
    if all(len(shape) <= 32 for shape in shapes):
        return np.broadcast_shapes(*shapes)
    found: list[int] = []
    for sizes in itertools.zip_longest(*map(reversed, shapes), fillvalue=1):
        others = {*sizes} - {1} or {1}
        if len(others) > 1:
            raise ValueError(f"the shapes {', '.join(map(str, shapes))} cannot be broadcast to one")
        found += others
    return (*reversed(found),)


def elementwise(metas: Sequence[Meta], **_: Any) -> list[Meta]:
    """Broadcast shapes; the inputs already agree in dtype."""
    return [(broadcast(*[shape for shape, _ in metas]), metas[0][1])]


def boolean(metas: Sequence[Meta], **_: Any) -> list[Meta]:
    return [(broadcast(*[shape for shape, _ in metas]), dtypes.bool_)]


def like_first(metas: Sequence[Meta], **_: Any) -> list[Meta]:
    return [metas[0]]


def reduced(shape: tuple[int, ...], dims: Sequence[int], keepdim: bool) -> tuple[int, ...]:
    """The shape after reducing over `dims` (normalised)."""
    if keepdim:
        return tuple(1 if i in dims else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in dims)


def per_element(count: int) -> Callable[..., int]:
    """`count` FLOPs for every element of the output."""
    return lambda metas, outputs, **_: count * size(outputs[0])


def per_input(count: int) -> Callable[..., int]:
    """`count` FLOPs for every element of the first input."""
    return lambda metas, outputs, **_: count * size(metas[0])


def unbroadcast(gradient: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A gradient summed over what was broadcast, as the backward driver does; a smaller one is spread first."""
    gradient = np.broadcast_to(gradient, broadcast(np.shape(gradient), shape))
    extra = gradient.ndim - len(shape)
    repeated = tuple(i + extra for i, n in enumerate(shape) if n == 1 != gradient.shape[i + extra])
    return gradient.sum(axis=(*range(extra), *repeated), keepdims=True).reshape(shape)


def integer(value: Any, what: str) -> int:
    """A size, dimension or position as an int. Raises TypeError for floats and all else that is no integer."""
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{what} must be an integer, got {value!r} ({type(value).__name__})") from None


def number(value: Any, what: str) -> Any:
    """A Python number, also from a tensor or an array of one element. Raises TypeError for all else."""
    if hasattr(value, "item") and math.prod(value.shape) == 1:
        value = value.item()
    if not isinstance(value, bool | int | float):
        raise TypeError(f"{what} must be a number, got {type(value).__name__}")
    return value


def several(value: Any) -> TypeGuard[Sequence[int]]:
    """Is it a sequence, an array, a generator... of numbers, not one number?"""
    return hasattr(value, "__iter__") and getattr(value, "ndim", 1) > 0


def normalise_dim(dim: int, ndim: int) -> int:
    """A dimension in 0..ndim-1. Raises IndexError with the valid range, TypeError for what is no integer."""
    if dim.__class__ is not int:
        if isinstance(dim, bool):  # x.sum(True) may mean keepdim, x.sort(True) descending
            raise TypeError(f"a dimension must be an integer, got {dim}: name the argument that it is for")
        dim = integer(dim, "a dimension")
    limit = max(ndim, 1)
    if not -limit <= dim < limit:
        raise IndexError(f"dimension {dim} is out of range for a tensor of {ndim} dimensions ({-limit} to {limit - 1})")
    return dim % limit


def normalise_dims(dim: int | Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Sorted dimensions; None and () mean all. Raises IndexError out of range, ValueError for a repeated one."""
    if dim is None:
        return tuple(range(ndim))
    if several(dim) and not isinstance(dim, list | tuple | range):
        raise TypeError(f"dimensions must be integers or a list of them, got {type(dim).__name__}")
    dims: list[Any] = list(dim) if several(dim) else [dim]
    if not dims:
        return tuple(range(ndim))
    normal = sorted(normalise_dim(d, ndim) for d in dims)
    if len(set(normal)) != len(normal):
        raise ValueError(f"dimension repeated in {tuple(dims)}")
    return tuple(normal) if ndim else ()


def sizes(values: tuple[Any, ...]) -> tuple[int, ...]:
    """The shape of a new tensor from its sizes, one by one or as one sequence. Raises ValueError for a negative one."""
    shape = flatten_arguments(values)
    if any(n < 0 for n in shape):
        raise ValueError(f"a size cannot be negative: {list(shape)}")
    return shape


def flatten_arguments(values: tuple[Any, ...]) -> tuple[int, ...]:
    """Sizes or dims given one by one or as one sequence. Raises TypeError for what is no integer."""
    if len(values) == 1 and several(values[0]):
        values = tuple(values[0])
    return tuple([value if value.__class__ is int else integer(value, "a size") for value in values])
