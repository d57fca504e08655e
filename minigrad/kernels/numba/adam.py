"""Adam and AdamW: one pass over a parameter, its gradient and both moments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minigrad.kernels.calls import Calls
from minigrad.kernels.numba.jit import kernel

Array = np.ndarray


@kernel
def _update(start, stop, w, g, m, v, step, lr, beta1, beta2, eps, decay, decoupled):
    """In place: outputs of their own would double the traffic, or, lying on the inputs, keep the loop scalar."""
    w, g, m, v = w[start:stop], g[start:stop], m[start:stop], v[start:stop]
    t = step[0] + 1.0
    rate = np.float64(lr[0])
    size = np.float32(rate / (1.0 - beta1**t))
    root = np.float32(1.0 / np.sqrt(1.0 - beta2**t))
    b1, b2 = np.float32(beta1), np.float32(beta2)
    a1, a2 = np.float32(1.0 - beta1), np.float32(1.0 - beta2)
    small = np.float32(eps)
    shrink = np.float32(1.0 - rate * decay) if decoupled else np.float32(1.0)
    pull = np.float32(0.0) if decoupled else np.float32(decay)
    for i in range(w.shape[0]):
        parameter = w[i]
        gradient = g[i] + pull * parameter
        mean = b1 * m[i] + a1 * gradient
        square = b2 * v[i] + a2 * gradient * gradient
        m[i] = mean
        v[i] = square
        w[i] = parameter * shrink - size * mean / (np.sqrt(square) * root + small)


@kernel
def _count(start, stop, step, new):
    new[0] = step[0] + 1.0


def adam(
    calls: Calls,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    *,
    beta1: float,
    beta2: float,
    eps: float,
    decay: float,
    decoupled: bool,
) -> bool:
    """(parameter, mean, square, step); outputs may lie in the inputs' memory."""
    for old, new in zip((inputs[0], inputs[2], inputs[3]), outputs, strict=False):
        if old.ctypes.data != new.ctypes.data:
            calls.add(np.copyto, new, old)
    gradient = calls.contiguous(inputs[1]).reshape(-1)
    step, lr = inputs[4].reshape(1), inputs[5].reshape(1)
    w, m, v = (output.reshape(-1) for output in outputs[:3])
    calls.over_rows(_update, w.size, 0.4 * w.size, w, gradient, m, v, step, lr, beta1, beta2, eps, decay, decoupled)
    calls.over_rows(_count, 1, 1, step, outputs[3].reshape(1))
    return True
