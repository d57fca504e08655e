"""Activations with a closed derivative: GELU (exact and tanh), SiLU, softplus, leaky ReLU."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad.ops import rules
from minigrad.ops.arguments import expect_tensors
from minigrad.ops.elementwise import anywhere, erf, exp, floating, off_zero, one, sigmoid, tanh, where
from minigrad.ops.elementwise import log1p as _log1p
from minigrad.ops.elementwise import maximum as _maximum
from minigrad.ops.registry import OPS, Array, op
from minigrad.tensor import Tensor

_SQRT_HALF = math.sqrt(0.5)
_PDF = 1.0 / math.sqrt(2.0 * math.pi)
_TANH_SCALE, _TANH_CUBIC = math.sqrt(2.0 / math.pi), 0.044715


def _composite(
    name: str,
    reference: Callable[[Array], Array],
    vjp: Any,
    steps: Callable[[Tensor], Tensor],
    formula: str,
    source: str,
    flops: int,
) -> Callable[[Any], Tensor]:
    primitive = op(
        name,
        reference,
        {"x": vjp},
        decomposition=steps,
        shape=rules.like_first,
        flops=rules.per_element(flops),
        samples=one(anywhere),
        formula=formula,
        source=source,
    )

    def call(x: Any) -> Tensor:
        return primitive(floating(x))

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"{formula}, elementwise."
    return call


def _gelu_reference(x: Array) -> Array:
    return (0.5 * x * (1 + OPS["erf"].reference(x * _SQRT_HALF))).astype(x.dtype, copy=False)  # type: ignore[misc]


def _gelu_vjp(g: Tensor, x: Tensor) -> Tensor:
    return g * (0.5 * (1 + erf(x * _SQRT_HALF)) + x * (_PDF * exp(-0.5 * x * x)))


gelu = _composite(
    "gelu",
    _gelu_reference,
    _gelu_vjp,
    lambda x: 0.5 * x * (1 + erf(x * _SQRT_HALF)),
    "x Phi(x) = x (1 + erf(x / sqrt 2)) / 2",
    "Hendrycks and Gimpel 2016",
    25,
)


def _gelu_tanh_vjp(g: Tensor, x: Tensor) -> Tensor:
    t = tanh(_TANH_SCALE * (x + _TANH_CUBIC * x * x * x))
    inner = _TANH_SCALE * (1 + 3 * _TANH_CUBIC * x * x)
    return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner)


gelu_tanh = _composite(
    "gelu_tanh",
    lambda x: 0.5 * x * (1 + np.tanh(_TANH_SCALE * (x + _TANH_CUBIC * x * x * x))),
    _gelu_tanh_vjp,
    lambda x: 0.5 * x * (1 + tanh(_TANH_SCALE * (x + _TANH_CUBIC * x * x * x))),
    "x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2",
    "Hendrycks and Gimpel 2016",
    20,
)


def _silu_vjp(g: Tensor, x: Tensor) -> Tensor:
    s = sigmoid(x)
    return g * (s * (1 + x * (1 - s)))


silu = _composite(
    "silu",
    lambda x: x * OPS["sigmoid"].reference(x),  # type: ignore[misc]
    _silu_vjp,
    lambda x: x * sigmoid(x),
    "x sigmoid(x)",
    "document 002 'SwiGLU FFN'",
    14,
)


softplus = _composite(
    "softplus",
    lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    lambda g, x: g * sigmoid(x),
    lambda x: _maximum(x, 0.0) + _log1p(exp(-x.abs())),
    "ln(1 + e^x)",
    "",
    22,
)


leaky_relu_op = op(
    "leaky_relu",
    lambda x, *, negative_slope: np.where(x > 0, x, x * np.asarray(negative_slope, x.dtype)),
    {"x": lambda g, x, negative_slope: where(x > 0, g, g * negative_slope)},
    shape=rules.like_first,
    flops=rules.per_element(2),
    samples=lambda rng: [((off_zero(rng, (2, 3)),), {"negative_slope": 0.01})],
    formula="x where x > 0, else slope x",
)


def leaky_relu(x: Any, negative_slope: float = 0.01) -> Tensor:
    """x where x > 0, else negative_slope * x."""
    return leaky_relu_op(floating(x), negative_slope=float(rules.number(negative_slope, "leaky_relu: the slope")))


expect_tensors(globals())
