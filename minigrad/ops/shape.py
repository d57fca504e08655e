"""Views: other shapes, orders and windows of the same memory, and what changes a window of it."""

from __future__ import annotations

import builtins
import math
from collections.abc import Mapping, Sequence
from itertools import accumulate
from operator import mul
from typing import Any

import numpy as np

from minigrad.ops import rules
from minigrad.ops.arguments import expect_tensors
from minigrad.ops.copies import Shape, cases, contiguous, zeros_like_meta
from minigrad.ops.derivation import BACK, REPLACED, THERE, Derivation, derive, moving
from minigrad.ops.registry import ANY_DTYPE, Array, Op, op
from minigrad.ops.rules import flatten_arguments, normalise_dim
from minigrad.state import state
from minigrad.tensor import Tensor


def _view(name: str, reference: Any, vjp: Any, formula: str, samples: Any, derivation: Derivation, **parts: Any) -> Op:
    return op(
        name, reference, {"x": vjp}, view=True, samples=samples, formula=formula, exact_dtype=True,
        derivation=derivation, **parts,
    )  # fmt: skip


def _joins(old: Shape, attrs: Mapping[str, Any]) -> bool:
    """Does a reshape join dimensions? One that only splits them is a view, whatever the strides."""
    return not set(accumulate(old, mul)) <= {1, *accumulate(attrs["shape"], mul)}


alias = _view(
    "alias", lambda x: x[...], lambda g: g, "x", cases(((2, 3), {}), ((), {})),
    derivation=moving("y is x, the same memory"),
)  # fmt: skip
detach_op = op(
    "detach", lambda x: x[...], view=True, differentiable=False, samples=cases(((2, 3), {})), formula="x, a constant",
    exact_dtype=True,
 derivation=derive("y = x, cut off from its history on purpose: what follows treats it as a constant"))  # fmt: skip

reshape_op: Op = _view(
    "reshape", lambda x, *, shape: x.reshape(shape), lambda g, x_shape: reshape_op(g, shape=x_shape),
    "the same elements in row-major order, another shape",
    cases(
        ((2, 6), {"shape": (3, 4)}), ((4,), {"shape": (1, 2, 2)}), ((0, 3), {"shape": (3, 0)}), ((1,), {"shape": ()})
    ),
    derivation=moving("y has the elements of x in their order"),
    joins=_joins,
)  # fmt: skip


def axis(name: str, x: Tensor, dim: int) -> int:
    """A dimension that `x` has. Raises ValueError for a tensor without dimensions, IndexError out of range."""
    if not x.array.ndim:
        raise ValueError(f"{name}: a tensor without dimensions has no dimension {dim}: use .reshape(1) first")
    return normalise_dim(dim, x.array.ndim)


def resolve_shape(given: Sequence[int], size: int, old: Shape) -> Shape:
    """A shape whose one -1 is filled in. Raises ValueError with both sizes when they do not fit."""
    shape = [rules.integer(n, "a size") for n in given]
    known = 1
    for n in shape:
        known *= n if n != -1 else 1
    if shape.count(-1) == 1 and known and size % known == 0:
        shape[shape.index(-1)] = size // known
    elif -1 in shape or any(n < 0 for n in shape) or known != size:
        raise ValueError(f"cannot view shape {list(old)} ({size} elements) as {list(given)}")
    return tuple(shape)


def reshape(x: Tensor, *shape: Any) -> Tensor:
    """The same elements in another shape (one size may be -1); a view where the memory allows it, else a copy."""
    new = resolve_shape(flatten_arguments(shape), x.array.size, x.array.shape)
    return reshape_op(x, shape=new)


def view(x: Tensor, *shape: Any) -> Tensor:
    """Like reshape, but never a copy. Raises RuntimeError where the memory layout does not allow it."""
    result = reshape(x, *shape)
    known = state.interpreter.order_is_known(x)
    if result.base is None and x.array.size and known:
        raise RuntimeError(
            f"view: a tensor of shape {list(x.array.shape)} with these strides cannot be viewed as "
            f"{list(result.array.shape)} without a copy: call .contiguous() first, or use .reshape()"
        )
    return result


def view_as(x: Tensor, other: Tensor) -> Tensor:
    """A view in the shape of `other`."""
    return view(x, other.array.shape)


