"""Vectorisable float32 elementary functions: numba's own exp lowers to a scalar call, a polynomial does not."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from minigrad.kernels.numba.jit import inline, intrinsic, types

_LOG2E = np.float32(1.44269504)
_LN2_HIGH, _LN2_LOW = np.float32(0.693145752), np.float32(1.42860677e-06)
_LOWEST, _HIGHEST = np.float32(-86.6), np.float32(89)
_C2, _C3, _C4 = np.float32(1), np.float32(3.3333330918e-1), np.float32(8.3331591788e-2)  # twice those of e^r
_C5, _C6, _C7 = np.float32(1.66669038146e-2), np.float32(2.7963999014e-3), np.float32(3.9751383000e-4)
_LEAST, _SIGN, _MAGNITUDE = np.int32(-(2**31)), np.int32(31), np.int32(0x7FFFFFFF)
_ONE, _TWO, _ZERO, _HALF, _INF = np.float32(1), np.float32(2), np.float32(0), np.float32(0.5), np.float32(np.inf)
# added to a number, rounds it to a whole one, which then stands in the last bits of the sum
_ROUND, _MANTISSA = np.float32(1.5 * 2**23), np.int32(23)
# from those bits to the exponent bits of 2^k and of 2^(k-1)
_BIAS, _BIAS_OF_HALF = np.int32(0x4B400000 - 127), np.int32(0x4B400000 - 126)
# 2^r for |r| <= 1/2
POWERS = (1.0, 6.9314694405e-1, 2.4022120237e-1, 5.5507134646e-2, 9.6755418926e-3, 1.3276471291e-3)
_B0, _B1, _B2, _B3, _B4, _B5 = (np.float32(c) for c in POWERS)
_LEAST_POWER = np.float32(-126)


@intrinsic
def as_float(typing: Any, bits: Any) -> Any:
    """The float32 with these 32 bits."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), build


