"""The update rules of optimizers as single ops, so that one pass over memory does them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minigrad import dtypes
from minigrad.ops.derivation import derive
from minigrad.ops.elementwise import sqrt
from minigrad.ops.operands import cast
from minigrad.ops.registry import HALVES, Array, Meta, Op, op
from minigrad.ops.rules import size
from minigrad.tensor import Tensor


def _adam(
    parameter: Array,
    gradient: Array,
    mean: Array,
    square: Array,
    step: Array,
    lr: Array,
    *,
    beta1: float,
    beta2: float,
    eps: float,
    decay: float,
    decoupled: bool,
) -> tuple[Array, Array, Array, Array]:
    t = float(step) + 1.0
    rate = float(lr)
    one = parameter.dtype.type
    if decay and decoupled:
        parameter = parameter * one(1.0 - rate * decay)
    elif decay:
        gradient = gradient + parameter * one(decay)
    mean = mean * one(beta1) + gradient * one(1.0 - beta1)
    square = square * one(beta2) + gradient * gradient * one(1.0 - beta2)
    denominator = np.sqrt(square) * one(1.0 / np.sqrt(1.0 - beta2**t)) + one(eps)
    return parameter - mean * one(rate / (1.0 - beta1**t)) / denominator, mean, square, np.asarray(t, step.dtype)


def _steps(
    parameter: Tensor,
    gradient: Tensor,
    mean: Tensor,
    square: Tensor,
    step: Tensor,
    lr: Tensor,
    *,
    beta1: float,
    beta2: float,
    eps: float,
    decay: float,
    decoupled: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    t = step + 1.0
    rate = cast(lr, dtype=dtypes.float64)
    dtype = parameter.array.dtype
    if decay and decoupled:
        parameter = parameter * cast(1.0 - rate * decay, dtype=dtype)
    elif decay:
        gradient = gradient + parameter * decay
    mean = mean * beta1 + gradient * (1.0 - beta1)
    square = square * beta2 + gradient * gradient * (1.0 - beta2)
    denominator = sqrt(square) * cast(1.0 / sqrt(1.0 - beta2**t), dtype=dtype) + eps
    return parameter - mean * cast(rate / (1.0 - beta1**t), dtype=dtype) / denominator, mean, square, t


def _metas(metas: Sequence[Meta], **_: object) -> list[Meta]:
    return [metas[0], metas[0], metas[0], metas[4]]


adam: Op = op(
    "adam",
    _adam,
    decomposition=_steps,
    shape=_metas,
    flops=lambda metas, outputs, **_: 14 * size(metas[0]),
    samples=lambda rng: [
        (
            (
                rng.standard_normal((3, 4)),
                rng.standard_normal((3, 4)),
                rng.standard_normal((3, 4)),
                rng.random((3, 4)) + 0.1,
                np.asarray(float(t)),
                np.asarray(0.01),
            ),
            {"beta1": 0.9, "beta2": 0.98, "eps": 1e-8, "decay": decay, "decoupled": decoupled},
        )
        for t, decay, decoupled in ((0, 0.0, False), (5, 0.1, True), (2, 0.1, False))
    ],
    formula="m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; w - lr m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps)",
    source="Kingma and Ba 2015; decoupled decay: Loshchilov and Hutter 2019",
    differentiable=False,
    kernels={"numba.adam": "float32", "cuda.adam": "float32", "cuda.halves": HALVES},
    same_place=True,
    derivation=derive("an update rule: it runs after the backward pass, on gradients, and is not recorded itself"),
)
