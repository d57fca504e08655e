"""Cross-entropy and its derivative: a block reads a row of logits twice, however long it is.

A target that is neither a class nor ignored is noted (`faults`); its loss is NaN, and so is the mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad.kernels.cuda import elementwise
from minigrad.kernels.cuda.faults import FAULT, note
from minigrad.kernels.cuda.language import Kernel, cuda, float32, int64, kernel
from minigrad.kernels.cuda.softmax import UNROLL, gather_normaliser
from minigrad.kernels.cuda.teams import WARP, sums
from minigrad.ops.loss import no_class

ZERO, ONE, NAN = float32(0), float32(1), float32("nan")
SHORT = 4096  # up to so many classes a row is a small block's
FEW, MANY = 128, 1024  # threads of a block
THREADS = 256  # of a block of the derivative
CHUNK = 4096  # elements of a row that such a block computes
_NOTHING = -(2**62)  # an id that no target has


def _make(threads: int) -> Kernel:
    gathered = gather_normaliser(threads)
    added = sums(threads)

    @kernel(
        f"float32*, int64*, float32*, float32*, int32, int64, float32, {FAULT}",
        name=f"cross_entropy_{threads}",
        threads=threads,
    )
    def forward(logits, targets, each, log_probs, classes, ignored, smoothing, words, fault):
        shared = cuda.shared.array(WARP, float32)
        row = cuda.blockIdx.x
        start = int64(row) * classes
        peak, total = gathered(logits, start, classes, shared)
        log_total = math.log(total)
        spread = ZERO
        values = cuda.local.array(UNROLL, float32)
        for first in range(cuda.threadIdx.x, classes, UNROLL * threads):
            for k in range(UNROLL):  # loads before stores, which might be to the same memory
                j = first + k * threads
                values[k] = logits[start + j] if j < classes else ZERO
            for k in range(UNROLL):
                j = first + k * threads
                if j < classes:
                    value = values[k] - peak - log_total
                    log_probs[start + j] = value
                    spread += value
        spread = added(spread, shared)
        if cuda.threadIdx.x == 0:
            target = targets[row]
            if target == ignored:
                each[row] = ZERO
            elif target < 0 or target >= classes:
                each[row] = NAN
                note(words, fault, target)
            else:
                picked = logits[start + target] - peak - log_total
                mean = spread / float32(classes) if smoothing != ZERO else ZERO
                each[row] = -((ONE - smoothing) * picked + smoothing * mean)

    return forward


FORWARD = {threads: _make(threads) for threads in (FEW, MANY)}
_added = sums(MANY)


@kernel("float32*, int64*, float32*, float32*, int32, int64, int32", name="cross_entropy_mean", threads=MANY)
def _mean(each, targets, result, scale, rows, ignored, mean):
    """One block: the sum of `each`, or its mean over what is not ignored; scale: what a row counts."""
    shared = cuda.shared.array(WARP, float32)
    total, count = ZERO, ZERO
    for row in range(cuda.threadIdx.x, rows, MANY):
        total += each[row]
        count += ONE if targets[row] != ignored else ZERO
    total, count = _added(total, shared), _added(count, shared)
    if cuda.threadIdx.x == 0:
        result[0] = total / count if mean else total
        scale[0] = ONE / count if mean else ONE


@kernel(
    "float32*, float32*, int64*, float32*, float32*, int32, int32, int64, float32, int32",
    name="cross_entropy_grad",
    threads=THREADS,
)
def _backward(g, log_probs, targets, scale, result, classes, chunks, ignored, smoothing, single):
    """A block a chunk of a row."""
    row, chunk = cuda.blockIdx.x // chunks, cuda.blockIdx.x % chunks
    start = int64(row) * classes
    target = targets[row]
    last = min((chunk + 1) * CHUNK, classes)
    ignoring = target == ignored
    weight = ZERO if ignoring else (g[0] if single else g[row]) * scale[0]
    share = smoothing / float32(classes)
    values = cuda.local.array(UNROLL, float32)
    for first in range(chunk * CHUNK + cuda.threadIdx.x, last, UNROLL * THREADS):
        for k in range(UNROLL):
            j = first + k * THREADS
            values[k] = log_probs[start + j] if j < last else ZERO
        for k in range(UNROLL):
            j = first + k * THREADS
            if j < last:
                value = math.exp(values[k]) - share
                value = value - (ONE - smoothing) if j == target else value
                result[start + j] = ZERO if ignoring else value * weight


def _ids(calls: Any, targets: Any) -> Any:
    return calls.contiguous(elementwise.converted(calls, targets, "int64"))


def cross_entropy(
    calls: Any,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    *,
    ignore_index: int | None,
    label_smoothing: float,
    reduction: str,
) -> bool:
    """(loss, log-probabilities) of logits ``(N, V)``; declines no rows and no classes."""
    if not inputs[0].size:
        return False
    logits, targets = calls.contiguous(inputs[0]), _ids(calls, inputs[1])
    rows, classes = logits.shape
    ignored = _NOTHING if ignore_index is None else ignore_index
    each = outputs[0] if reduction == "none" else calls.scratch((rows,), np.dtype("float32"))
    threads = FEW if classes <= SHORT else MANY
    calls.launch(
        FORWARD[threads], rows, threads, logits, targets, each, outputs[1], classes, ignored, label_smoothing,
        *calls.runtime.faults.place(ValueError, no_class(classes, ignore_index)),
    )  # fmt: skip
    if reduction != "none":
        unused = calls.scratch((1,), np.dtype("float32"))
        calls.launch(_mean, 1, MANY, each, targets, outputs[0], unused, rows, ignored, reduction == "mean")
    return True


def cross_entropy_grad(
    calls: Any,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    *,
    ignore_index: int | None,
    label_smoothing: float,
    reduction: str,
) -> bool:
    """weight (softmax - smoothed target); zero in ignored rows."""
    g, logits, targets, log_probs = inputs
    if not logits.size:
        return True
    g, targets, log_probs = calls.contiguous(g), _ids(calls, targets), calls.contiguous(log_probs)
    rows, classes = logits.shape
    ignored = _NOTHING if ignore_index is None else ignore_index
    scale, unused = (calls.scratch((1,), np.dtype("float32")) for _ in range(2))
    calls.launch(_mean, 1, MANY, log_probs, targets, unused, scale, rows, ignored, reduction == "mean")
    chunks = -(-classes // CHUNK)
    calls.launch(
        _backward, rows * chunks, THREADS, g, log_probs, targets, scale, outputs[0], classes, chunks, ignored,
        label_smoothing, reduction != "none",
    )  # fmt: skip
    return True
