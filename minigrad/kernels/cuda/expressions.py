"""What every elementwise op is in the language of kernels: an expression of its operands, by kind of operand.

Operands arrive as float32 or float64 (half types widened), integers, or truth values (a byte is compared with zero).
An expression of an op that refuses some values takes {fault}, where it notes them (`faults`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minigrad.kernels.cuda.faults import note
from minigrad.kernels.cuda.language import device, float32

ZERO, ONE, HALF = float32(0), float32(1), float32(0.5)
INFINITY = float32(np.inf)
SQRT_HALF = float32(np.sqrt(0.5))
TANH_SCALE, TANH_CUBIC = float32(np.sqrt(2 / np.pi)), float32(0.044715)
WHOLE_FLOAT32, WHOLE_FLOAT64 = float32(2.0**23), float32(2.0**52)  # no number of that size or more has a fraction


@device
def maximum(a, b):
    """NaN wins."""
    return a if a > b or a != a else b


@device
def minimum(a, b):
    """NaN wins."""
    return a if a < b or a != a else b


@device
def sigmoid(x):
    return ONE / (ONE + math.exp(-x))


@device
def silu(x):
    return x / (ONE + math.exp(-x))


@device
def gelu(x):
    return HALF * x * (ONE + math.erf(x * SQRT_HALF))


@device
def gelu_tanh(x):
    return HALF * x * (ONE + math.tanh(TANH_SCALE * (x + TANH_CUBIC * x * x * x)))


@device
def softplus(x):
    return maximum(x, ZERO) + math.log1p(math.exp(-math.fabs(x)))


@device
def sign(x):
    return ONE if x > ZERO else (-ONE if x < ZERO else ZERO)


@device
def round_float32(x):
    """To the nearest whole number, ties to even: adding 2^23 leaves no bits for a fraction."""
    size = math.fabs(x)
    return math.copysign((size + WHOLE_FLOAT32) - WHOLE_FLOAT32, x) if size < WHOLE_FLOAT32 else x


@device
def round_float64(x):
    size = math.fabs(x)
    return math.copysign((size + WHOLE_FLOAT64) - WHOLE_FLOAT64, x) if size < WHOLE_FLOAT64 else x


@device
def remainder(a, b):
    """With the sign of the divisor, a zero's, too, as Python's and numpy's."""
    rest = math.fmod(a, b)
    if rest == ZERO:
        return math.copysign(rest, b)
    return rest + b if (rest < ZERO) != (b < ZERO) else rest


@device
def floor_divide(a, b):
    """The whole number below a / b, a zero with the sign of a / b; what a / b is where b is zero."""
    if b == ZERO:
        return a / b
    rest = math.fmod(a, b)
    quotient = (a - rest) / b
    if rest != ZERO and (rest < ZERO) != (b < ZERO):
        quotient -= ONE
    if quotient == ZERO:
        return math.copysign(quotient, a / b)
    whole = math.floor(quotient)
    return whole + ONE if quotient - whole > HALF else whole


@device
def integer_floor_divide(a, b, words, fault):
    """0 where b is zero, which is noted; the lowest number divided by -1 is itself, as numpy's (numba has 0 for it)."""
    if b == 0:
        note(words, fault, b)
        return b
    return -a if b == -1 else a // b


@device
def integer_remainder(a, b, words, fault):
    """0 where b is zero, which is noted."""
    if b == 0:
        note(words, fault, b)
        return b
    return a % b


@device
def integer_pow(a, b, words, fault):
    """By squaring; 0 for negative exponents, which are noted."""
    result = 1
    if b < 0:
        note(words, fault, b)
        result = 0
    while b > 0:
        if b & 1:
            result *= a
        a *= a
        b >>= 1
    return result


@device
def bernoulli(drawn, p, words, fault):
    """0 or 1 where p is no probability, which is noted."""
    if not (p >= ZERO and p <= ONE):
        note(words, fault, ZERO)
    return ONE if drawn < p else ZERO


@device
def truth(x):
    return x != 0


