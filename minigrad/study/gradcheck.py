"""Gradients held against central differences, in float64: `gradcheck`, and `gradgradcheck` for second derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.autograd import grad
from minigrad.gradmode import enable_grad, no_grad
from minigrad.tensor import Tensor


class GradcheckError(AssertionError):
    """An analytic gradient that differs from the numeric one."""


def gradcheck(
    function: Callable[..., Any], inputs: Sequence[Tensor], *, eps: float = 1e-6, atol: float = 1e-6, rtol: float = 1e-4
) -> bool:
    """Is the gradient of `function` right at `inputs`? Inputs that require a gradient must be float64.

    A central difference with step `eps` is good to about eps^2 + 1e-16/eps. Several outputs are checked together, along
    random directions of the outputs. Returns True; raises GradcheckError with the worst element, TypeError for float32.
    """
    targets = [t for t in inputs if t.needs_grad]
    if not targets:
        raise ValueError("gradcheck needs at least one input that requires a gradient")
    for target in targets:
        if target.array.dtype != dtypes.float64:
            raise TypeError(f"gradcheck needs float64 inputs, got {dtypes.name(target.array.dtype)}: use .double()")
    outputs = _floating(function(*inputs))
    if not outputs:
        raise ValueError("gradcheck: the function returned nothing with a gradient")
    rng = np.random.default_rng(0)
    cotangents = [rng.standard_normal(out.array.shape) for out in outputs]
    found = grad(
        outputs,
        targets,
        [Tensor(c.astype(o.array.dtype)) for c, o in zip(cotangents, outputs, strict=True)],
        allow_unused=True,
    )

    def value() -> float:
        with no_grad():
            results = _floating(function(*inputs), recorded=False)
        return float(sum(np.sum(r.array * c) for r, c in zip(results, cotangents, strict=True)))

    for position, (target, analytic) in enumerate(zip(targets, found, strict=True)):
        numeric = _differences(value, target.array, eps)
        got = np.zeros_like(numeric) if analytic is None else analytic.array
        error = np.abs(got - numeric)
        allowed = atol + rtol * np.abs(numeric)
        if not (error <= allowed).all():
            at = np.unravel_index(int(np.argmax(np.where(np.isnan(error), np.inf, error - allowed))), error.shape)
            raise GradcheckError(
                f"the gradient of input {position} differs at {tuple(int(i) for i in at)}: "
                f"analytic {got[at]:.9g}, numeric {numeric[at]:.9g}"
            )
    return True


def gradgradcheck(function: Callable[..., Any], inputs: Sequence[Tensor], **options: float) -> bool:
    """`gradcheck` of the gradient: are the second derivatives right?"""
    if not any(t.needs_grad for t in inputs):
        raise ValueError("gradgradcheck needs at least one input that requires a gradient")
    outputs = _floating(function(*inputs))
    rng = np.random.default_rng(1)
    seeds = [Tensor(rng.standard_normal(o.array.shape)).requires_grad_() for o in outputs]

    @enable_grad()  # a derivative has to be recorded to be differentiated
    def gradient(*arguments: Tensor) -> tuple[Tensor, ...]:
        given = arguments[: len(inputs)]
        results = _floating(function(*given))
        wanted = [t for t in given if t.needs_grad]
        return tuple(
            g
            for g in grad(results, wanted, list(arguments[len(inputs) :]), create_graph=True, allow_unused=True)
            if g is not None and g.needs_grad
        )

    return gradcheck(gradient, [*inputs, *seeds], **options)


def _floating(result: Any, recorded: bool = True) -> list[Tensor]:
    results = result if isinstance(result, tuple | list) else [result]
    return [r for r in results if dtypes.is_floating(r.array.dtype) and (r.needs_grad or not recorded)]


def _differences(value: Callable[[], float], at: np.ndarray, eps: float) -> np.ndarray:
    result = np.zeros(at.shape)
    for index in np.ndindex(at.shape):
        saved = at[index]
        at[index] = saved + eps
        above = value()
        at[index] = saved - eps
        below = value()
        at[index] = saved
        result[index] = (above - below) / (2 * eps)
    return result
