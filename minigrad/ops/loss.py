"""Losses: cross-entropy with ignored targets and label smoothing, in one node."""

from __future__ import annotations

from typing import Any

import numpy as np

from minigrad import dtypes
from minigrad.ops import rules
from minigrad.ops.along import gather, one_hot
from minigrad.ops.arguments import expect_tensors
from minigrad.ops.derivation import Example, derive, grid
from minigrad.ops.elementwise import exp
from minigrad.ops.normalise import _log_softmax, log_softmax
from minigrad.ops.operands import cast
from minigrad.ops.reduce import mean, sum
from minigrad.ops.registry import HALVES, Array, Op, op
from minigrad.ops.selection import where
from minigrad.tensor import Tensor

SMOOTH = {"V": "logits.shape[1]", "t": "(1 - label_smoothing) * one_hot(targets, V) + label_smoothing / V"}


def classified(*before: Any) -> Example:
    attrs = {"ignore_index": None, "label_smoothing": 0.1, "reduction": "mean"}
    logits, targets = grid(2, 3), np.array([2, 0])
    after = [logits - np.log(np.exp(logits).sum(1, keepdims=True))] if before else []
    return lambda: ([*[np.asarray(b) for b in before], logits, targets, *after], attrs)


REDUCTIONS = ("mean", "sum", "none")
_Attrs = dict[str, Any]


def _kept(targets: Array, ignore_index: int | None) -> Array:
    return np.ones(targets.shape, bool) if ignore_index is None else targets != ignore_index


def check_targets(targets: Array, classes: int, ignore_index: int | None) -> None:
    """Raise ValueError for a target that is neither a class nor ignored: a kernel would read and write anywhere."""
    bad = (targets < 0) | (targets >= classes)
    if ignore_index is not None:
        bad &= targets != ignore_index
    if bad.any():
        raise ValueError(no_class(classes, ignore_index).format(int(targets[bad][0])))


def no_class(classes: int, ignore_index: int | None) -> str:
    """What is said of a target that is neither a class nor ignored, with {} for it."""
    if not classes:
        return "cross_entropy: logits without any class have no target {}"
    ignored = "" if ignore_index is None else f" nor the ignored id {ignore_index}"
    return f"cross_entropy: target {{}} is not a class id from 0 to {classes - 1}{ignored}"


def _cross_entropy(
    logits: Array, targets: Array, *, ignore_index: int | None, label_smoothing: float, reduction: str
) -> tuple[Array, Array]:
    check_targets(targets, logits.shape[1], ignore_index)
    log_probs = _log_softmax(logits, dim=1)
    kept = _kept(targets, ignore_index)
    safe = np.where(kept, targets, 0)
    picked = log_probs[np.arange(len(safe)), safe]
    each = -(1 - label_smoothing) * picked
    if label_smoothing:
        each = each - label_smoothing * np.mean(log_probs, axis=1)
    each = np.where(kept, each, 0).astype(logits.dtype, copy=False)
    if reduction == "none":
        return each, log_probs
    count = kept.sum() if reduction == "mean" else 1
    return np.asarray(np.sum(each) / np.asarray(count, logits.dtype), logits.dtype), log_probs


def _cross_entropy_steps(
    logits: Tensor, targets: Tensor, *, ignore_index: int | None, label_smoothing: float, reduction: str
) -> Tensor:
    log_probs = log_softmax(logits, 1)
    kept = targets == targets if ignore_index is None else targets != ignore_index
    picked = gather(log_probs, 1, where(kept, targets, 0).unsqueeze(1)).squeeze(1)
    each = -(1 - label_smoothing) * picked
    if label_smoothing:
        each = each - label_smoothing * mean(log_probs, 1)
    each = where(kept, each, 0.0)
    if reduction == "none":
        return each
    return sum(each) / cast(sum(kept), dtype=each.array.dtype) if reduction == "mean" else sum(each)


def _samples(rng: np.random.Generator) -> Any:
    for smoothing, ignore, reduction in ((0.0, None, "mean"), (0.1, 2, "mean"), (0.1, None, "none"), (0.0, 2, "sum")):
        yield (
            (rng.standard_normal((4, 5)), np.array([1, 2, 4, 0])),
            {"ignore_index": ignore, "label_smoothing": smoothing, "reduction": reduction},
        )


cross_entropy_op = op(
    "cross_entropy", _cross_entropy,
    lambda g, logits, targets, out1, ignore_index, label_smoothing, reduction: [
        cross_entropy_grad_op(
            g, logits, targets, out1, ignore_index=ignore_index, label_smoothing=label_smoothing, reduction=reduction
        ),
        None,
    ],
    decomposition=_cross_entropy_steps, aux=1,
    shape=lambda metas, *, reduction, **_: [
        (metas[1][0] if reduction == "none" else (), metas[0][1]),
        metas[0],
    ],
    flops=rules.per_input(16), samples=_samples,
    formula="mean over kept n of -(1 - e) ln p[n, t_n] - e/V sum_v ln p[n, v], p = softmax(logits)",
    source="document 000 section 2.13.3; document 003 'Cross-Entropy Loss'",
    kernels={"numba.cross_entropy": "float32", "cuda.cross_entropy": "float32", "cuda.halves": HALVES},
    derivation=derive(
        "L_n = -sum_v t_nv ln p_nv, p = softmax(logits), t the smoothed targets, whose row sums are 1",
        "dL_n = -sum_v t_nv (dx_v - sum_w p_nw dx_w) = sum_v (p_nv - t_nv) dx_v",
        "the mean over N kept positions divides by N", let=SMOOTH, example=classified(),
        logits="g * (softmax(logits) - t) / logits.shape[0]",
    ),
)  # fmt: skip


