"""Indexing: slices, integer and boolean indices for reading and writing; gather, scatter, one-hot.

An index is split into a static part (slices, integers, None, Ellipsis: an attribute) and index tensors (inputs). Static
indices give views; index tensors give copies, and their gradient adds up where an element was taken twice.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.ops import rules
from minigrad.ops.arguments import expect_tensors
from minigrad.ops.derivation import BACK, REPLACED, THERE, derive, grid, moving
from minigrad.ops.elementwise import as_operand, cast
from minigrad.ops.registry import ANY_DTYPE, INTEGERS, Array, Meta, Op, op
from minigrad.ops.rules import normalise_dim
from minigrad.ops.shape import broadcast_to, clone, narrow, placed, reshape, to_device, zeros_like_meta
from minigrad.tensor import Tensor

SLOT = "tensor"  # stands in an index where an index tensor goes
ALL = ("slice", None, None, None)
Static = tuple[Any, ...]


def thaw(index: Static, tensors: Sequence[Array] = ()) -> tuple[Any, ...]:
    """The index that numpy takes, with `tensors` in their slots."""
    given = iter(tensors)
    return tuple(
        next(given) if item == SLOT else slice(*item[1:]) if isinstance(item, tuple) else item for item in index
    )


def parse(x: Tensor, index: Any) -> tuple[Static, Static, list[Tensor]]:
    """A Python index as (static part, places of index tensors in what the static part leaves, index tensors).

    Integers are applied with the static part, before index tensors (as torch does: `x[0, :, ids]` keeps its order of
    dimensions). Raises IndexError or TypeError in one sentence.
    """
    items = list(index) if _is_tuple(index) else [index]
    items = [_as_index_tensor(item) for item in items]
    items = [to_device(item, x.storage.device) if isinstance(item, Tensor) else item for item in items]
    if Ellipsis not in [item for item in items if item is Ellipsis]:
        items.append(Ellipsis)
    taken = builtins.sum(_consumed(item) for item in items)
    rest = x.array.ndim - taken
    if rest < 0:
        raise IndexError(f"{taken} indices are too many for a tensor of {x.array.ndim} dimensions")
    static: list[Any] = []
    places: list[Any] = []
    tensors: list[Tensor] = []
    dim = 0
    for item in items:
        if isinstance(item, Tensor):
            _check_mask(item, x.array.shape, dim)
            static += [ALL] * _consumed(item)
            places.append(SLOT)
            tensors.append(item)
        elif item is Ellipsis:
            static += [ALL] * rest
            places += [ALL] * rest
            dim += rest
            rest = 0
        else:
            static.append(item)
            if not isinstance(item, int):
                places.append(ALL)
        dim += _consumed(item)
    return tuple(static), tuple(places), tensors


def _is_tuple(index: Any) -> bool:
    """Does it index several dimensions? A list does, as in torch, where it holds more than numbers: `x[[ids]]`."""
    if isinstance(index, list):
        return builtins.any(
            isinstance(item, Tensor | np.ndarray | list | tuple | range | slice) or item is None or item is Ellipsis
            for item in index
        )
    return isinstance(index, tuple)


def _check_mask(item: Tensor, shape: tuple[int, ...], dim: int) -> None:
    """Raise IndexError, in numpy's words, for a mask whose sizes are not those from `dim` on: a kernel spreads it."""
    for d, size in enumerate(item.array.shape if item.array.dtype == dtypes.bool_ else (), dim):
        if size != shape[d]:
            raise IndexError(
                f"boolean index did not match indexed array along axis {d}; size of axis is {shape[d]} but size of "
                f"corresponding boolean axis is {size}"
            )


