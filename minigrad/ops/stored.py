"""Products with matrices that are stored in fewer bytes than they are computed in: bfloat16, or int8 rows with scales.

A token that is decoded reads every weight once, so that decoding takes as long as reading the weights: half the bytes
are half the time. A plan on the CPU reads the stored bytes and computes in float32; elsewhere the matrix is made first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.ops.arguments import expect_tensors
from minigrad.ops.derivation import derive, grid
from minigrad.ops.matmul import matmul
from minigrad.ops.operands import cast
from minigrad.ops.registry import Op, Sample, op
from minigrad.ops.shape import permute, reshape, unsqueeze
from minigrad.tensor import Tensor

KINDS = ("int8", "bfloat16")
_MOST = 127  # of int8 on both sides of 0: -128 would have no opposite


def _steps(stored: Tensor, x: Tensor, *scales: Tensor) -> Tensor:
    return matmul(x, permute(as_computed(stored, scales[0] if scales else None, x.array.dtype), 1, 0))


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    for rows in (1, 3):
        x, matrix = rng.standard_normal((rows, 5)), rng.standard_normal((4, 5)).astype(np.float32)
        for kind in KINDS:
            stored, *scales = to_stored(matrix, kind)
            yield (stored, x, *scales), {}


stored_linear_op: Op = op(
    "stored_linear",
    None,
    decomposition=_steps,
    shape=lambda metas: [((metas[1][0][0], metas[0][0][0]), metas[1][1])],
    flops=lambda metas, outputs: 2 * metas[0][0][1] * outputs[0][0][0] * outputs[0][0][1],
    wide=1,
    samples=_samples,
    formula="x W^T, W = diag(s) Q where the rows of Q are int8, W = Q where they are bfloat16",
    source="Dettmers et al. 2022, 'LLM.int8()', section 2: one scale a row, its largest value / 127",
    kernels={"numba.stored": "int8 bfloat16"},
    derivation=derive(
        "y = x W^T with a W that is not learned: dy = dx W^T",
        "<g, dx W^T> = <g W, dx>",
        x="g @ stored",
        example=lambda: ([np.asarray([[1, -2], [0, 3], [5, 1]], dtypes.bfloat16), grid(2, 2)], {}),
    ),
)


def to_stored(matrix: np.ndarray, kind: str) -> tuple[np.ndarray, ...]:
    """A matrix ``(n, k)`` as it is stored: (bfloat16,), rounded to nearest; or (int8 ``(n, k)``, float32 scales
    ``(n,)``), each row times 127 / its largest value, rounded to nearest.

    Raises ValueError for a kind that is none of KINDS, and for values that are not finite.
    """
    if kind not in KINDS:
        raise ValueError(f"weights are stored as {' or '.join(KINDS)}, got {kind!r}")
    if matrix.dtype == dtypes.bfloat16 and kind == "bfloat16":
        return (matrix,)
    wide = matrix.astype(np.float32, copy=False)
    largest = np.maximum(wide.max(1, initial=0), -wide.min(1, initial=0))  # without a copy of the matrix
    if not np.isfinite(largest).all():
        raise ValueError("a matrix with infinite or undefined values cannot be stored in fewer bytes")
    if kind == "bfloat16":
        return (wide.astype(dtypes.bfloat16),)
    scales = largest / np.float32(_MOST)
    scales[scales < np.finfo(np.float32).tiny] = 1  # a row of zeros, or of numbers too small to divide by
    stored = np.empty(wide.shape, np.int8)
    for i in range(0, len(wide), _BLOCK):
        stored[i : i + _BLOCK] = np.rint(wide[i : i + _BLOCK] / scales[i : i + _BLOCK, None])
    return stored, scales


_BLOCK = 256  # rows at a time: what lies between must not take as much memory as the matrix


def as_computed(stored: Tensor, scales: Tensor | None = None, dtype: np.dtype = dtypes.float32) -> Tensor:
    """The matrix ``(n, k)`` that is stored so, or rows of it with their scales ``(n,)``."""
    wide = cast(stored, dtype=dtype)
    return wide if scales is None else wide * unsqueeze(cast(scales, dtype=dtype), -1)


def stored_linear(x: Tensor, stored: Tensor, scales: Tensor | None = None) -> Tensor:
    """x W^T for a W ``(n, k)`` stored as bfloat16, or as int8 with scales ``(n,)``: ``(..., k)`` to ``(..., n)``.

    Raises TypeError for another dtype, ValueError for scales that are missing, too many, or of another length, and with
    both shapes where they do not fit.
    """
    kind, shape = dtypes.name(stored.array.dtype), stored.array.shape
    if kind not in KINDS or not dtypes.is_floating(x.array.dtype):
        raise TypeError(
            f"stored_linear: x must be floating and the matrix {' or '.join(KINDS)}, got "
            f"{dtypes.name(x.array.dtype)} and {kind}"
        )
    if (kind == "int8") != (scales is not None):
        raise ValueError("stored_linear: a matrix of int8 has a scale for each row, one of bfloat16 has none")
    if scales is not None and scales.array.shape != shape[:1]:
        raise ValueError(
            f"stored_linear: the matrix {list(shape)} needs scales {list(shape[:1])}, got {list(scales.array.shape)}"
        )
    if len(shape) != 2 or not x.array.ndim or x.array.shape[-1] != shape[1]:
        raise ValueError(
            f"stored_linear: x {list(x.array.shape)} and the matrix {list(shape)} must be (..., k) and (n, k)"
        )
    if dtypes.is_half(x.array.dtype):
        return cast(stored_linear(cast(x, dtype=dtypes.float32), stored, scales), dtype=x.array.dtype)
    given: tuple[Any, ...] = () if scales is None else (scales,)
    lead = x.array.shape[:-1]
    if len(lead) == 1:
        return stored_linear_op(stored, x, *given)
    return reshape(stored_linear_op(stored, reshape(x, math.prod(lead), shape[1]), *given), (*lead, shape[0]))


expect_tensors(globals())
