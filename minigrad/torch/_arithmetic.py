"""torch's elementwise functions that minigrad lacks or calls otherwise, composed of its ops."""

from __future__ import annotations

import math
from typing import Any

import minigrad
from minigrad import Tensor, dtypes
from minigrad.ops.arguments import expect_tensors


def _integral(*tensors: Tensor) -> bool:
    return not any(dtypes.is_floating(x.dtype) for x in tensors)


def _scaled(x: Any, factor: Any, like: Tensor) -> Any:
    """x times a number that counts in whole ones where `like` does."""
    if isinstance(factor, float) and _integral(like):
        factor = int(factor)
    return x if factor == 1 else x * factor


# --- sums of products ---------------------------------------------------------------------------------


def add(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """input + alpha other."""
    return minigrad.add(input, other if alpha == 1 else minigrad.mul(other, alpha))


def sub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """input - alpha other."""
    return minigrad.sub(input, other if alpha == 1 else minigrad.mul(other, alpha))


def rsub(input: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """other - alpha input."""
    return sub(other, input, alpha=alpha)


def _plus_product(input: Tensor, product: Tensor, beta: Any, alpha: Any) -> Tensor:
    """beta input + alpha product; without `input`, whatever it holds, where beta is 0."""
    product = _scaled(product, alpha, product)
    if (int(beta) if _integral(product) else beta) == 0:
        return product + minigrad.zeros(*minigrad.broadcast_to(input, product.shape).shape, dtype=product.dtype)
    return _scaled(input, beta, product) + product


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta input + alpha (mat1 @ mat2)."""
    return _plus_product(input, mat1 @ mat2, beta, alpha)


def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta input + alpha (mat @ vec)."""
    return _plus_product(input, mv(mat, vec), beta, alpha)


def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta input + alpha (the sum over the batch of batch1 @ batch2)."""
    return _plus_product(input, (batch1 @ batch2).sum(0, dtype=batch1.dtype), beta, alpha)


baddbmm = addmm


def mv(input: Tensor, vec: Tensor) -> Tensor:
    """A matrix times a vector. Raises ValueError for other shapes."""
    if (input.ndim, vec.ndim) != (2, 1):
        raise ValueError(f"mv needs a matrix and a vector, got shapes {list(input.shape)} and {list(vec.shape)}")
    return input @ vec


def lerp(input: Tensor, end: Tensor, weight: Any) -> Tensor:
    """input + weight (end - input)."""
    return input + (end - input) * weight


def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: Any = 1) -> Tensor:
    """input + value tensor1 tensor2."""
    product = tensor1 * tensor2
    return input + _scaled(product, value, product if _integral(input) else input)


def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
    """input + value tensor1 / tensor2."""
    return input + tensor1 / tensor2 * value


# --- rounding and limits ------------------------------------------------------------------------------


def clamp_min(input: Tensor, min: Any) -> Tensor:
    return input.clamp(min=min)


def clamp_max(input: Tensor, max: Any) -> Tensor:
    return input.clamp(max=max)


def trunc(input: Tensor) -> Tensor:
    """Rounded towards zero; the dtype stays."""
    return minigrad.where(input < 0, input.ceil(), input.floor())


fix = trunc


def frac(input: Tensor) -> Tensor:
    """What is left of x behind the point, with its sign."""
    return input - trunc(input)


def fmod(input: Tensor, other: Any) -> Tensor:
    """The remainder of a division that rounds towards zero: it has the sign of `input`."""
    rest = input.abs().remainder(other.abs() if isinstance(other, Tensor) else abs(other))
    return minigrad.where(input < 0, -rest, rest)


def nan_to_num(
    input: Tensor, nan: float | None = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """Numbers in the place of NaN and infinities, the largest ones of the dtype unless given."""
    if _integral(input):
        return input.clone()
    most = dtypes.largest(input.dtype)
    input = minigrad.where(input.isnan(), 0.0 if nan is None else float(nan), input)
    input = minigrad.where(input == math.inf, most if posinf is None else float(posinf), input)
    return minigrad.where(input == -math.inf, -most if neginf is None else float(neginf), input)


def positive(input: Tensor) -> Tensor:
    """x itself. Raises TypeError for booleans."""
    if input.dtype == dtypes.bool_:
        raise TypeError("positive is not defined for bool: convert it first")
    return input


# --- exponentials and angles -----------------------------------------------------------------------------


def logaddexp(input: Tensor, other: Tensor) -> Tensor:
    """ln(e^a + e^b), without overflow."""
    if _integral(input, other):
        raise TypeError(f"logaddexp needs floating tensors, got {dtypes.name(input.dtype)}: convert them with .float()")
    softplus = minigrad.functional.softplus
    gap = minigrad.where((input == other) & input.isinf(), 0.0, other - input)
    return minigrad.where(gap <= 0, input + softplus(gap), other + softplus(-gap))


def _floating(x: Tensor) -> Tensor:
    return x if dtypes.is_floating(x.dtype) else x.float()


def atan(input: Tensor) -> Tensor:
    return minigrad.atan2(input, minigrad.ones_like(input))


def tan(input: Tensor) -> Tensor:
    return input.sin() / input.cos()


def sinh(input: Tensor) -> Tensor:
    input = _floating(input)
    up = input.expm1()
    return minigrad.where(input.abs() < 1.0, (up + up / (up + 1.0)) * 0.5, (input.exp() - (-input).exp()) * 0.5)


def cosh(input: Tensor) -> Tensor:
    input = _floating(input)
    return (input.exp() + (-input).exp()) * 0.5


def exp2(input: Tensor) -> Tensor:
    """2^x."""
    return 2.0 ** _floating(input)


# --- logic and comparison ---------------------------------------------------------------------------


def logical_not(input: Tensor) -> Tensor:
    return ~input.bool()


def logical_and(input: Tensor, other: Tensor) -> Tensor:
    return input.bool() & other.bool()


def logical_or(input: Tensor, other: Tensor) -> Tensor:
    return input.bool() | other.bool()


def logical_xor(input: Tensor, other: Tensor) -> Tensor:
    return input.bool() ^ other.bool()


def bitwise_not(input: Tensor) -> Tensor:
    return ~input


def bitwise_and(input: Any, other: Any) -> Tensor:
    return input & other


def bitwise_or(input: Any, other: Any) -> Tensor:
    return input | other


def bitwise_xor(input: Any, other: Any) -> Tensor:
    return input ^ other


def isclose(input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Is |a - b| <= atol + rtol |b|, element by element? Raises ValueError for negative tolerances and other dtypes."""
    if input.dtype != other.dtype:
        raise ValueError(f"isclose: dtypes {dtypes.name(input.dtype)} and {dtypes.name(other.dtype)} differ")
    if rtol < 0 or atol < 0:
        raise ValueError(f"isclose: tolerances must not be negative, got rtol {rtol} and atol {atol}")
    same = input == other
    if not _integral(input):
        close = (input - other).abs() <= atol + (other * rtol).abs()
        same = same | (close & other.isfinite() & input.isfinite())
        same = same | (input.isnan() & other.isnan()) if equal_nan else same
    elif (rtol or atol) and input.dtype != dtypes.bool_:
        one, two = input.double(), other.double()
        same = same | ((one - two).abs() <= atol + (two * rtol).abs())
    return same


expect_tensors(globals())
