"""Vectorisable float32 elementary functions: numba's own exp lowers to a scalar call, a polynomial does not."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from minigrad.kernels.numba.jit import inline, intrinsic, types

_LOG2E = np.float32(1.44269504)
_LN2_HIGH, _LN2_LOW = np.float32(0.693145752), np.float32(1.42860677e-06)
_LOWEST, _HIGHEST = np.float32(-86.6), np.float32(88.72283)
_C2, _C3, _C4 = np.float32(0.5), np.float32(1.6666665459e-1), np.float32(4.1665795894e-2)
_C5, _C6, _C7 = np.float32(8.3334519073e-3), np.float32(1.3981999507e-3), np.float32(1.9875691500e-4)
_ONE, _TWO, _ZERO, _HALF, _INF = np.float32(1), np.float32(2), np.float32(0), np.float32(0.5), np.float32(np.inf)
_BIAS, _MANTISSA = np.int32(126), np.int32(23)


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
def exp(x):
    """e^x, relative error 8.4e-8; 0 below -86.6 (no denormals), inf above 88.72, NaN stays.

    x = k ln 2 + r; a polynomial of degree 7 in r, then 2^(k-1) by exponent bits, times 2 so that k = 128 fits.
    """
    inside = _LOWEST if x < _LOWEST else x
    inside = _HIGHEST if inside > _HIGHEST else inside
    k = np.floor(inside * _LOG2E + _HALF)
    r = inside - k * _LN2_HIGH - k * _LN2_LOW
    p = ((((_C7 * r + _C6) * r + _C5) * r + _C4) * r + _C3) * r + _C2
    y = (p * r * r + r + _ONE) * as_float((np.int32(k) + _BIAS) << _MANTISSA) * _TWO
    y = _ZERO if x < _LOWEST else y
    return _INF if x > _HIGHEST else y


@inline
def sigmoid(x):
    """1 / (1 + e^-x)."""
    return _ONE / (_ONE + exp(-x))


_T0, _T1, _T2 = np.float32(-5.70498872745e-3), np.float32(2.06390887954e-2), np.float32(-5.37397155531e-2)
_T3, _T4, _TANH_SMALL = np.float32(1.33314422036e-1), np.float32(-3.33332819422e-1), np.float32(0.625)


@inline
def tanh(x):
    """tanh x: an odd polynomial near zero, 1 - 2 / (e^2x + 1) elsewhere; relative error 2e-7."""
    z = x * x
    near = x + x * z * ((((_T0 * z + _T1) * z + _T2) * z + _T3) * z + _T4)
    far = _ONE - _TWO / (exp(_TWO * x) + _ONE)
    return near if abs(x) < _TANH_SMALL else far


_E0, _E1, _E2 = np.float32(7.853861353153693e-5), np.float32(-8.010193625184903e-4), np.float32(5.188327685732524e-3)
_E3, _E4 = np.float32(-2.685381193529856e-2), np.float32(1.128358514861418e-1)
_E5, _E6 = np.float32(-3.761262582423300e-1), np.float32(1.128379165726710)
_P, _A1, _A2 = np.float32(0.3275911), np.float32(0.254829592), np.float32(-0.284496736)
_A3, _A4, _A5 = np.float32(1.421413741), np.float32(-1.453152027), np.float32(1.061405429)


@inline
def erf(x):
    """erf x: an odd polynomial (Cephes) below 1, Abramowitz and Stegun 7.1.26 above; absolute error 2e-7."""
    z = x * x
    near = x * ((((((_E0 * z + _E1) * z + _E2) * z + _E3) * z + _E4) * z + _E5) * z + _E6)
    size = abs(x)
    t = _ONE / (_ONE + _P * size)
    tail = t * (_A1 + t * (_A2 + t * (_A3 + t * (_A4 + t * _A5)))) * exp(-z)
    far = _ONE - tail
    far = -far if x < _ZERO else far
    return near if size < _ONE else far


_SQRT_HALF, _INV_SQRT_2PI = np.float32(0.70710678), np.float32(0.39894228)


@inline
def gelu(x):
    """x Phi(x)."""
    return _HALF * x * (_ONE + erf(x * _SQRT_HALF))


@inline
def gelu_slope(x):
    """The derivative of gelu: Phi(x) + x phi(x)."""
    return _HALF * (_ONE + erf(x * _SQRT_HALF)) + x * _INV_SQRT_2PI * exp(-_HALF * x * x)


@inline
def silu(x):
    """x sigmoid(x)."""
    return x * sigmoid(x)


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
