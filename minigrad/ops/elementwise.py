"""Elementwise ops: arithmetic, powers, exponentials, roots, rounding. Operands broadcast by torch's (numpy's) rule."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.ops import expression, rules
from minigrad.ops.derivation import derive
from minigrad.ops.expression import word
from minigrad.ops.logic import gt, lt
from minigrad.ops.operands import (
    NUMBERS,
    anywhere,
    as_operand,
    binary,
    cast,
    floating,
    no_booleans,
    off_zero,
    one,
    pair,
    positive,
    two,
    unary,
)
from minigrad.ops.registry import NAMES, Array, Op, Refusal, op, parameters
from minigrad.ops.selection import where
from minigrad.tensor import Tensor

_LN2, _LN10 = math.log(2.0), math.log(10.0)
_TWO_OVER_SQRT_PI = 2.0 / math.sqrt(math.pi)


# --- arithmetic -------------------------------------------------------------------------------------


def _arithmetic(
    name: str, reference: Callable[..., Array], vjp: Any, formula: str, draw: Any = anywhere, **parts: Any
) -> Op:
    return op(
        name, reference, vjp, shape=rules.elementwise, flops=rules.per_element(1), samples=two(draw), formula=formula,
        **{"elementwise": "expression" not in parts, **parts},
    )  # fmt: skip


add_op = _arithmetic(
    "add", lambda a, b: np.add(a, b), {"a": lambda g: g, "b": lambda g: g}, "a + b",
    derivation=derive("y = a + b, so dy = da + db", "dL = <g, da> + <g, db>"),
)  # fmt: skip
sub_op = _arithmetic(
    "sub", lambda a, b: np.subtract(a, b), {"a": lambda g: g, "b": lambda g: -g}, "a - b",
    derivation=derive("y = a - b, so dy = da - db", "dL = <g, da> + <-g, db>"),
)  # fmt: skip
mul_op = _arithmetic(
    "mul", lambda a, b: np.multiply(a, b), {"a": lambda g, b: g * b, "b": lambda g, a: g * a}, "a b",
    derivation=derive("y = a b, so dy = b da + a db", "dL = <g b, da> + <g a, db>"),
)  # fmt: skip


div_op = _arithmetic(
    "div", lambda a, b: np.true_divide(a, b), {"a": lambda g, b: g / b, "b": lambda g, b, out: -g * out / b}, "a / b",
    off_zero, keeps_output=True,
    derivation=derive("y = a / b, so dy = da / b - a / b^2 db", "a / b is y: dy = (da - y db) / b"),
)  # fmt: skip


def _pow_base(g: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return g * b * a ** where(b == 0, 0.0, b - 1)  # no pole at a = 0 where b = 0


def _pow_exponent(g: Tensor, a: Tensor, b: Tensor, out: Tensor) -> Tensor:
    return g * where((a == 0) & (b >= 0), 0.0, out * log(a))


FRACTION: Refusal = (
    ValueError,
    "pow: an integer to a negative integer power is a fraction: convert the base with .float()",
)


def _power(a: Array, b: Array) -> Array:
    if b.dtype.kind == "i" and (b < 0).any():
        error, sentence = FRACTION
        raise error(sentence)
    return np.power(a, b)


pow_op = _arithmetic(
    "pow", _power, {"a": _pow_base, "b": _pow_exponent}, "a^b", positive, refuses=FRACTION, expression=np.power,
    derivation=derive(
        "y = a^b = e^(b ln a), so dy = y (b / a da + ln a db)",
        "y b / a = b a^(b-1), which has no pole at a = 0 where b >= 1; where b = 0 it is taken as 0",
        "0^b stays 0 for every b > 0: there, and at 0^0, the rule gives b the slope 0 (y ln a would be NaN)",
        a="g * b * a ** (b - 1)", b="g * y * log(a)",
    ),
)  # fmt: skip


def _share(chosen: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """Where `chosen` holds the gradient passes; at a tie each side gets half."""

    def rule(g: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return g * (cast(chosen(a, b), dtype=g.array.dtype) + 0.5 * cast(a == b, dtype=g.array.dtype))

    return rule


maximum_op = _arithmetic(
    "maximum", lambda a, b: np.maximum(a, b), {"a": _share(gt), "b": _share(lt)}, "max(a, b)",
    derivation=derive(
        "y = a where a > b, so there dy = da; elsewhere dy = db",
        "at a tie both one-sided derivatives are right: each side gets half",
    ),
)  # fmt: skip
minimum_op = _arithmetic(
    "minimum", lambda a, b: np.minimum(a, b), {"a": _share(lt), "b": _share(gt)}, "min(a, b)",
    derivation=derive(
        "y = a where a < b, so there dy = da; elsewhere dy = db",
        "at a tie both one-sided derivatives are right: each side gets half",
    ),
)  # fmt: skip


BY_ZERO: Refusal = (ZeroDivisionError, "integer division by zero")


def _whole(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    def reference(a: Array, b: Array) -> Array:
        if b.dtype.kind in "iu" and not b.all():
            error, sentence = BY_ZERO
            raise error(sentence)
        return function(a, b)

    return reference


floor_divide_op = op(
    "floor_divide", _whole(np.floor_divide), shape=rules.elementwise, flops=rules.per_element(1), samples=two(off_zero),
    formula="floor(a / b)", differentiable=False, refuses=BY_ZERO, expression=np.floor_divide,
    derivation=derive("constant between its jumps: its derivative is 0 wherever it has one, so none is recorded"),
)  # fmt: skip
remainder_op = op(
    "remainder", _whole(np.remainder), {"a": lambda g: g, "b": lambda g, a, b: -g * (a // b)}, shape=rules.elementwise,
    flops=rules.per_element(1), samples=two(off_zero), formula="a - b floor(a / b)", refuses=BY_ZERO,
    expression=np.remainder,
    derivation=derive("y = a - b q, q = floor(a / b)", "q is constant between its jumps: dy = da - q db"),
)  # fmt: skip

add, sub, mul = binary(add_op), binary(sub_op, accepts=NUMBERS), binary(mul_op)
true_divide, pow = binary(div_op, force_float=True), binary(pow_op, accepts=NUMBERS)
maximum, minimum = binary(maximum_op), binary(minimum_op)
floor_divide, remainder = binary(floor_divide_op, accepts=NUMBERS), binary(remainder_op, accepts=NUMBERS)


def div(a: Any, b: Any, *, rounding_mode: str | None = None) -> Tensor:
    """a / b, with broadcasting; rounded towards zero ("trunc") or down ("floor"), where the dtype of integers stays.

    Raises ValueError for another rounding mode, ZeroDivisionError for integers rounded after a division by zero.
    """
    if rounding_mode is None:
        return true_divide(a, b)
    if rounding_mode not in ("trunc", "floor"):
        raise ValueError(f"div: rounding_mode must be None, 'trunc' or 'floor', got {rounding_mode!r}")
    a, b = pair(a, b)
    whole = floor_divide(a, b)
    if rounding_mode == "trunc":
        if dtypes.is_floating(whole.array.dtype):
            exact = true_divide(a, b)
            whole = where(exact < 0, ceil(exact), floor(exact))
        else:
            whole = whole + cast((whole < 0) & (remainder(a, b) != 0), dtype=whole.array.dtype)
    if not dtypes.is_floating(whole.array.dtype):
        return whole
    return where(whole == whole, whole, true_divide(a, b))  # its derivative is 0, not missing


# --- one operand ------------------------------------------------------------------------------------


def elementwise(
    name: str,
    reference: Callable[..., Array],
    vjp: Any,
    formula: str = "",
    draw: Callable[[np.random.Generator, tuple[int, ...]], Array] = anywhere,
    *,
    flops: int = 0,
    names: str = "mg method",
    take: Callable[[Any], Tensor] = floating,
    **parts: Any,
) -> Callable[..., Tensor]:
    """Declare an op of single elements, and return the function that calls it, under the names that it has.

    reference: of one input or two, written with operators and numpy's elementwise functions (or with an `expression`
    beside it); the kernels of both devices are made of it. vjp: a function for each input, or the only one. The formula
    is the reference's text unless it is given; flops counts its words; draw makes sample inputs. names: where the
    function is found, of "mg", "method" and "functional"; the stand-in for torch has these names, too. take: what the
    only input goes through; without it inputs become floating. parts: others of `Op`.
    """
    element = parts.get("expression", reference)
    inputs, _, attributes = parameters(reference)
    text = expression.written(name, element, inputs, attributes)
    primitive = op(
        name, reference, vjp if isinstance(vjp, dict) else {inputs[0]: vjp}, shape=rules.elementwise,
        flops=rules.per_element(flops or expression.count(text)), samples=(one if len(inputs) == 1 else two)(draw),
        formula=formula or expression.shown(text, [*inputs, *attributes]),
        **{"elementwise": "expression" not in parts, **parts},
    )  # fmt: skip
    call = unary(primitive, take) if len(inputs) == 1 else binary(primitive, force_float=True)
    for room in names.split():
        if room == "method":
            setattr(Tensor, name, call)
        else:
            NAMES[room][name] = call
    return call


neg = elementwise(
    "neg", lambda x: np.negative(x), lambda g: -g, "-x", derivation=derive("y = -x, so dy = -dx"),
    take=no_booleans("neg", "use ~ for the logical not, or convert it first"),
)  # fmt: skip
abs = elementwise(
    "abs", lambda x: np.abs(x), lambda g, x: g * x.sign(), "|x|", off_zero, take=as_operand,
    derivation=derive("y = x where x > 0, -x where x < 0", "at 0 the slope is taken as 0"),
)  # fmt: skip


def _step(
    name: str,
    reference: Callable[[Array], Array],
    formula: str,
    expression: Callable[[Any], Any],
    names: str = "mg method",
) -> Callable[[Any], Tensor]:
    """A piecewise constant function; the dtype stays, integers are their own value."""
    call = elementwise(
        name, reference, lambda g: g * 0.0, formula, lambda rng, s: rng.integers(-3, 3, s) + rng.uniform(0.2, 0.4, s),
        names=names, expression=expression, take=as_operand,
        derivation=derive("constant between its jumps, so dy = 0", "the jumps go unseen: no way to train"),
    )  # fmt: skip
    call.__doc__ = f"{formula}; the dtype stays, the derivative is 0."
    return call


def _rounded(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: function(x) if x.dtype.kind == "f" else x.copy()


sign = _step(
    "sign",
    lambda x: np.subtract(x > 0, x < 0, dtype=np.int8).astype(x.dtype),
    "-1, 0 (also for NaN) or 1",
    np.sign,
)
floor = _step("floor", _rounded(np.floor), "the largest integer <= x", np.floor)
ceil = _step("ceil", _rounded(np.ceil), "the smallest integer >= x", np.ceil)
_nearest = _step("round", _rounded(np.round), "the nearest integer, ties to even", np.rint, "")


def round(x: Any, *, decimals: int = 0) -> Tensor:
    """x with so many decimals (negative: tens, hundreds), ties to even; the dtype stays, the derivative is 0.

    Raises TypeError for decimals of integers.
    """
    x = as_operand(x)
    decimals = rules.integer(decimals, "round: the number of decimals")
    if not decimals:
        return _nearest(x)
    if not dtypes.is_floating(x.array.dtype):
        raise TypeError(f"round: decimals are for floating tensors, this one is {dtypes.name(x.array.dtype)}")
    scale = 10.0 ** builtins.abs(decimals)
    return _nearest(x * scale) / scale if decimals > 0 else _nearest(x / scale) * scale


exp = elementwise(
    "exp", lambda x: np.exp(x), lambda g, out: g * out, "e^x", flops=10,
    derivation=derive("y = e^x is its own derivative: dy = y dx"),
)  # fmt: skip
expm1 = elementwise(
    "expm1", lambda x: np.expm1(x), lambda g, out: g * (out + 1), "e^x - 1", flops=10,
    derivation=derive("y = e^x - 1, dy = e^x dx, and e^x = y + 1"),
)  # fmt: skip
log = elementwise(
    "log", lambda x: np.log(x), lambda g, x: g / x, "ln x", positive, flops=10,
    derivation=derive("x = e^y, so dx = x dy and dy = dx / x"),
)  # fmt: skip
log1p = elementwise(
    "log1p", lambda x: np.log1p(x), lambda g, x: g / (1 + x), "ln(1 + x)", positive, flops=10,
    derivation=derive("with u = 1 + x: dy = du / u, du = dx"),
)  # fmt: skip
log2 = elementwise(
    "log2", lambda x: np.log2(x), lambda g, x: g / (x * _LN2), "log2 x", positive, flops=10,
    derivation=derive("y = ln x / ln 2", x="g / (x * log(2))"),
)  # fmt: skip
log10 = elementwise(
    "log10", lambda x: np.log10(x), lambda g, x: g / (x * _LN10), "log10 x", positive, flops=10,
    derivation=derive("y = ln x / ln 10", x="g / (x * log(10))"),
)  # fmt: skip
sqrt = elementwise(
    "sqrt", lambda x: np.sqrt(x), lambda g, out: g / (2 * out), "x^(1/2)", positive,
    derivation=derive("y^2 = x, so 2 y dy = dx"),
)  # fmt: skip
rsqrt = elementwise(
    "rsqrt", lambda x: 1 / np.sqrt(x), lambda g, out: g * (-0.5 * out * out * out), "x^(-1/2)", positive, flops=2,
    derivation=derive("y = x^(-1/2), dy = -x^(-3/2) / 2 dx, and x^(-3/2) = y^3", x="-g * y**3 / 2"),
)  # fmt: skip
reciprocal = elementwise(
    "reciprocal", lambda x: 1 / x, lambda g, out: -g * out * out, "1 / x", off_zero,
    derivation=derive("x y = 1, so x dy + y dx = 0", "dy = -y / x dx = -y^2 dx"),
)  # fmt: skip


def _counted(x: Any) -> Tensor:
    """the dtype stays, booleans become int64."""
    x = as_operand(x)
    return x if x.array.dtype.kind != "b" else cast(x, dtype=dtypes.int64)


square = elementwise(
    "square", lambda x: np.square(x), lambda g, x: g * (2 * x), "x^2", take=_counted,
    derivation=derive("y = x x, so dy = 2 x dx"),
)  # fmt: skip
sin = elementwise(
    "sin", lambda x: np.sin(x), lambda g, x: g * x.cos(), "sin x", flops=10, derivation=derive("dy = cos x dx")
)
cos = elementwise(
    "cos", lambda x: np.cos(x), lambda g, x: -g * sin(x), "cos x", flops=10, derivation=derive("dy = -sin x dx")
)
atan2 = elementwise(
    "atan2", lambda a, b: np.arctan2(a, b),
    {"a": lambda g, a, b: g * (b / (a * a + b * b)), "b": lambda g, a, b: -g * (a / (a * a + b * b))},
    "the angle of the point (b, a), in (-pi, pi]", off_zero, flops=20,
    on_host="an angle is asked for rarely, on small arrays",
    derivation=derive("tan y = a / b, so (1 + (a / b)^2) dy = da / b - a / b^2 db"),
)  # fmt: skip
tanh = elementwise(
    "tanh", lambda x: np.tanh(x), lambda g, out: g * (1 - out * out), "tanh x", flops=10,
    derivation=derive("y = sinh x / cosh x", "dy = (cosh^2 x - sinh^2 x) / cosh^2 x dx = (1 - y^2) dx"),
)  # fmt: skip


def _sigmoid(x: Array) -> Array:
    decay = np.exp(-np.abs(x))  # never overflows
    return np.where(x >= 0, 1 / (1 + decay), decay / (1 + decay)).astype(x.dtype, copy=False)


sigmoid = elementwise(
    "sigmoid", _sigmoid, lambda g, out: g * (out * (1 - out)), "1 / (1 + e^-x)", flops=12,
    expression=lambda x: 1 / (1 + np.exp(-x)),
    derivation=derive(
        "y = 1 / (1 + e^-x), dy = e^-x / (1 + e^-x)^2 dx", "e^-x / (1 + e^-x) = 1 - y, so dy = y (1 - y) dx"
    ),
)  # fmt: skip


@word
def _erf(x: Array) -> Array:
    flat = [math.erf(v) for v in np.asarray(x, np.float64).ravel().tolist()]
    return np.array(flat, np.float64).reshape(x.shape).astype(x.dtype)


def _erf_vjp(g: Tensor, x: Tensor) -> Tensor:
    return g * (_TWO_OVER_SQRT_PI * exp(-x * x))


erf = elementwise(
    "erf", lambda x: _erf(x), _erf_vjp, "2/sqrt(pi) integral_0^x e^(-t^2) dt", flops=20,
    derivation=derive(
        "the derivative of an integral is what stands under it: dy = 2 / sqrt(pi) e^(-x^2) dx",
        x="g * 2 / sqrt(pi) * exp(-x**2)",
    ),
)  # fmt: skip

relu = elementwise(
    "relu", lambda x: np.maximum(x, 0), lambda g, out: where(out <= 0, 0.0, g),  # NaN lets g pass, as in torch
    "max(x, 0)", off_zero, take=no_booleans("relu", "convert it first"),
    derivation=derive("y = x where x > 0, else 0: dy = dx or 0", "at 0 the slope is taken as 0"),
)  # fmt: skip