@intrinsic
def as_int(typing: Any, value: Any) -> Any:
    """The bits of a float32 as int32."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), build


@inline
def largest(bits, row):
    """The largest float32 of a row of a matrix, by their bits, which are in the order of integers: a maximum that
    vectorises and keeps NaN."""
    highest = _LEAST
    for j in range(bits.shape[1]):
        word = bits[row, j]
        highest = max(highest, word ^ ((word >> _SIGN) & _MAGNITUDE))
    return as_float(highest ^ ((highest >> _SIGN) & _MAGNITUDE))


@inline
def exp(x):
    """e^x, relative error 7.4e-8; 0 below -86.6 (no denormals), inf above 88.72, NaN stays.

    x = k ln 2 + r; a polynomial of degree 7 for 2 e^r, times 2^(k-1) by exponent bits, so that k = 128 fits.
    """
    inside = _LOWEST if x < _LOWEST else x
    inside = _HIGHEST if inside > _HIGHEST else inside
    shifted = inside * _LOG2E + _ROUND
    k = shifted - _ROUND
    r = inside - k * _LN2_HIGH - k * _LN2_LOW
    y = ((((((_C7 * r + _C6) * r + _C5) * r + _C4) * r + _C3) * r + _C2) * r + _TWO) * r + _TWO
    y *= as_float((as_int(shifted) - _BIAS_OF_HALF) << _MANTISSA)
    return _ZERO if x < _LOWEST else y


@inline
def exp2(x):
    """2^x for x below 128, relative error 1.3e-7; 0 below -126 (no denormals), NaN stays."""
    shifted = x + _ROUND
    r = x - (shifted - _ROUND)
    y = ((((_B5 * r + _B4) * r + _B3) * r + _B2) * r + _B1) * r + _B0
    y *= as_float((as_int(shifted) - _BIAS) << _MANTISSA)
    return _ZERO if x < _LEAST_POWER else y


@inline
def divide(a, b):
    """a / b. A kernel's own division may become a product with a reciprocal, which for 1 / sqrt(b) is estimated: NaN
    at 0, at infinity and at denormal numbers."""
    return a / b


@inline
def inverse_root(x):
    """1 / sqrt(x): inf at 0, 0 at inf. See `divide`."""
    return _ONE / np.sqrt(x)


@inline
def below(x, peak, log_total):
    """x - peak - log_total in this order: the sum of both, taken first, loses a small logarithm beside a large peak."""
    return (x - peak) - log_total


_T0, _T1, _T2 = np.float32(-5.70498872745e-3), np.float32(2.06390887954e-2), np.float32(-5.37397155531e-2)
_T3, _T4, _TANH_SMALL = np.float32(1.33314422036e-1), np.float32(-3.33332819422e-1), np.float32(0.625)


@inline
def tanh(x):
    """tanh x: an odd polynomial near zero, 1 - 2 / (e^2x + 1) elsewhere; relative error 2e-7."""
    z = x * x
    near = x + x * z * ((((_T0 * z + _T1) * z + _T2) * z + _T3) * z + _T4)
    far = _ONE - _TWO / (exp(_TWO * x) + _ONE)
    return near if abs(x) < _TANH_SMALL else far


# Fitted to least greatest error: of erf(x) / x (relative, 1.2e-8) in x^2, of log2(1 - erf x) (in erf, 2.6e-8) in x
_ERF_SMALL = np.float32(0.9)
_E0, _E1, _E2 = np.float32(1.1283791065), np.float32(-0.37612524629), np.float32(0.11282140762)
_E3, _E4, _E5 = np.float32(-0.026778899133), np.float32(0.0050119487569), np.float32(-6.0902867699e-4)
_F0, _F1, _F2 = np.float32(-0.0027088667267), np.float32(-1.6160937548), np.float32(-0.93884146214)
_F3, _F4, _F5 = np.float32(-0.13144274056), np.float32(0.022475812584), np.float32(-0.0018056221306)


@inline
def erf(x):
    """erf x: an odd polynomial below 0.9, 1 - 2^(a polynomial) above; absolute error 1.3e-7."""
    z, size = x * x, abs(x)
    near = x * (((((_E5 * z + _E4) * z + _E3) * z + _E2) * z + _E1) * z + _E0)
    far = _ONE - exp2(((((_F5 * size + _F4) * size + _F3) * size + _F2) * size + _F1) * size + _F0)
    far = -far if x < _ZERO else far
    return near if size < _ERF_SMALL else far


_SQRT_HALF = np.float32(0.70710678)


_L0, _L1, _L2 = np.float32(7.0376836292e-2), np.float32(-1.1514610310e-1), np.float32(1.1676998740e-1)
_L3, _L4, _L5 = np.float32(-1.2420140846e-1), np.float32(1.4249322787e-1), np.float32(-1.6668057665e-1)
_L6, _L7, _L8 = np.float32(2.0000714765e-1), np.float32(-2.4999993993e-1), np.float32(3.3333331174e-1)
_LN2_BIG, _LN2_SMALL, _NAN = np.float32(0.693359375), np.float32(-2.12194440e-4), np.float32(np.nan)
_TINY, _SCALE, _SCALE_LOG = np.float32(1.17549435e-38), np.float32(2.0**25), np.int32(25)


@inline
def log(x):
    """ln x (Cephes), relative error 1e-7; -inf at 0, NaN below, inf at inf."""
    small = x < _TINY
    scaled = x * _SCALE if small else x
    bits = as_int(scaled)
    e = ((bits >> np.int32(23)) & np.int32(255)) - np.int32(126) - (_SCALE_LOG if small else np.int32(0))
    m = as_float((bits & np.int32(0x007FFFFF)) | np.int32(0x3F000000))
    low = m < _SQRT_HALF
    k = np.float32(e) - (_ONE if low else _ZERO)
    m = (m + m if low else m) - _ONE
    z = m * m
    p = (((((((_L0 * m + _L1) * m + _L2) * m + _L3) * m + _L4) * m + _L5) * m + _L6) * m + _L7) * m + _L8
    y = m * z * p + k * _LN2_SMALL - _HALF * z + m + k * _LN2_BIG
    y = -_INF if x == _ZERO else y
    y = _NAN if x < _ZERO else y
    return x if x == _INF or x != x else y


@inline
def log1p(x):
    """ln(1 + x), relative error 2e-7: what 1 + x has lost of x is made up for by the slope there (Kahan)."""
    total = _ONE + x
    lost = total - _ONE
    return x if lost == _ZERO or x == _INF else log(total) * (x / lost)
