"""Dropout as one node: which elements it drops is drawn again in the backward pass, so nothing is stored for it
(Srivastava et al. 2014)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from minigrad import dtypes, random
from minigrad.ops import rules
from minigrad.ops.arguments import expect_tensors
from minigrad.ops.derivation import derive
from minigrad.ops.operands import cast
from minigrad.ops.registry import FLOATS, Op, Sample, op
from minigrad.tensor import Tensor


def _steps(x: Tensor, key: Tensor, *residual: Tensor, p: float) -> Tensor:
    drawn = random.uniform_op(key, shape=x.array.shape, dtype=dtypes.float32)
    dropped = x * (cast(drawn >= p, dtype=x.array.dtype) * (1.0 / (1.0 - p)))
    return residual[0] + dropped if residual else dropped


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    x, residual = rng.standard_normal((2, 3, 5))
    yield (x, np.array([3, 5])), {"p": 0.4}
    yield (x, np.array([3, 5]), residual), {"p": 0.4}


def _vjp(g: Tensor, key: Tensor, residual: list[Tensor], p: float) -> list[Any]:
    return [dropout_op(g, key, p=p), None, *([g] if residual else [])]


dropout_op: Op = op(
    "dropout",
    None,
    _vjp,
    decomposition=_steps,
    shape=rules.like_first,
    flops=rules.per_element(22),
    samples=_samples,
    formula="x / (1 - p) where the draw of `key` is at least p, else 0 x; plus the residual where there is one",
    source="Srivastava et al. 2014",
    kernels={"numba.dropout": "float32", "cuda.dropout": FLOATS},
    derivation=derive(
        "y = f x (+ the residual, which gets g), f what the draw says: 0 or 1 / (1 - p), whatever x is",
        "dL = <g f, dx>: the same draw, made again",
        let={"f": "y / x"},
        x="g * f",
    ),
)


def dropout(x: Tensor, key: Tensor, p: float) -> Tensor:
    """x with elements dropped by the draw `key`, of as many words as x has elements. 0 < p < 1."""
    return dropout_op(x, key, p=p)


expect_tensors(globals())
