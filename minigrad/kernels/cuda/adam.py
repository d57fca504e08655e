"""Adam and AdamW over a flat parameter: one pass over parameter, gradient and both moments.

Step and learning rate are read from the device, so that a captured graph sees them change. What they give (a few
numbers) is computed once, in double precision as on the host, by one thread.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad.kernels.cuda import elementwise
from minigrad.kernels.cuda.language import cuda, float32, float64, kernel

THREADS = 256
ONE = float64(1)


@kernel("float64*, float64*, float64*, float32*, float64, float64, float64, int32", name="adam_rates", float64=True)
def _rates(step, lr, next_step, rates, beta1, beta2, decay, decoupled):
    """rates: (lr / (1 - beta1^t), 1 / sqrt(1 - beta2^t), 1 - lr decay)."""
    if cuda.threadIdx.x == 0:
        t, rate = step[0] + ONE, lr[0]
        rates[0] = float32(rate / (ONE - math.pow(beta1, t)))
        rates[1] = float32(ONE / math.sqrt(ONE - math.pow(beta2, t)))
        rates[2] = float32(ONE - rate * decay if decoupled else ONE)
        next_step[0] = t


@kernel(
    "float32*, float32*, float32*, float32*, float32*, float32*, float32*, float32*, int32, "
    "float32, float32, float32, float32, float32, float32",
    name="adam",
    threads=THREADS,
)
def _update(w, g, m, v, rates, new_w, new_m, new_v, n, beta1, rest1, beta2, rest2, eps, pull):
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < n:
        parameter = w[i]
        gradient = g[i] + pull * parameter
        mean = beta1 * m[i] + rest1 * gradient
        square = beta2 * v[i] + rest2 * gradient * gradient
        new_m[i] = mean
        new_v[i] = square
        new_w[i] = parameter * rates[2] - rates[0] * mean / (math.sqrt(square) * rates[1] + eps)


def adam(
    calls: Any,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    *,
    beta1: float,
    beta2: float,
    eps: float,
    decay: float,
    decoupled: bool,
) -> bool:
    """(parameter, mean, square, step); outputs may lie in the inputs' memory."""
    w, g, m, v = (calls.contiguous(array) for array in inputs[:4])
    step, lr = (elementwise.converted(calls, array, "float64") for array in inputs[4:])
    next_step = outputs[3] if outputs[3].dtype.name == "float64" else calls.scratch((), np.dtype("float64"))
    rates = calls.scratch((3,), np.dtype("float32"))
    calls.launch(_rates, 1, 32, step, lr, next_step, rates, beta1, beta2, decay, decoupled)
    if next_step is not outputs[3]:
        elementwise.cast(calls, [next_step], [outputs[3]], dtype=outputs[3].dtype)
    calls.launch(
        _update, -(-w.size // THREADS), THREADS, w, g, m, v, rates, *outputs[:3], w.size, beta1, 1.0 - beta1, beta2,
        1.0 - beta2, eps, 0.0 if decoupled else decay,
    )  # fmt: skip
    return True
