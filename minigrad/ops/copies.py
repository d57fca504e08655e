"""Copies: of a tensor as it is, reversed, cut to a triangle, on another device; and memory that is filled anew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from minigrad import dtypes, kernels
from minigrad.ops import rules
from minigrad.ops.arguments import expect_tensors
from minigrad.ops.derivation import derive, moving
from minigrad.ops.registry import ANY_DTYPE, Array, Op, Sample, op
from minigrad.ops.rules import flatten_arguments
from minigrad.state import state
from minigrad.tensor import Storage, Tensor

Shape = tuple[int, ...]


def cases(*cases: tuple[Shape, dict[str, Any]]) -> Any:
    """Samples: shapes of the one input, with attributes."""

    def samples(rng: np.random.Generator) -> Iterable[Sample]:
        for shape, attrs in cases:
            yield (rng.standard_normal(shape),), attrs

    return samples


clone_op = op(
    "clone", lambda x: np.array(x, order="C"), {"x": lambda g: g}, shape=rules.like_first,
    samples=cases(((2, 3), {}), ((0,), {})), formula="a copy of x", exact_dtype=True, expression=lambda x: x,
 derivation=moving("y is x, in other memory"))  # fmt: skip


def clone(x: Tensor) -> Tensor:
    """A copy, in row-major order."""
    return clone_op(x)


to_device_op: Op = op(
    "to_device", lambda x, *, device, source: x.copy(),
    {"x": lambda g, device, source: to_device_op(g, device=source, source=device)}, moves=True, shape=rules.like_first,
    samples=cases(((2, 3), {"device": "cpu", "source": "cpu"})), formula="x on another device", exact_dtype=True,
    derivation=moving("y is x, on another device"),
)  # fmt: skip


def to_device(x: Tensor, device: str) -> Tensor:
    """`x` on `device` ("cpu" or "cuda:0"); itself if it is there."""
    source = x.storage.device
    return x if source == device else to_device_op(x, device=device, source=source)


def filled(shape: Shape, value: Any, dtype: np.dtype, device: str) -> Tensor:
    """`value` everywhere, on `device`; memory that is there at once, also in a trace."""
    if device == "cpu":
        return Tensor(np.full(shape, value, dtype))
    made: Any = kernels.gpu().runtime().full(shape, dtypes.scalar(value, dtype))
    return Tensor(made, Storage(device))


def uninitialised(shape: Shape, dtype: np.dtype, device: str) -> Tensor:
    """Memory of arbitrary content on `device`."""
    if device == "cpu":
        return Tensor(np.empty(shape, dtype))
    made: Any = kernels.gpu().runtime().empty(shape, dtype)
    return Tensor(made, Storage(device))


def placed(array: Array, device: str) -> Tensor:
    """A host array as a tensor on `device`: sharing its memory on the CPU, a copy elsewhere."""
    if device == "cpu":
        return Tensor(array)
    made: Any = kernels.gpu().runtime().upload(array)
    return Tensor(made, Storage(device))


def contiguous(x: Tensor) -> Tensor:
    """`x` itself if its elements lie in row-major order, else a copy that does."""
    if not state.interpreter.order_is_known(x):
        result = clone(x)
        state.interpreter.perhaps_a_view(x, result)
        return result
    return x if x.array.flags.c_contiguous else clone(x)


flip_op: Op = op(
    "flip", lambda x, *, dims: np.array(np.flip(x, dims), order="C"), {"x": lambda g, dims: flip_op(g, dims=dims)},
    shape=rules.like_first, samples=cases(((2, 3), {"dims": (1,)}), ((2, 3), {"dims": (0, 1)})),
    formula="x in reverse order along dims", exact_dtype=True, kernels={"cuda.elementwise": ANY_DTYPE},
    derivation=moving("y has the elements of x in reverse order"),
)  # fmt: skip


def flip(x: Tensor, *given: Any, dims: Sequence[int] | None = None) -> Tensor:
    """Reverse the order of elements along `dims` (a copy), one by one, as a sequence, or by name."""
    given = flatten_arguments(given if dims is None else (dims,))
    return flip_op(x, dims=rules.normalise_dims(given, x.array.ndim) if given else ())


def zeros_like_meta(shape: Shape, like: Tensor) -> Tensor:
    """Zeros of `shape` in the dtype of `like`, where it is."""
    return filled(shape, 0, like.array.dtype, like.storage.device)


def _triangle(name: str, keep: Any, formula: str, where: str) -> Op:
    return op(
        name, keep, {"x": lambda g, diagonal: OPS_BY_TRIANGLE[name](g, diagonal=diagonal)}, shape=rules.like_first,
        samples=cases(((3, 4), {"diagonal": 0}), ((2, 4, 3), {"diagonal": 1}), ((3, 3), {"diagonal": -1})),
        formula=formula, exact_dtype=True, kernels={"cuda.joins": ANY_DTYPE},
        derivation=derive(f"y = M x, M 1 on and {where} the diagonal, else 0", x=f"{name}(g, diagonal)"),
    )  # fmt: skip


OPS_BY_TRIANGLE = {
    "tril": _triangle(
        "tril", lambda x, *, diagonal: np.tril(x, diagonal), "x_ij where j <= i + diagonal, else 0", "below"
    ),
    "triu": _triangle(
        "triu", lambda x, *, diagonal: np.triu(x, diagonal), "x_ij where j >= i + diagonal, else 0", "above"
    ),
}


def _matrices(name: str, x: Tensor, diagonal: int) -> Tensor:
    if x.array.ndim < 2:
        raise ValueError(f"{name} needs at least 2 dimensions, got shape {list(x.array.shape)}")
    return OPS_BY_TRIANGLE[name](x, diagonal=rules.integer(diagonal, "a diagonal"))


def tril(x: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangle of matrices ``(..., m, n)``, zeros above `diagonal`."""
    return _matrices("tril", x, diagonal)


def triu(x: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangle of matrices ``(..., m, n)``, zeros below `diagonal`."""
    return _matrices("triu", x, diagonal)


expect_tensors(globals())