_ANY = {
    "clone": "{0}",
    "where": "{1} if {0} else {2}",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
}
_NUMBERS = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "neg": "-{0}",
    "square": "{0} * {0}",
}
FLOATING = _ANY | _NUMBERS | {
    "div": "{0} / {1}",
    "pow": "math.pow({0}, {1})",
    "maximum": "maximum({0}, {1})",
    "minimum": "minimum({0}, {1})",
    "floor_divide": "floor_divide({0}, {1})",
    "remainder": "remainder({0}, {1})",
    "isnan": "{0} != {0}",
    "isinf": "math.fabs({0}) == INFINITY",
    "isfinite": "math.fabs({0}) < INFINITY",
    "abs": "math.fabs({0})",
    "sign": "sign({0})",
    "floor": "math.floor({0})",
    "ceil": "math.ceil({0})",
    "exp": "math.exp({0})",
    "expm1": "math.expm1({0})",
    "log": "math.log({0})",
    "log1p": "math.log1p({0})",
    "log2": "math.log2({0})",
    "log10": "math.log10({0})",
    "sqrt": "math.sqrt({0})",
    "rsqrt": "ONE / math.sqrt({0})",
    "reciprocal": "ONE / {0}",
    "sin": "math.sin({0})",
    "cos": "math.cos({0})",
    "tanh": "math.tanh({0})",
    "sigmoid": "sigmoid({0})",
    "erf": "math.erf({0})",
    "relu": "maximum({0}, ZERO)",
    "silu": "silu({0})",
    "softplus": "softplus({0})",
    "leaky_relu": "{0} if {0} > ZERO else {0} * {1}",
    "bernoulli": "bernoulli({0}, {1}, {fault})",
}  # fmt: skip
FLOAT32 = FLOATING | {
    "round": "round_float32({0})",
    "gelu": "gelu({0})",  # its constants are float32
    "gelu_tanh": "gelu_tanh({0})",
}
FLOAT64 = FLOATING | {"round": "round_float64({0})"}
INTEGER = _ANY | _NUMBERS | {
    "maximum": "max({0}, {1})",
    "minimum": "min({0}, {1})",
    "floor_divide": "integer_floor_divide({0}, {1}, {fault})",
    "remainder": "integer_remainder({0}, {1}, {fault})",
    "pow": "integer_pow({0}, {1}, {fault})",
    "bitwise_and": "{0} & {1}",
    "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} ^ {1}",
    "bitwise_not": "~{0}",
    "abs": "abs({0})",
    "sign": "1 if {0} > 0 else (-1 if {0} < 0 else 0)",
    "floor": "{0}",
    "ceil": "{0}",
    "round": "{0}",
    "relu": "max({0}, 0)",
    "isnan": "False",
    "isinf": "False",
    "isfinite": "True",
}  # fmt: skip
BOOLEAN = _ANY | {
    "add": "{0} or {1}",
    "mul": "{0} and {1}",
    "maximum": "{0} or {1}",
    "minimum": "{0} and {1}",
    "bitwise_and": "{0} and {1}",
    "bitwise_or": "{0} or {1}",
    "bitwise_xor": "{0} != {1}",
    "bitwise_not": "not {0}",
    "isnan": "False",
    "isinf": "False",
    "isfinite": "True",
}
TABLES = (FLOAT32, FLOAT64, INTEGER, BOOLEAN)
BOOLEAN_RESULT = ("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite")

# names that expressions use
NAMES: dict[str, Any] = {
    name: value
    for name, value in globals().items()
    if getattr(value, "is_device_function", False) or name in ("ZERO", "ONE", "INFINITY", "math")
}


def expression(name: str, dtypes: tuple[str, ...], dtype_out: str) -> str | None:
    """The expression of an op on operands of these dtypes (half types are float32 here), or None."""
    if name == "cast":
        return _cast(dtypes[0], dtype_out)
    kind = dtypes[1] if name == "where" else dtypes[0]
    return table(kind).get(name)


def table(dtype: str) -> dict[str, str]:
    """The expressions of a dtype, by op; half types are float32."""
    return {"float32": FLOAT32, "float64": FLOAT64, "bool": BOOLEAN}.get(dtype, INTEGER)


def _cast(source: str, target: str) -> str:
    if target == "bool":
        return "truth({0})" if source != "bool" else "{0}"
    if source == "bool" and target.startswith("float"):
        return f"{target}(1) if {{0}} else {target}(0)"
    return f"{target}({{0}})" if source != "bool" else "1 if {0} else 0"
