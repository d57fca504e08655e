"""Choosing between elements: where, masked_fill, clamp."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.ops import rules
from minigrad.ops.derivation import derive
from minigrad.ops.logic import isnan
from minigrad.ops.operands import as_operand, cast, pair
from minigrad.ops.registry import op
from minigrad.tensor import LITERAL, Tensor

where_op = op(
    "where", lambda condition, a, b: np.where(condition, a, b),
    {
        "a": lambda g, condition: where(condition, g, 0.0),
        "b": lambda g, condition: where(condition, 0.0, g),
    },
    shape=lambda metas, **_: [(np.broadcast_shapes(*[shape for shape, _ in metas]), metas[1][1])],
    flops=rules.per_element(1),
    samples=lambda rng: [
        ((rng.random(s) < 0.5, rng.standard_normal(t), rng.standard_normal(u)), {})
        for s, t, u in (((2, 3), (2, 3), (2, 3)), ((3,), (2, 1), ()), ((2, 0), (1,), (2, 0)))
    ],
    formula="a where the condition holds, else b", elementwise=True, exact_dtype=True,
    derivation=derive(
        "y = a where the condition holds, else b",
        "each element of y is one element of a or of b; the other has no part in it",
    ),
)  # fmt: skip


def where(condition: Any, a: Any, b: Any) -> Tensor:
    """`a` where `condition` (bool) holds, else `b`; all broadcast.

    Raises TypeError for another kind of condition, ValueError where shapes do not broadcast.
    """
    condition = as_operand(condition)
    if condition.array.dtype != dtypes.bool_:
        raise TypeError(f"where: the condition must be bool, got {dtypes.name(condition.array.dtype)}")
    return _choose("where", condition, *pair(a, b))


def _choose(name: str, condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Raises ValueError where shapes do not broadcast."""
    try:
        return where_op(condition, a, b)
    except ValueError:
        shapes = ", ".join(str(list(x.array.shape)) for x in (condition, a, b))
        raise ValueError(
            f"{name}: shapes {shapes} do not broadcast: from the last dimension backwards, sizes must be equal or 1"
        ) from None


def masked_fill(x: Tensor, mask: Any, value: Any) -> Tensor:
    """`value` where `mask` is True, else `x`; the dtype of `x` stays.

    Raises TypeError for a mask that is not bool, OverflowError for a value that this dtype does not hold.
    """
    x, mask = as_operand(x), as_operand(mask)
    if mask.array.dtype != dtypes.bool_:
        raise TypeError(f"masked_fill: the mask must be bool, got {dtypes.name(mask.array.dtype)}")
    if isinstance(value, Tensor):
        if value.array.ndim:
            raise ValueError(
                f"masked_fill: the value must be a number or a tensor without dimensions, got shape "
                f"{list(value.array.shape)}: use where(mask, value, x)"
            )
        filler = value
    else:
        value = rules.number(value, "masked_fill: the value")
        filler = Tensor(dtypes.scalar(value, x.array.dtype, exact=True), LITERAL)
    return _choose("masked_fill", mask, cast(filler, dtype=x.array.dtype), x)


def clamp(x: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """`x` limited to [min, max]; the gradient passes inside the limits, bounds included.

    NaN where an element of a bound is. Raises ValueError without a bound, and for a number that is NaN as a bound.
    """
    x = as_operand(x)
    if min is None and max is None:
        raise ValueError("clamp needs min, max, or both")
    if any(isinstance(bound, float) and math.isnan(bound) for bound in (min, max)):
        raise ValueError(f"clamp: NaN is no bound, got min {min} and max {max}")
    if min is not None:
        x = where(_beyond(x < min, min), min, x)
    return x if max is None else where(_beyond(x > max, max), max, x)


def _beyond(outside: Tensor, bound: Any) -> Tensor:
    """Where the bound is the result: where x is outside, and where a tensor's element is NaN."""
    return outside | isnan(bound) if isinstance(bound, Tensor) and dtypes.is_floating(bound.array.dtype) else outside
