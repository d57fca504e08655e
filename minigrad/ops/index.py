"""Indexing: slices, integer and boolean indices, for reading and writing.

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
from minigrad.ops.copies import to_device, zeros_like_meta
from minigrad.ops.derivation import BACK, REPLACED, THERE, derive, grid, moving
from minigrad.ops.operands import as_operand
from minigrad.ops.registry import ANY_DTYPE, Array, Meta, Op, op
from minigrad.ops.shape import broadcast_to, reshape
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


expect_tensors(globals())