permute_op: Op = _view(
    "permute", lambda x, *, dims: x.transpose(dims),
    lambda g, dims: permute_op(g, dims=tuple(int(i) for i in np.argsort(dims))),
    "dimension i of the result is dimension dims[i] of x",
    cases(((2, 3, 4), {"dims": (2, 0, 1)}), ((2, 3), {"dims": (1, 0)}), ((), {"dims": ()})),
    derivation=moving("y has the elements of x in another order of dimensions"),
)  # fmt: skip


def permute(x: Tensor, *dims: Any) -> Tensor:
    """Reorder the dimensions. Raises ValueError unless `dims` names each once."""
    given = flatten_arguments(dims)
    normal = tuple(normalise_dim(d, x.array.ndim) for d in given) if given else ()
    if sorted(normal) != list(range(x.array.ndim)):
        raise ValueError(f"permute: {given} does not name each of {x.array.ndim} dimensions once")
    return permute_op(x, dims=normal)


def transpose(x: Tensor, dim0: int, dim1: int) -> Tensor:
    """Exchange two dimensions."""
    dims = list(range(x.array.ndim))
    i, j = normalise_dim(dim0, x.array.ndim), normalise_dim(dim1, x.array.ndim)
    if dims:
        dims[i], dims[j] = dims[j], dims[i]
    return permute_op(x, dims=tuple(dims))


expand_op = _view(
    "expand", lambda x, *, shape: x.reshape(shape) if x.size == math.prod(shape) else np.broadcast_to(x, shape),
    lambda g: g, "x repeated along new and size-1 dimensions, without a copy",
    cases(((3, 1), {"shape": (3, 4)}), ((2,), {"shape": (3, 2)}), ((), {"shape": (2, 2)})),
    derivation=moving("y repeats elements of x"),
)  # fmt: skip


def expand(x: Tensor, *sizes: Any) -> Tensor:
    """Repeat size-1 dimensions (-1 keeps a size). Raises ValueError where a size other than 1 would change."""
    given = flatten_arguments(sizes)
    extra = len(given) - x.array.ndim
    shape = tuple(x.array.shape[i - extra] if n == -1 and i >= extra else n for i, n in enumerate(given))
    if (
        extra < 0
        or min(shape, default=0) < 0
        or any(n != m and m != 1 for n, m in zip(shape[extra:], x.array.shape, strict=True))
    ):
        raise ValueError(f"expand: shape {list(x.array.shape)} does not expand to {list(given)}")
    return expand_op(x, shape=shape)


def broadcast_to(x: Tensor, shape: Sequence[int]) -> Tensor:
    """`x` expanded to `shape`."""
    return expand(x, shape)


def expand_as(x: Tensor, other: Tensor) -> Tensor:
    """`x` expanded to the shape of `other`."""
    return expand(x, other.array.shape)


def unsqueeze(x: Tensor, dim: int) -> Tensor:
    """A new dimension of size 1 at `dim`."""
    shape = list(x.array.shape)
    shape.insert(normalise_dim(dim, x.array.ndim + 1), 1)
    return reshape_op(x, shape=tuple(shape))


