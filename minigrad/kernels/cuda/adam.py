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
from minigrad.kernels.cuda.intrinsics import load4, store4
from minigrad.kernels.cuda.language import cuda, device, float32, float64, kernel

THREADS = 256
VECTOR = 4  # float32 that a thread takes at once, where they are aligned
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


@device
def _moved(parameter, gradient, mean, square, rates, beta1, rest1, beta2, rest2, eps, pull):
    """One element's parameter and moments after the step."""
    gradient += pull * parameter
    mean = beta1 * mean + rest1 * gradient
    square = beta2 * square + rest2 * gradient * gradient
    return parameter * rates[2] - rates[0] * mean / (math.sqrt(square) * rates[1] + eps), mean, square


_SIGNATURE = (
    "float32*, float32*, float32*, float32*, float32*, float32*, float32*, float32*, int32, "
    "float32, float32, float32, float32, float32, float32"
)


@kernel(_SIGNATURE, name="adam", threads=THREADS)
def _update(w, g, m, v, rates, new_w, new_m, new_v, n, beta1, rest1, beta2, rest2, eps, pull):
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < n:
        new_w[i], new_m[i], new_v[i] = _moved(
            w[i], g[i], m[i], v[i], rates, beta1, rest1, beta2, rest2, eps, pull
        )  # fmt: skip


@kernel(_SIGNATURE, name="adam_vectors", threads=THREADS)
def _update_vectors(w, g, m, v, rates, new_w, new_m, new_v, n, beta1, rest1, beta2, rest2, eps, pull):
    """Four neighbours a thread: a whole line of memory a warp at each load."""
    i = VECTOR * (cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x)
    if i < n:
        w0, w1, w2, w3 = load4(w, i)
        g0, g1, g2, g3 = load4(g, i)
        m0, m1, m2, m3 = load4(m, i)
        v0, v1, v2, v3 = load4(v, i)
        w0, m0, v0 = _moved(w0, g0, m0, v0, rates, beta1, rest1, beta2, rest2, eps, pull)
        w1, m1, v1 = _moved(w1, g1, m1, v1, rates, beta1, rest1, beta2, rest2, eps, pull)
        w2, m2, v2 = _moved(w2, g2, m2, v2, rates, beta1, rest1, beta2, rest2, eps, pull)
        w3, m3, v3 = _moved(w3, g3, m3, v3, rates, beta1, rest1, beta2, rest2, eps, pull)
        store4(new_w, i, w0, w1, w2, w3)
        store4(new_m, i, m0, m1, m2, m3)
        store4(new_v, i, v0, v1, v2, v3)


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
    arrays = (w, g, m, v, rates, *outputs[:3])
    width = 1 if w.size % VECTOR or any(array.pointer % 16 for array in arrays) else VECTOR
    calls.launch(
        _update if width == 1 else _update_vectors, -(-w.size // (width * THREADS)), THREADS, *arrays, w.size,
        beta1, 1.0 - beta1, beta2, 1.0 - beta2, eps, 0.0 if decoupled else decay,
    )  # fmt: skip
    return True