def _as_index_tensor(item: Any) -> Any:
    """An item of an index: a tensor of integers or booleans, an int, a bool, None, ..., or a slice as a tuple."""
    if isinstance(item, Tensor | np.ndarray | list | range):
        try:
            tensor = item if isinstance(item, Tensor) else as_operand(np.asarray(item, None if len(item) else np.int64))
        except ValueError:
            raise IndexError("a list in an index must hold numbers, or lists of equal length") from None
        if dtypes.is_floating(tensor.array.dtype):
            raise TypeError(
                f"an index must be int, bool, a slice, None, ... or a tensor of integers or booleans, "
                f"got a {dtypes.name(tensor.array.dtype)} tensor"
            )
        one_integer = tensor.array.ndim == 0 and tensor.array.dtype != dtypes.bool_
        return int(tensor.array) if one_integer and _readable(tensor) else tensor
    if isinstance(item, slice):
        if item.step is not None and rules.integer(item.step, "a slice's step") <= 0:
            raise ValueError("a slice's step must be positive: use .flip(dim) to reverse")
        bounds = (item.start, item.stop, item.step)
        return ("slice", *[None if v is None else rules.integer(v, "a bound of a slice") for v in bounds])
    if item is None or item is Ellipsis:
        return item
    if isinstance(item, bool | np.bool_):  # a mask without dimensions
        return Tensor(np.array(item))
    if isinstance(item, int | np.integer):
        return int(item)
    raise TypeError(f"a tensor cannot be indexed with {type(item).__name__}")


def _readable(tensor: Tensor) -> bool:
    """May Python look at the values? Not in a trace, and on a device that would wait for it."""
    return not tensor.storage.abstract and tensor.storage.device == "cpu"


def _consumed(item: Any) -> int:
    """How many dimensions of the tensor an item of an index speaks of."""
    if isinstance(item, Tensor):
        return item.array.ndim if item.array.dtype == dtypes.bool_ else 1
    return 0 if item is None or item is Ellipsis else 1


def sides(index: Static, ndim: int) -> tuple[list[int], list[int], list[int]] | None:
    """The dimensions before, at and behind those that index tensors stand for; None where there is more in `index` than
    such tensors and whole dimensions. What is taken stands between, or comes first if the tensors are no neighbours.
    """
    items = [item for item in index if item is not Ellipsis]
    if SLOT not in items or any(item not in (SLOT, ALL) for item in items):
        return None
    at = index.index(Ellipsis) if Ellipsis in index else len(items)
    items[at:at] = [ALL] * (ndim - len(items))
    slots = [d for d, item in enumerate(items) if item == SLOT]
    rest = [d for d, item in enumerate(items) if item == ALL]
    neighbours = slots == list(range(slots[0], slots[0] + len(slots)))
    return (rest[: slots[0]], slots, rest[slots[0] :]) if neighbours else ([], slots, rest)


def _indexed(shape: tuple[int, ...], index: Static, tensors: Sequence[Meta]) -> tuple[int, ...]:
    """The shape of x[index] for tensors of integers. Raises IndexError where they do not fit together."""
    found = sides(index, len(shape))
    if found is None:  # found on arrays that hold no memory
        hollow = np.lib.stride_tricks.as_strided(np.zeros((), bool), shape, (0,) * len(shape))
        return hollow[thaw(index, [np.zeros(given, dtype) for given, dtype in tensors])].shape
    before, _, after = found
    try:
        taken = np.broadcast_shapes(*[given for given, _ in tensors])
    except ValueError:
        given = " ".join(str(shape).replace(" ", "") for shape, _ in tensors)
        raise IndexError(
            f"shape mismatch: indexing arrays could not be broadcast together with shapes {given}"
        ) from None
    return (*[shape[d] for d in before], *taken, *[shape[d] for d in after])


def _meta(metas: Sequence[Meta], *, index: Static) -> list[Meta]:
    if any(dtype == dtypes.bool_ for _, dtype in metas[1:]):
        raise RuntimeError(
            "indexing with a boolean tensor gives a shape that depends on its values: "
            "it cannot be traced; use where() or masked_fill()"
        )
    return [(_indexed(metas[0][0], index, metas[1:]), metas[0][1])]


slice_op = op(
    "slice",
    lambda x, *, index: x[(*thaw(index), ...)],  # with "..." a single element is a view, too
    {"x": lambda g, x_shape, index: slice_add_op(g, shape=x_shape, index=index)},
    view=True,
    samples=lambda rng: [
        ((rng.standard_normal((4, 5)),), {"index": (1,)}),
        ((rng.standard_normal((4, 5)),), {"index": (("slice", 1, 3, None), ("slice", None, None, 2))}),
        ((rng.standard_normal((4, 5)),), {"index": (("slice", None, None, None), None, -1)}),
    ],
    formula="x[index], a view",
    exact_dtype=True,
    derivation=moving("y has some of the elements of x"),
)


