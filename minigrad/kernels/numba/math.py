"""Vectorisable float32 elementary functions: numba's own exp lowers to a scalar call, a polynomial does not."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from minigrad.kernels.numba.jit import inline

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
