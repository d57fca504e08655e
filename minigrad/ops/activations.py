"""Activations with a closed derivative: GELU (exact and tanh), SiLU, softplus, leaky ReLU."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minigrad.methods import Tensor  # whose operators they are written with
from minigrad.ops import rules
from minigrad.ops.arguments import expect_tensors
from minigrad.ops.derivation import derive
from minigrad.ops.elementwise import _erf, elementwise, erf, exp, sigmoid, tanh
from minigrad.ops.elementwise import log1p as _log1p
from minigrad.ops.elementwise import maximum as _maximum
from minigrad.ops.operands import floating, off_zero
from minigrad.ops.registry import OPS, op
from minigrad.ops.selection import where

_SQRT_HALF = math.sqrt(0.5)
_PDF = 1.0 / math.sqrt(2.0 * math.pi)
_TANH_SCALE, _TANH_CUBIC = math.sqrt(2.0 / math.pi), 0.044715


def _gelu_vjp(g: Tensor, x: Tensor) -> Tensor:
    return g * (0.5 * (1 + erf(x * _SQRT_HALF)) + x * (_PDF * exp(-0.5 * x * x)))


gelu = elementwise(
    "gelu", lambda x: 0.5 * x * (1 + _erf(x * _SQRT_HALF)), _gelu_vjp, "x Phi(x) = x (1 + erf(x / sqrt 2)) / 2",
    decomposition=lambda x: 0.5 * x * (1 + erf(x * _SQRT_HALF)), source="Hendrycks and Gimpel 2016", flops=25,
    names="functional",
    derivation=derive(
        "y = x Phi(x), Phi the normal distribution function, whose derivative is the density phi",
        "dy = (Phi + x phi) dx", let={"Phi": "(1 + erf(x / sqrt(2))) / 2", "phi": "exp(-(x**2) / 2) / sqrt(2 * pi)"},
        x="g * (Phi + x * phi)",
    ),
)  # fmt: skip


def _gelu_tanh_vjp(g: Tensor, x: Tensor) -> Tensor:
    t = tanh(_TANH_SCALE * (x + _TANH_CUBIC * x * x * x))
    inner = _TANH_SCALE * (1 + 3 * _TANH_CUBIC * x * x)
    return g * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner)


gelu_tanh = elementwise(
    "gelu_tanh", lambda x: 0.5 * x * (1 + np.tanh(_TANH_SCALE * (x + _TANH_CUBIC * x * x * x))), _gelu_tanh_vjp,
    "x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2",
    decomposition=lambda x: 0.5 * x * (1 + tanh(_TANH_SCALE * (x + _TANH_CUBIC * x * x * x))),
    source="Hendrycks and Gimpel 2016", flops=20, names="",
    derivation=derive(
        "y = x (1 + t) / 2, t = tanh(u), u = c (x + 0.044715 x^3), c = sqrt(2 / pi)",
        "dt = (1 - t^2) du, du = c (1 + 3 * 0.044715 x^2) dx",
        let={
            "t": "tanh(sqrt(2 / pi) * (x + 0.044715 * x**3))",
            "du": "sqrt(2 / pi) * (1 + 3 * 0.044715 * x**2)",
        },
        x="g * ((1 + t) / 2 + x / 2 * (1 - t**2) * du)",
    ),
)  # fmt: skip


def _silu_vjp(g: Tensor, x: Tensor) -> Tensor:
    s = sigmoid(x)
    return g * (s * (1 + x * (1 - s)))


silu = elementwise(
    "silu",
    lambda x: x * OPS["sigmoid"].reference(x),  # type: ignore[misc]
    _silu_vjp, "x sigmoid(x)", decomposition=lambda x: x * sigmoid(x), source="document 002 'SwiGLU FFN'", flops=14,
    expression=lambda x: x / (1 + np.exp(-x)), names="functional",
    derivation=derive(
        "y = x s, s = sigmoid(x), ds = s (1 - s) dx", "dy = s dx + x ds", let={"s": "1 / (1 + exp(-x))"},
        x="g * (s + x * s * (1 - s))",
    ),
)  # fmt: skip


softplus = elementwise(
    "softplus", lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), lambda g, x: g * sigmoid(x), "ln(1 + e^x)",
    decomposition=lambda x: _maximum(x, 0.0) + _log1p(exp(-x.abs())), flops=22, names="functional",
    derivation=derive("y = ln(1 + e^x)", "dy = e^x / (1 + e^x) dx, which is sigmoid(x) dx"),
)  # fmt: skip


leaky_relu_op = op(
    "leaky_relu", lambda x, *, negative_slope: np.where(x > 0, x, x * negative_slope),
    {"x": lambda g, x, negative_slope: where(x > 0, g, g * negative_slope)}, shape=rules.like_first,
    flops=rules.per_element(2), samples=lambda rng: [((off_zero(rng, (2, 3)),), {"negative_slope": 0.01})],
    formula="x where x > 0, else slope x", elementwise=True, derivation=derive("y = x where x > 0, else s x"),
)  # fmt: skip


def leaky_relu(x: Any, negative_slope: float = 0.01) -> Tensor:
    """x where x > 0, else negative_slope * x."""
    return leaky_relu_op(floating(x), negative_slope=float(rules.number(negative_slope, "leaky_relu: the slope")))


expect_tensors(globals())
