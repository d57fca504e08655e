"""What elementwise ops are made with: operands of one dtype and shape, casts, and samples of inputs.

A Python number beside a tensor takes its dtype, dtypes meet by torch's rule, and shapes broadcast by numpy's (torch's).
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.ops import rules
from minigrad.ops.derivation import derive
from minigrad.ops.registry import ANY_DTYPE, Array, Op, Sample, op
from minigrad.state import state
from minigrad.tensor import LITERAL, Tensor

_NONE: dict[str, Any] = {}  # attributes: to call the interpreter instead of the op saves 0.3 us


def as_operand(value: Any, other: Tensor | None = None) -> Tensor:
    """A tensor, or a Python number or array beside `other` as one. Raises TypeError for anything else."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating):
        dtype = dtypes.of_scalar(value, None if other is None else other.array.dtype)
        return Tensor(dtypes.scalar(value, dtype), LITERAL)
    if isinstance(value, np.ndarray):
        dtypes.category(value.dtype)
        return Tensor(value)
    raise TypeError(f"expected a tensor or a number, got {type(value).__name__}: make it a tensor with mg.tensor(...)")


def pair(a: Any, b: Any) -> tuple[Tensor, Tensor]:
    """Two operands of one dtype."""
    if not isinstance(a, Tensor):
        b = as_operand(b)
        a = as_operand(a, b)
    elif not isinstance(b, Tensor):
        b = as_operand(b, a)
    first, second = a.array.dtype, b.array.dtype
    if first is second:
        return a, b
    target = dtypes.promote(first, second, a.array.ndim == 0, b.array.ndim == 0)
    return cast(a, dtype=target), cast(b, dtype=target)


def floating(x: Any) -> Tensor:
    """An operand of a function that has only floating values: integers become float32."""
    x = as_operand(x)
    return x if dtypes.is_floating(x.array.dtype) else cast(x, dtype=dtypes.DEFAULT)


BOOL, INTEGER, FLOATING = 0, 1, 2  # categories of dtypes
NUMBERS = (INTEGER, FLOATING)


def binary(
    primitive: Op, force_float: bool = False, accepts: Sequence[int] = (BOOL, INTEGER, FLOATING)
) -> Callable[[Any, Any], Tensor]:
    limited = len(accepts) < 3

    def call(a: Any, b: Any) -> Tensor:
        if not (isinstance(a, Tensor) and isinstance(b, Tensor) and a.array.dtype is b.array.dtype):
            a, b = pair(a, b)
        dtype = a.array.dtype
        if force_float and not dtypes.is_floating(dtype):
            a, b = floating(a), floating(b)
        elif limited and dtypes.category(dtype) not in accepts:
            raise TypeError(f"{primitive.name} is not defined for {dtypes.name(dtype)}: convert the operands first")
        try:
            return state.interpreter.apply(primitive, (a, b), _NONE)
        except ValueError:
            _check_broadcast(primitive.name, a, b)
            raise

    call.__name__ = call.__qualname__ = primitive.name
    call.__doc__ = f"{primitive.formula}, with broadcasting. Raises ValueError where shapes do not broadcast."
    return call


def _check_broadcast(name: str, a: Tensor, b: Tensor) -> None:
    try:
        rules.broadcast(a.array.shape, b.array.shape)
    except ValueError:
        raise ValueError(
            f"{name}: shapes {list(a.array.shape)} and {list(b.array.shape)} do not broadcast: from the last dimension "
            "backwards, sizes must be equal or 1"
        ) from None


def unary(primitive: Op, take: Callable[[Any], Tensor] = floating) -> Callable[[Any], Tensor]:
    """take: makes a tensor of what the function is given, of a dtype that it is defined for; its words say so."""

    def call(x: Any) -> Tensor:
        return state.interpreter.apply(primitive, (take(x),), _NONE)

    call.__name__ = call.__qualname__ = primitive.name
    says = {floating: "integers become float32.", as_operand: "the dtype stays."}.get(take, take.__doc__)
    call.__doc__ = f"{primitive.formula}, elementwise; {says}"
    return call


def no_booleans(name: str, instead: str) -> Callable[[Any], Tensor]:
    """For `unary`: an operand that is no boolean."""

    def take(x: Any) -> Tensor:
        """the dtype stays. Raises TypeError for booleans."""
        x = as_operand(x)
        if x.array.dtype.kind == "b":
            raise TypeError(f"{name} is not defined for bool: {instead}")
        return x

    return take


# --- samples ----------------------------------------------------------------------------------------

_PAIRS = (((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 1, 4), (3, 1)), ((), (2, 3)), ((0, 3), (3,)), ((1,), (2, 3)))


def two(draw: Callable[[np.random.Generator, tuple[int, ...]], Array]) -> Callable[..., Iterable[Sample]]:
    """Pairs of inputs over broadcasting, scalar and empty shapes."""

    def samples(rng: np.random.Generator) -> Iterable[Sample]:
        for first, second in _PAIRS:
            yield (draw(rng, first), draw(rng, second)), {}

    return samples


def one(draw: Callable[[np.random.Generator, tuple[int, ...]], Array]) -> Callable[..., Iterable[Sample]]:
    """Single inputs of several ranks, one empty."""

    def samples(rng: np.random.Generator) -> Iterable[Sample]:
        for shape in ((), (5,), (2, 3), (2, 0), (2, 3, 4)):
            yield (draw(rng, shape),), {}

    return samples


def anywhere(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.standard_normal(shape)


def positive(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.uniform(0.3, 3.0, shape)


def off_zero(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Away from the kinks and poles at zero."""
    return rng.uniform(0.3, 2.0, shape) * np.where(rng.random(shape) < 0.5, -1.0, 1.0)


# --- casts ------------------------------------------------------------------------------------------


def _cast(x: Array, *, dtype: np.dtype) -> Array:
    """Its elements lie as those of x do, in row-major order where these overlap or leave gaps."""
    if x.flags.c_contiguous:
        return x.astype(dtype)
    reach = 1 + builtins.sum((n - 1) * stride for n, stride in zip(x.shape, x.strides, strict=True)) // x.itemsize
    dense = 0 not in x.strides and reach == x.size
    return x.astype(dtype, order="K" if dense else "C")


cast_op = op(
    "cast", _cast, {"x": lambda g: g}, shape=lambda metas, *, dtype: [(metas[0][0], dtype)],
    samples=lambda rng: [((rng.standard_normal((2, 3)),), {"dtype": dtypes.float64})], formula="x in another dtype",
    exact_dtype=True, kernels={"cuda.elementwise": ANY_DTYPE},
    derivation=derive(
        "y = x but for rounding, so dy = dx", "the driver casts the gradient back to the dtype of x", x="g"
    ),
)  # fmt: skip


def cast(x: Tensor, *, dtype: np.dtype) -> Tensor:
    """`x` as `dtype`; itself if it has that dtype."""
    if x.array.dtype is dtype:
        return x
    dtype = dtypes.resolve(dtype)
    return x if x.array.dtype == dtype else cast_op(x, dtype=dtype)


def type_as(x: Tensor, other: Tensor) -> Tensor:
    """`x` in the dtype of `other`."""
    return cast(x, dtype=as_operand(other).array.dtype)
