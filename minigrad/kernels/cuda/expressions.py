"""The functions of one element that `words` names: what numpy's do where the language of kernels has none like it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from minigrad.kernels.cuda.faults import note
from minigrad.kernels.cuda.language import device, float32

ZERO, ONE, HALF = float32(0), float32(1), float32(0.5)
INFINITY = float32(np.inf)
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


# names that the text of words uses
NAMES: dict[str, Any] = {
    name: value
    for name, value in globals().items()
    if getattr(value, "is_device_function", False) or name in ("ZERO", "ONE", "INFINITY", "math")
}
