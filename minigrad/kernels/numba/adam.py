"""Adam and AdamW: one pass over parameters, gradients and both moments, of one parameter or of all together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad.kernels.calls import LINE, Calls
from minigrad.kernels.numba.jit import Deferred, inline, intrinsic, kernel, types
from minigrad.kernels.threads import get_num_threads

Array = np.ndarray
_WORK = 0.4  # nanoseconds of an element, about
_FLOAT = 4  # bytes


@intrinsic
def _pointer(typing: Any, like: Any, address: Any) -> Any:
    """An address as a pointer to numbers of the type of those in `like`."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[1], context.get_value_type(signature.return_type))

    return types.CPointer(like.dtype)(like, types.int64), build


def _of_numba() -> Any:
    from numba import carray

    return carray


carray: Any = Deferred(_of_numba)


@inline
def _numbers(like, address, count):
    """The array ``(count,)`` at an address, of the type of `like`."""
    return carray(_pointer(like, address), count)


@kernel
def _update(start, stop, bounds, places, like, steps, lr, beta1, beta2, eps, decay, decoupled):
    """Elements `start` to `stop` of pieces that follow each other: piece i begins at bounds[i], and places[i] holds the
    addresses of its parameter, gradient, mean, square and step.

    In place: outputs of their own would double the traffic, or, lying on the inputs, keep the loop scalar.
    """
    rate = np.float64(lr[0])
    b1, b2 = np.float32(beta1), np.float32(beta2)
    a1, a2 = np.float32(1.0 - beta1), np.float32(1.0 - beta2)
    small = np.float32(eps)
    shrink = np.float32(1.0 - rate * decay) if decoupled else np.float32(1.0)
    pull = np.float32(0.0) if decoupled else np.float32(decay)
    for piece in range(places.shape[0]):
        first, last = max(start, bounds[piece]), min(stop, bounds[piece + 1])
        if first < last:
            count, ahead = last - first, _FLOAT * (first - bounds[piece])
            w, g = _numbers(like, places[piece, 0] + ahead, count), _numbers(like, places[piece, 1] + ahead, count)
            m, v = _numbers(like, places[piece, 2] + ahead, count), _numbers(like, places[piece, 3] + ahead, count)
            t = _numbers(steps, places[piece, 4], 1)[0] + 1.0
            size = np.float32(rate / (1.0 - beta1**t))
            root = np.float32(1.0 / np.sqrt(1.0 - beta2**t))
            for i in range(count):
                parameter = w[i]
                gradient = g[i] + pull * parameter
                mean = b1 * m[i] + a1 * gradient
                square = b2 * v[i] + a2 * gradient * gradient
                m[i] = mean
                v[i] = square
                w[i] = parameter * shrink - size * mean / (np.sqrt(square) * root + small)


@kernel
def _count(start, stop, old, new, like):
    for i in range(start, stop):
        _numbers(like, new[i], 1)[0] = _numbers(like, old[i], 1)[0] + 1.0


def adam(calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array], **settings: Any) -> bool:
    """(parameter, mean, square, step); outputs may lie in the inputs' memory."""
    return adam_all(calls, inputs, outputs, **settings)


def adam_all(
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
    """The same for every parameter; inputs are (parameter, gradient, mean, square, step) of each, and the rate.

    Threads take a part of every parameter, which is what kernels before leave in their caches.
    """
    each = [inputs[i : i + 5] for i in range(0, len(inputs) - 1, 5)]
    made = [outputs[i : i + 4] for i in range(0, len(outputs), 4)]
    addresses, sizes = [], []
    for (parameter, gradient, mean, square, step), results in zip(each, made, strict=True):
        for old, new in zip((parameter, mean, square), results, strict=False):
            if old.ctypes.data != new.ctypes.data:
                calls.add(np.copyto, new, old)
        arrays = (results[0], calls.contiguous(gradient), results[1], results[2], step)
        addresses.append([array.ctypes.data for array in arrays])
        sizes.append(parameter.size)
    parts = get_num_threads()
    low, high = (np.outer(range(i, parts + i), sizes) // parts // LINE * LINE for i in (0, 1))
    high[-1] = sizes
    places = np.tile(np.array(addresses), (parts, 1))
    places[:, :4] += _FLOAT * low.reshape(-1, 1)
    bounds = np.append(0, np.cumsum(high - low))
    like, steps, lr = made[0][0].reshape(-1), inputs[4].reshape(1), inputs[-1].reshape(1)
    settings = (beta1, beta2, eps, decay, decoupled)
    calls.over_rows(_update, sum(sizes), _WORK * sum(sizes), bounds, places, like, steps, lr, *settings)
    old, new = (np.array([one[-1].ctypes.data for one in several]) for several in (each, made))
    calls.over_rows(_count, len(old), len(old), old, new, steps)
    return True