def _slice_add(g: Array, *, shape: tuple[int, ...], index: Static) -> Array:
    result = np.zeros(shape, g.dtype)
    result[thaw(index)] = g
    return result


slice_add_op: Op = op(
    "slice_add",
    _slice_add,
    {"g": lambda g, index: slice_op(g, index=index)},
    shape=lambda metas, *, shape, index: [(shape, metas[0][1])],
    samples=lambda rng: [
        ((rng.standard_normal((2, 3)),), {"shape": (4, 5), "index": (("slice", 1, 3, None), ("slice", None, None, 2))})
    ],
    formula="zeros of a shape, with g at index",
    exact_dtype=True,
    kernels={"cuda.joins": ANY_DTYPE},
    derivation=derive(
        BACK,
        THERE,
        g="at(h, index)",
        example=lambda: ([grid(1, 2)], {"shape": (2, 3), "index": (("slice", 1, 2, None), ("slice", None, None, 2))}),
    ),
)


def _join(*parts: Array, shape: tuple[int, ...], indices: tuple[Static, ...]) -> Array:
    result = np.zeros(shape, parts[0].dtype)
    for part, index in zip(parts, indices, strict=True):
        result[thaw(index)] = part
    return result


join_op: Op = op(
    "join",
    _join,
    lambda g, parts, indices: [slice_op(g, index=index) for index in indices],
    shape=lambda metas, *, shape, indices: [(shape, metas[0][1])],
    samples=lambda rng: [
        (
            (rng.standard_normal((2, 5)), rng.standard_normal((1, 5))),
            {"shape": (4, 5), "indices": ((("slice", 0, 2, None),), (("slice", 3, 4, None),))},
        )
    ],
    formula="zeros of a shape, with each part at its own index; no two overlap",
    exact_dtype=True,
    kernels={"cuda.joins": ANY_DTYPE},
    any_strides=True,
    derivation=derive(
        "y is zeros with each part at its own place",
        "each gets what has arrived at its place",
        parts="[at(g, index) for index in indices]",
        example=lambda: (
            [grid(1, 3), grid(1, 2, seed=1)],
            {"shape": (2, 3), "indices": ((("slice", 0, 1, None),), (("slice", 1, 2, None), ("slice", 0, 2, None)))},
        ),
    ),
)

take_op = op(
    "take",
    lambda x, *indices, index: np.asarray(x[thaw(index, indices)], order="C"),
    lambda g, x_shape, indices, index: [put_add_op(g, *indices, shape=x_shape, index=index), *[None] * len(indices)],
    shape=_meta,
    samples=lambda rng: [
        ((rng.standard_normal((4, 5)), np.array([0, 2, 2])), {"index": (SLOT,)}),
        ((rng.standard_normal((4, 5)), np.array([0, 3]), np.array([[1], [4]])), {"index": (SLOT, SLOT)}),
        ((rng.standard_normal((3, 4)), rng.random((3, 4)) < 0.5), {"index": (SLOT,)}),
    ],
    formula="x[index], a copy",
    exact_dtype=True,
    row_major=True,
    kernels={"cuda.index": ANY_DTYPE},
    derivation=derive(
        "y_i = x_s(i), where s(i) is found by taking from the numbers 0, 1, 2, ... instead of x",
        "dL = sum_i g_i dx_s(i): an element that was taken twice collects twice",
        let={"s": "moved(numbers(x))"},
        example=lambda: ([grid(2, 3), np.array([1, 0, 1])], {"index": ("tensor",)}),
        x="collect(g, s, x)",
    ),
)


def _put_add(g: Array, *indices: Array, shape: tuple[int, ...], index: Static) -> Array:
    result = np.zeros(shape, g.dtype)
    np.add.at(result, thaw(index, indices), g)
    return result


