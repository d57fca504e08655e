"""Cross-entropy and its derivative over rows of logits, given whole or projected a chunk of rows at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad.kernels.calls import Calls
from minigrad.kernels.numba.jit import inline, kernel
from minigrad.kernels.numba.math import below, exp, largest, log
from minigrad.ops.loss import check_targets

Array = np.ndarray
_ZERO, _ONE, _NAN = np.float32(0), np.float32(1), np.float32(np.nan)


@inline
def _kept(targets, ignored):
    """How many targets count."""
    count = 0
    for row in range(len(targets)):
        count += targets[row] != ignored
    return count


@kernel
def _forward(start, stop, logits, bits, targets, ignored, smoothing, each, log_probs):
    classes = logits.shape[1]
    for row in range(start, stop):
        peak = largest(bits, row)
        total = _ZERO
        for j in range(classes):
            total += exp(logits[row, j] - peak)
        log_total = log(total)
        spread = _ZERO
        for j in range(classes):
            value = below(logits[row, j], peak, log_total)
            log_probs[row, j] = value
            spread += value
        target = targets[row]
        if target == ignored:
            each[row] = _ZERO
        else:
            mean = spread / np.float32(classes) if smoothing != _ZERO else _ZERO
            each[row] = -((_ONE - smoothing) * log_probs[row, target] + smoothing * mean)


@kernel
def _reduce(start, stop, each, targets, ignored, mean, total):
    """Added in order, in one thread: a sum of a few thousand numbers."""
    value, count = np.float64(0), _kept(targets, ignored)
    for row in range(len(each)):
        value += each[row]
    total[0] = np.float32(value / count) if mean and count else np.float32(value) if not mean else _NAN


@kernel
def _backward(start, stop, g, log_probs, targets, ignored, smoothing, mean, single, result):
    classes = log_probs.shape[1]
    share = smoothing / np.float32(classes)
    scale = _ONE / np.float32(_kept(targets, ignored)) if mean else _ONE
    for row in range(start, stop):
        target = targets[row]
        if target == ignored:
            for j in range(classes):
                result[row, j] = _ZERO
        else:
            weight = (g[0] if single else g[row]) * scale
            for j in range(classes):
                result[row, j] = (exp(log_probs[row, j]) - share) * weight
            result[row, target] -= (_ONE - smoothing) * weight


_NOTHING = np.int64(-(2**62))  # an id that no target has


def _told(ignore_index: int | None, label_smoothing: float, reduction: str) -> tuple[np.int64, np.float32, bool]:
    """What kernels are told: the id that does not count, how much is smoothed, and whether the loss is a mean."""
    ignored = _NOTHING if ignore_index is None else np.int64(ignore_index)
    return ignored, np.float32(label_smoothing), reduction == "mean"


def cross_entropy(calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array], **options: Any) -> bool:
    """(loss, log-probabilities) of logits ``(N, V)``; declines no rows and no classes."""
    if not inputs[0].size:
        return False
    logits, targets = calls.rows(inputs[0]), calls.contiguous(inputs[1])
    ignored, smoothing, mean = _told(**options)
    n, single = len(logits), options["reduction"] != "none"
    each = np.empty(n, np.float32) if single else outputs[0]
    calls.add(check_targets, targets, logits.shape[1], options["ignore_index"])
    calls.over_rows(
        _forward, n, logits.size, logits, logits.view(np.int32), targets, ignored, smoothing, each, outputs[1]
    )
    if single:
        calls.over_rows(_reduce, 1, 1, each, targets, ignored, mean, outputs[0].reshape(1))
    return True


def cross_entropy_grad(calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array], **options: Any) -> bool:
    """weight (softmax - smoothed target); declines no rows and no classes."""
    g, logits, targets, log_probs = inputs
    if not logits.size:
        return False
    rows = calls.rows(log_probs)
    up = calls.contiguous(g).reshape(-1)
    ids = calls.contiguous(targets)
    ignored, smoothing, mean = _told(**options)
    single = options["reduction"] != "none"
    calls.over_rows(_backward, len(rows), rows.size, up, rows, ids, ignored, smoothing, mean, single, outputs[0])
    return True


# --- projected in chunks: the logits of a chunk lie in one buffer, which the next chunk uses again ------------------

CHUNK = 256  # rows: products of this height run at nearly full rate, and the sum of weight gradients costs a tenth


@kernel
def _measure(start, stop, logits, bits, targets, ignored, smoothing, each):
    """The loss of every row, from its logits."""
    classes = logits.shape[1]
    for row in range(start, stop):
        peak = largest(bits, row)
        total = _ZERO
        spread = _ZERO
        for j in range(classes):
            value = logits[row, j] - peak
            total += exp(value)
            spread += value
        target = targets[row]
        if target == ignored:
            each[row] = _ZERO
        else:
            mean = spread / np.float32(classes) if smoothing != _ZERO else _ZERO
            each[row] = log(total) - (_ONE - smoothing) * (logits[row, target] - peak) - smoothing * mean


@kernel
def _turn(start, stop, g, count, logits, bits, targets, ignored, smoothing, mean, each):
    """The loss of every row, and its logits into their gradient, in place."""
    classes = logits.shape[1]
    share = smoothing / np.float32(classes)
    _measure(start, stop, logits, bits, targets, ignored, smoothing, each)
    scale = g[0] / np.float32(count[0]) if mean else g[0]
    for row in range(start, stop):
        target = targets[row]
        if target == ignored:
            for j in range(classes):
                logits[row, j] = _ZERO
        else:
            base = logits[row, target]
            spread = _ZERO
            if smoothing != _ZERO:
                for j in range(classes):
                    spread += logits[row, j] - base
                spread *= share
            rest = each[row] + spread  # the row's ln sum e^logit is base + rest
            for j in range(classes):
                logits[row, j] = (exp(below(logits[row, j], base, rest)) - share) * scale
            logits[row, target] -= (_ONE - smoothing) * scale


@kernel
def _count(start, stop, targets, ignored, count):
    count[0] = _kept(targets, ignored)


def linear_cross_entropy(calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array], **options: Any) -> bool:
    """The loss of x ``(N, d)`` projected by weight ``(V, d)``; declines no rows and no classes."""
    x, weight, targets = inputs
    n, classes = len(x), len(weight)
    if not n * classes:
        return False
    targets, (ignored, smoothing, mean) = calls.contiguous(targets), _told(**options)
    calls.add(check_targets, targets, classes, options["ignore_index"])
    logits, each = np.empty((min(n, CHUNK), classes), np.float32), np.empty(n, np.float32)
    for start in range(0, n, CHUNK):
        rows = slice(start, min(start + CHUNK, n))
        part = logits[: rows.stop - start]
        calls.add(np.matmul, x[rows], weight.T, part)
        calls.over_rows(
            _measure, len(part), part.size, part, part.view(np.int32), targets[rows], ignored, smoothing, each[rows]
        )
    calls.add(_reduce, 0, 1, each, targets, ignored, mean, outputs[0].reshape(1))
    return True


def linear_cross_entropy_grad(calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array], **options: Any) -> bool:
    """(dx, dweight, loss); declines no rows and no classes."""
    g, x, weight, targets = inputs
    n, classes = len(x), len(weight)
    if not n * classes:
        return False
    targets, (ignored, smoothing, mean) = calls.contiguous(targets), _told(**options)
    up = calls.contiguous(g).reshape(1)
    logits, each = np.empty((min(n, CHUNK), classes), np.float32), np.empty(n, np.float32)
    count, partial = np.zeros(1, np.int64), np.empty_like(weight) if n > CHUNK else weight
    calls.add(check_targets, targets, classes, options["ignore_index"])
    calls.add(_count, 0, 1, targets, ignored, count)
    for start in range(0, n, CHUNK):
        rows = slice(start, min(start + CHUNK, n))
        part, ids = logits[: rows.stop - start], targets[rows]
        calls.add(np.matmul, x[rows], weight.T, part)
        calls.over_rows(
            _turn, len(part), 2 * part.size, up, count, part, part.view(np.int32), ids, ignored, smoothing, mean,
            each[rows],
        )  # fmt: skip
        calls.add(np.matmul, part, weight, outputs[0][rows])
        if start == 0:
            calls.add(np.matmul, part.T, x[rows], outputs[1])
        else:
            calls.add(np.matmul, part.T, x[rows], partial)
            calls.add(np.add, outputs[1], partial, outputs[1])
    calls.add(_reduce, 0, 1, each, targets, ignored, mean, outputs[2].reshape(1))
    return True