def _cross_entropy_grad(
    g: Array, logits: Array, targets: Array, log_probs: Array, *, ignore_index: int | None, label_smoothing: float,
    reduction: str,
) -> Array:  # fmt: skip
    kept = _kept(targets, ignore_index)
    count = np.asarray(kept.sum() if reduction == "mean" else 1, logits.dtype)
    weight = np.where(kept, g / count, np.asarray(0, logits.dtype))
    result = np.exp(log_probs)
    if label_smoothing:
        result -= np.asarray(label_smoothing / logits.shape[1], logits.dtype)
    safe = np.where(kept, targets, 0)
    result[np.arange(len(safe)), safe] -= np.asarray(1 - label_smoothing, logits.dtype)
    return result * weight[:, None]


def _cross_entropy_grad_steps(
    g: Tensor, logits: Tensor, targets: Tensor, log_probs: Tensor, *, ignore_index: int | None,
    label_smoothing: float, reduction: str,
) -> Tensor:  # fmt: skip
    dtype, classes = logits.array.dtype, logits.array.shape[1]
    kept = targets == targets if ignore_index is None else targets != ignore_index
    target = cast(one_hot(where(kept, targets, 0), classes), dtype=dtype)
    smooth = target * (1 - label_smoothing) + label_smoothing / classes
    count = sum(cast(kept, dtype=dtype)) if reduction == "mean" else 1
    return (exp(log_softmax(logits, 1)) - smooth) * where(kept, g / count, 0.0).unsqueeze(1)


cross_entropy_grad_op: Op = op(
    "cross_entropy_grad", _cross_entropy_grad, decomposition=_cross_entropy_grad_steps,
    shape=lambda metas, **_: [metas[1]], flops=lambda metas, outputs, **_: 13 * rules.size(metas[1]),
    samples=lambda rng: [
        (
            (
                rng.standard_normal(4 if attrs["reduction"] == "none" else ()),
                logits,
                targets,
                _log_softmax(logits, dim=1),
            ),
            attrs,
        )
        for (logits, targets), attrs in _samples(rng)
    ],
    formula="g w_n (softmax(logits) - smoothed target), w_n what position n counts",
    kernels={"numba.cross_entropy": "float32", "cuda.cross_entropy": "float32", "cuda.halves": HALVES},
    derivation=derive(
        "z = g (p - t) / N, p = softmax(logits)", "linear in g; and dp_v = p_v (dx_v - sum_w p_w dx_w)",
        "<h, dz> = g / N sum_v p_v (h_v - sum_w h_w p_w) dx_v for every position",
        let={**SMOOTH, "p": "softmax(logits)"}, example=classified(0.7), g="(h * (p - t)).sum() / logits.shape[0]",
        logits="g / logits.shape[0] * p * (h - sum(h * p))",
    ),
)  # fmt: skip


def check_options(targets: Tensor, label_smoothing: float, reduction: str) -> None:
    """Raise ValueError or TypeError for options and targets that no cross-entropy takes."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"cross_entropy: reduction {reduction!r} is not one of {', '.join(REDUCTIONS)}")
    if not 0.0 <= rules.number(label_smoothing, "cross_entropy: label_smoothing") <= 1.0:
        raise ValueError(f"cross_entropy: label_smoothing must lie in [0, 1], got {label_smoothing}")
    if dtypes.category(targets.array.dtype) != 1:
        raise TypeError(f"cross_entropy: targets must be class ids (integers), got {dtypes.name(targets.array.dtype)}")


def cross_entropy(
    logits: Tensor, targets: Tensor, ignore_index: int | None = -100, label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Tensor:  # fmt: skip
    """Cross-entropy of logits ``(N, V)`` or ``(N, V, ...)`` and class ids ``(N, ...)``.

    Smoothed targets put 1 - e + e/V on the target and e/V on every other class. Ignored targets count neither in the
    sum nor in the mean; a mean over none is NaN. Raises ValueError for shapes, options or targets out of range.
    """
    check_options(targets, label_smoothing, reduction)
    shape = logits.array.shape
    if len(shape) > 2:
        moved = logits.permute(0, *range(2, len(shape)), 1)
        each = cross_entropy(moved.reshape(-1, shape[1]), targets.reshape(-1), ignore_index, label_smoothing, reduction)
        return each.reshape(targets.array.shape) if reduction == "none" else each
    single = len(shape) == 1
    if single:
        logits, targets = logits.unsqueeze(0), targets.reshape(1)
    if logits.array.ndim != 2 or targets.array.shape != logits.array.shape[:1]:
        raise ValueError(
            f"cross_entropy: logits {list(shape)} need targets of shape {list(shape[:1])}, "
            f"got {list(targets.array.shape)}"
        )
    result = cross_entropy_op(
        logits, targets, ignore_index=ignore_index, label_smoothing=float(label_smoothing), reduction=reduction
    )[0]
    return result.reshape(()) if single else result


expect_tensors(globals())