put_add_op: Op = op(
    "put_add",
    _put_add,
    lambda g, indices, index: [take_op(g, *indices, index=index), *[None] * len(indices)],
    shape=lambda metas, *, shape, index: [(shape, metas[0][1])],
    flops=rules.per_input(1),
    samples=lambda rng: [((rng.standard_normal((3, 5)), np.array([0, 2, 2])), {"shape": (4, 5), "index": (SLOT,)})],
    formula="zeros of a shape, with g added at index; elements taken twice add up",
    kernels={"cuda.index": ANY_DTYPE},
    derivation=derive(
        BACK,
        THERE,
        g="at(h, index, *indices)",
        example=lambda: ([grid(3, 3), np.array([1, 0, 1])], {"shape": (2, 3), "index": ("tensor",)}),
    ),
)


def getitem(x: Tensor, index: Any) -> Tensor:
    """`x[index]`: a view for slices, integers, None and ...; a copy where an index is a tensor, array or list.

    Raises IndexError out of range, TypeError for a floating index.
    """
    try:
        view, places, tensors = view_at(x, index)
        return take_op(view, *tensors, index=places) if tensors else view
    except IndexError as error:
        raise IndexError(f"indexing a tensor of shape {list(x.array.shape)}: {error}") from None


def view_at(x: Tensor, index: Any) -> tuple[Tensor, Static, list[Tensor]]:
    """`x` with the static part of `index` applied, and what is left for the index tensors."""
    static, places, tensors = parse(x, index)
    unchanged = tensors and builtins.all(item == ALL for item in static)
    return x if unchanged else slice_op(x, index=static), places, tensors


def _put(x: Array, value: Array, *indices: Array, index: Static) -> Array:
    result = np.array(x, order="C")
    result[thaw(index, indices)] = value
    return result


def _put_meta(metas: Sequence[Meta], *, index: Static) -> list[Meta]:
    """Raises ValueError for a value that does not fit, in numpy's words: a kernel would take a part of it."""
    (shape, _), (value, _), *tensors = metas
    if not any(dtype == dtypes.bool_ for _, dtype in tensors):  # how much a mask takes is not known
        target = _indexed(shape, index, tensors)
        extra = builtins.max(len(value) - len(target), 0)
        pairs = zip(reversed(value), reversed(target), strict=False)
        if builtins.any(n != 1 for n in value[:extra]) or builtins.any(n not in (1, m) for n, m in pairs):
            sizes = [str(sizes).replace(" ", "") for sizes in (value, target)]
            raise ValueError(
                "shape mismatch: value array of shape {} could not be broadcast to indexing result of shape {}".format(
                    *sizes
                )
            )
    return [metas[0]]


put_op: Op = op(
    "put",
    _put,
    lambda g, value_shape, indices, index, needs: [
        put_op(g, zeros_like_meta((), g), *indices, index=index) if needs[0] else None,
        take_op(g, *indices, index=index) if needs[1] else None,
        *[None] * len(indices),
    ],
    shape=_put_meta,
    samples=lambda rng: [
        ((rng.standard_normal((4, 5)), rng.standard_normal((2, 5))), {"index": (("slice", 1, 3, None),)}),
        ((rng.standard_normal((4, 5)), rng.standard_normal((5,)), np.array([0, 3])), {"index": (SLOT,)}),
        ((rng.standard_normal((3, 4)), rng.standard_normal(()), rng.random((3, 4)) < 0.5), {"index": (SLOT,)}),
    ],
    formula="x with the elements at index replaced by value",
    exact_dtype=True,
    kernels={"numba.put": "float32", "cuda.index": ANY_DTYPE},
    same_place=True,
    derivation=derive(
        "y is x with the elements at index replaced",
        REPLACED,
        let={"hit": "moved(0 * x, 0 * value + 1)"},
        x="g * (1 - hit)",
        value="at(g, index, *indices)",
        example=lambda: ([grid(2, 3), grid(1, 3, seed=1)], {"index": (("slice", 1, 2, None),)}),
    ),
)


def expand_leading(value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`value` expanded to `shape`; leading dimensions of size 1 that `shape` lacks are dropped."""
    extra = value.array.ndim - len(shape)
    if extra > 0 and value.array.shape[:extra] == (1,) * extra:
        value = reshape(value, value.array.shape[extra:])
    return broadcast_to(value, shape)


# --- gather and scatter -----------------------------------------------------------------------------


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
