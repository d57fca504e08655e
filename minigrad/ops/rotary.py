"""Rotary positions as one node: pairs of a row's elements turned by the angles of its position (Su et al. 2021)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from minigrad.ops import rules
from minigrad.ops.arguments import expect_tensors
from minigrad.ops.derivation import derive, grid
from minigrad.ops.joins import cat, stack
from minigrad.ops.registry import FLOATS, Op, Sample, op
from minigrad.ops.shape import flatten
from minigrad.tensor import Tensor


def _one_pair() -> tuple[list[np.ndarray], dict[str, Any]]:
    angles = grid(2, 1, seed=1)
    return [grid(2, 2), np.cos(angles), np.sin(angles)], {"interleaved": True, "back": False}


def _steps(x: Tensor, cos: Tensor, sin: Tensor, *, interleaved: bool, back: bool) -> Tensor:
    if back:
        sin = -sin
    if interleaved:
        a, b = x[..., 0::2], x[..., 1::2]
        return flatten(stack([a * cos - b * sin, a * sin + b * cos], -1), -2)
    half = x.array.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    return cat([a * cos - b * sin, a * sin + b * cos], -1)


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    angles = rng.standard_normal((4, 3))
    for interleaved in (False, True):
        for back in (False, True):
            inputs = (rng.standard_normal((2, 4, 6)), np.cos(angles), np.sin(angles))
            yield inputs, {"interleaved": interleaved, "back": back}


rope_op: Op = op(
    "rope",
    None,
    lambda g, cos, sin, interleaved, back: [rope_op(g, cos, sin, interleaved=interleaved, back=not back), None, None],
    decomposition=_steps,
    shape=rules.like_first,
    flops=rules.per_element(3),
    samples=_samples,
    formula="(a cos - b sin, a sin + b cos) for the pairs (a, b) of each row; `back` turns the other way",
    source="Su et al. 2021; document 002, RoPE",
    kernels={"numba.rotary": "float32", "cuda.rotary": FLOATS},
    any_strides=True,
    derivation=derive(
        "a pair (a, b) becomes (a cos - b sin, a sin + b cos); the angles are constants",
        "dL = u (da cos - db sin) + v (da sin + db cos) for the pair (u, v) of g",
        "so (u cos + v sin, v cos - u sin) arrives at (a, b): g turned back by the same angle",
        example=_one_pair,
        x="g * cos + where(numbers(g) % 2 == 0, 1, -1) * sin * flip(g, -1)",
    ),
)


def rope(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """x ``(..., T, d)`` with the pairs of row t turned by the angles whose cosines and sines, cos[t] and sin[t]
    ``(T, d / 2)``: pairs (0, 1), (2, 3), ... if `interleaved`, else (i, i + d / 2)."""
    if cos.needs_grad or sin.needs_grad:  # the node takes them for constants
        return _steps(x, cos, sin, interleaved=interleaved, back=False)
    return rope_op(x, cos, sin, interleaved=interleaved, back=False)


expect_tensors(globals())