def squeeze(x: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
    """Drop dimensions of size 1 (all of them, or those of `dim` that have it)."""
    n = x.array.ndim
    dims = range(n) if dim is None else [normalise_dim(d, n) for d in flatten_arguments((dim,))]
    return reshape_op(x, shape=tuple(n for i, n in enumerate(x.array.shape) if not (i in dims and n == 1)))


def flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Join the dimensions from `start_dim` to `end_dim` into one."""
    shape = x.array.shape
    first, last = normalise_dim(start_dim, len(shape)), normalise_dim(end_dim, len(shape))
    if first > last:
        raise ValueError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim}")
    return reshape(x, *shape[:first], int(np.prod(shape[first : last + 1])), *shape[last + 1 :])


def unflatten(x: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
    """Split one dimension into several. Raises ValueError where the sizes do not fit."""
    i = axis("unflatten", x, dim)
    new = resolve_shape(flatten_arguments((sizes,)), x.array.shape[i], (x.array.shape[i],))
    return reshape_op(x, shape=x.array.shape[:i] + new + x.array.shape[i + 1 :])


as_strided_op = _view(
    "as_strided", lambda x, *, shape, strides, offset: _strided(x, shape, strides, offset),
    lambda g, x_shape, shape, strides, offset: strided_add_op(
        g, base_shape=x_shape, shape=shape, strides=strides, offset=offset
    ),
    "a window on the memory of x: shape, strides and offset in elements",
    cases(((2, 6), {"shape": (2, 3), "strides": (6, 2), "offset": 1})),
    derivation=moving("y is a window on the memory of x"),
)  # fmt: skip


def _strided(x: Array, shape: Shape, strides: Sequence[int], offset: int) -> Array:
    memory = np.ascontiguousarray(x)
    size = x.dtype.itemsize
    return np.ndarray(shape, x.dtype, memory, offset * size, tuple(stride * size for stride in strides))


def as_strided(x: Tensor, shape: Shape, strides: Sequence[int], offset: int = 0) -> Tensor:
    """A window on the memory of a contiguous tensor; strides and offset in elements."""
    return as_strided_op(x, shape=tuple(shape), strides=tuple(strides), offset=offset)


def _over(x: Array, start: Sequence[int], shape: Sequence[int], strides: Sequence[int]) -> Array:
    """A view of the memory of x from element `start` on. numpy's `as_strided` does not say whose memory it shows, and
    its diagonal cannot be written into. A copy where the memory as a whole has gaps."""
    if not x.size or 0 in shape:
        return np.empty(shape, x.dtype)
    owner = x
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    owner = owner if owner.flags.c_contiguous else owner.T
    if not owner.flags.c_contiguous:
        part = x[tuple([slice(n, None) for n in start])]
        return np.array(np.lib.stride_tricks.as_strided(part, shape, strides))
    first = builtins.sum(n * stride for n, stride in zip(start, x.strides, strict=True))
    offset = x.__array_interface__["data"][0] - owner.__array_interface__["data"][0] + first
    view = np.ndarray(tuple(shape), x.dtype, owner, offset, tuple(strides))
    view.flags.writeable = x.flags.writeable and not _overlaps(view)
    return view


def _overlaps(x: Array) -> bool:
    """May elements of x share memory, as windows do that advance by less than their size?"""
    end = x.itemsize
    for stride, n in sorted(zip(map(builtins.abs, x.strides), x.shape, strict=True)):
        if n > 1 and stride < end:
            return True
        end += (n - 1) * stride
    return False


def _diagonal(x: Array, *, offset: int, dim1: int, dim2: int) -> Array:
    rows, columns = max(-offset, 0), max(offset, 0)
    n = max(min(x.shape[dim1] - rows, x.shape[dim2] - columns), 0)
    start = [rows if d == dim1 else columns if d == dim2 else 0 for d in range(x.ndim)]
    rest = [d for d in range(x.ndim) if d not in (dim1, dim2)]
    strides = [*[x.strides[d] for d in rest], x.strides[dim1] + x.strides[dim2]]
    return _over(x, start, [*[x.shape[d] for d in rest], n], strides)


def _diagonal_vjp(g: Tensor, x_shape: Shape, offset: int, dim1: int, dim2: int) -> Tensor:
    numbers = np.arange(math.prod(x_shape)).reshape(x_shape)
    window = _diagonal(numbers, offset=offset, dim1=dim1, dim2=dim2)
    steps = tuple(stride // numbers.itemsize for stride in window.strides)
    start = int(window.flat[0]) if window.size else 0
    return strided_add_op(g, base_shape=x_shape, shape=window.shape, strides=steps, offset=start)


diagonal_op = _view(
    "diagonal", _diagonal, _diagonal_vjp,
    "the elements with index i along one dimension and i + offset along another, in a last dimension of their own",
    cases(
        ((3, 4), {"offset": 0, "dim1": 0, "dim2": 1}),
        ((3, 4), {"offset": -1, "dim1": 1, "dim2": 0}),
        ((2, 3, 4), {"offset": 1, "dim1": 0, "dim2": 2}),
    ),
    derivation=moving("y has some elements of x"),
)  # fmt: skip


def diagonal(x: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The elements with index i along `dim1` and i + offset along `dim2`, in a last dimension of their own: a view.

    Raises ValueError where both dimensions are one.
    """
    first, second = axis("diagonal", x, dim1), axis("diagonal", x, dim2)
    if first == second:
        raise ValueError(f"diagonal: dim1 {dim1} and dim2 {dim2} are the same dimension")
    return diagonal_op(x, offset=rules.integer(offset, "diagonal: the offset"), dim1=first, dim2=second)


def _windows(x: Array, *, dim: int, size: int, step: int) -> Array:
    count = (x.shape[dim] - size) // step + 1
    shape = (*x.shape[:dim], count, *x.shape[dim + 1 :], size)
    strides = (*x.strides[:dim], x.strides[dim] * step, *x.strides[dim + 1 :], x.strides[dim])
    return _over(x, (0,) * x.ndim, shape, strides)


def _windows_vjp(g: Tensor, x_shape: Shape, dim: int, size: int, step: int) -> Tensor:
    inner = math.prod(x_shape[dim + 1 :])
    steps = [math.prod(x_shape[d + 1 :]) for d in range(len(x_shape))]
    steps[dim] *= step
    return strided_add_op(g, base_shape=x_shape, shape=g.array.shape, strides=(*steps, inner), offset=0)


unfold_op = _view(
    "unfold", _windows, _windows_vjp,
    "windows of some elements along a dimension, a step apart, in a last dimension of their own",
    cases(((5,), {"dim": 0, "size": 3, "step": 1}), ((2, 5, 2), {"dim": 1, "size": 2, "step": 3})),
    derivation=moving("y repeats elements of x"),
)  # fmt: skip


def unfold(x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows of `size` elements along a dimension, `step` apart, in a last dimension of their own: a view.

    Raises ValueError for windows that do not lie inside, or a step that is not positive.
    """
    size, step = rules.integer(size, "unfold: the size"), rules.integer(step, "unfold: the step")
    if not x.array.ndim and 0 <= size <= 1 <= step:
        return reshape(x, 1)[:size]
    dim = axis("unfold", x, dimension)
    if not 0 <= size <= x.array.shape[dim] or step < 1:
        raise ValueError(
            f"unfold: windows of {size} elements, {step} apart, do not lie in dimension {dimension} of size "
            f"{x.array.shape[dim]}"
        )
    return unfold_op(x, dim=dim, size=size, step=step)


def _strided_add(g: Array, *, base_shape: Shape, shape: Shape, strides: Sequence[int], offset: int) -> Array:
    result = np.zeros(base_shape, g.dtype)
    numbers = np.arange(result.size).reshape(base_shape)
    np.add.at(result.reshape(-1), _strided(numbers, shape, strides, offset), g)
    return result


strided_add_op: Op = op(
    "strided_add", _strided_add, {"g": lambda g, shape, strides, offset: as_strided(g, shape, strides, offset)},
    shape=lambda metas, *, base_shape, **_: [(base_shape, metas[0][1])], flops=rules.per_input(1),
    samples=cases(((2, 3), {"base_shape": (2, 6), "shape": (2, 3), "strides": (6, 2), "offset": 1})),
    formula="zeros, with g added in a strided window", kernels={"cuda.joins": ANY_DTYPE},
    derivation=derive(BACK, THERE, g="window(h, shape, strides, offset)"),
)  # fmt: skip


def _strided_scatter(base: Array, value: Array, *, shape: Shape, strides: Sequence[int], offset: int) -> Array:
    result = np.array(base, order="C")
    _strided(result, shape, strides, offset)[...] = value
    return result


strided_scatter_op: Op = op(
    "strided_scatter", _strided_scatter,
    {
        "base": lambda g, value_shape, shape, strides, offset: strided_scatter_op(
            g, zeros_like_meta(value_shape, g), shape=shape, strides=strides, offset=offset
        ),
        "value": lambda g, shape, strides, offset: as_strided(contiguous(g), shape, strides, offset),
    },
    shape=rules.like_first,
    samples=lambda rng: [
        ((rng.standard_normal((2, 6)), rng.standard_normal((2, 3))), {"shape": (2, 3), "strides": (6, 2), "offset": 1})
    ],
    formula="base with a strided window replaced by value", exact_dtype=True, kernels={"cuda.joins": ANY_DTYPE},
    derivation=derive(
        "y is the base with a window replaced", REPLACED, let={"hit": "moved(0 * base, 0 * value + 1)"},
        base="g * (1 - hit)", value="window(g, shape, strides, offset)",
    ),
)  # fmt: skip


def detach(x: Tensor) -> Tensor:
    """The same memory without a history."""
    return detach_op(x)


expect_tensors(globals())
