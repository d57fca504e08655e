"""Comparisons, logic on booleans and bits, and tests for NaN and infinity: the results have no gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.ops import rules
from minigrad.ops.derivation import derive
from minigrad.ops.operands import BOOL, INTEGER, as_operand, binary, one, two, unary
from minigrad.ops.registry import Array, op
from minigrad.tensor import Tensor

_TRUTH = derive("the result is true or false: it has no rate of change, and no gradient flows through it")
_BITS = derive("inputs and result are booleans or integers: there is nothing to differentiate")


def _comparison(name: str, reference: Callable[[Array, Array], Array], formula: str) -> Callable[[Any, Any], Tensor]:
    return binary(
        op(
            name,
            reference,
            shape=rules.boolean,
            flops=rules.per_element(1),
            samples=two(lambda rng, shape: rng.integers(-1, 2, shape).astype(np.float64)),
            formula=formula,
            differentiable=False,
            exact_dtype=True,
            elementwise=True,
            planned={"numba.compare": "int64"},
            derivation=_TRUTH,
        )
    )


eq = _comparison("eq", lambda a, b: np.equal(a, b), "a = b")
ne = _comparison("ne", lambda a, b: np.not_equal(a, b), "a != b")
lt = _comparison("lt", lambda a, b: np.less(a, b), "a < b")
le = _comparison("le", lambda a, b: np.less_equal(a, b), "a <= b")
gt = _comparison("gt", lambda a, b: np.greater(a, b), "a > b")
ge = _comparison("ge", lambda a, b: np.greater_equal(a, b), "a >= b")


def _bits(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return rng.random(shape) < 0.5


def _bitwise(name: str, reference: Callable[[Array, Array], Array], formula: str) -> Callable[[Any, Any], Tensor]:
    return binary(
        op(
            name,
            reference,
            shape=rules.elementwise,
            samples=two(_bits),
            formula=formula,
            differentiable=False,
            elementwise=True,
            derivation=_BITS,
        ),
        accepts=(BOOL, INTEGER),
    )


bitwise_and = _bitwise("bitwise_and", lambda a, b: np.bitwise_and(a, b), "a and b")
bitwise_or = _bitwise("bitwise_or", lambda a, b: np.bitwise_or(a, b), "a or b")
bitwise_xor = _bitwise("bitwise_xor", lambda a, b: np.bitwise_xor(a, b), "a xor b")
bitwise_not_op = op(
    "bitwise_not", lambda x: np.invert(x), shape=rules.like_first, samples=one(_bits), formula="not x",
    differentiable=False, elementwise=True, derivation=_BITS,
)  # fmt: skip


def bitwise_not(x: Tensor) -> Tensor:
    """Logical not of booleans, bitwise of integers. Raises TypeError for floating tensors."""
    x = as_operand(x)
    if dtypes.is_floating(x.array.dtype):
        raise TypeError(f"~ needs a bool or integer tensor, got {dtypes.name(x.array.dtype)}: compare with 0 first")
    return bitwise_not_op(x)


def _test(name: str, function: Callable[[Array], Array], formula: str) -> Callable[[Any], Tensor]:
    primitive = op(
        name, lambda x: function(x), shape=rules.boolean,
        samples=one(lambda rng, shape: np.where(rng.random(shape) < 0.5, np.nan, rng.standard_normal(shape))),
        formula=formula, differentiable=False, elementwise=True, derivation=_TRUTH,
    )  # fmt: skip
    call = unary(primitive, as_operand)
    call.__doc__ = f"Elementwise: {formula}? (bool)"
    return call


isnan = _test("isnan", np.isnan, "x is NaN")
isinf = _test("isinf", np.isinf, "x is infinite")
isfinite = _test("isfinite", np.isfinite, "x is finite")
