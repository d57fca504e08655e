"""The loss of a language model's last projection, in chunks of rows: logits ``(N, V)`` are never stored whole.

With a large vocabulary the logits, their log-probabilities and their gradient are the largest arrays of a training step
(GPT-2 on 1,024 tokens: 206 MB each). Here a chunk of rows is projected, turned into its loss and its gradient, and
multiplied into the gradients of input and weight before the next chunk takes its place.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from minigrad.ops import loss
from minigrad.ops.arguments import expect_tensors
from minigrad.ops.matmul import matmul
from minigrad.ops.registry import Array, Op, Sample, op
from minigrad.tensor import Tensor

_Attrs = dict[str, Any]


def _forward(
    x: Array, weight: Array, targets: Array, *, ignore_index: int | None, label_smoothing: float, reduction: str
) -> Array:
    attrs: _Attrs = {"ignore_index": ignore_index, "label_smoothing": label_smoothing, "reduction": reduction}
    return loss._cross_entropy(np.matmul(x, weight.T), targets, **attrs)[0]


def _gradients(
    g: Array, x: Array, weight: Array, targets: Array, *, ignore_index: int | None, label_smoothing: float,
    reduction: str,
) -> tuple[Array, Array, Array]:  # fmt: skip
    attrs: _Attrs = {"ignore_index": ignore_index, "label_smoothing": label_smoothing, "reduction": reduction}
    logits = np.matmul(x, weight.T)
    value, log_probs = loss._cross_entropy(logits, targets, **attrs)
    d_logits = loss._cross_entropy_grad(g, logits, targets, log_probs, **attrs)
    return np.matmul(d_logits, weight), np.matmul(d_logits.T, x), value


def _gradient_steps(g: Tensor, x: Tensor, weight: Tensor, targets: Tensor, **attrs: Any) -> tuple[Tensor, ...]:
    logits = matmul(x, weight.permute(1, 0))
    d_logits = loss._cross_entropy_grad_steps(g, logits, targets, logits, **attrs)
    value = loss._cross_entropy_steps(logits, targets, **attrs)
    return matmul(d_logits, weight), matmul(d_logits.permute(1, 0), x), value


def _samples(rng: np.random.Generator) -> Iterable[Sample]:
    for (logits, targets), attrs in loss._samples(rng):
        if attrs["reduction"] != "none":
            yield (rng.standard_normal((4, 3)), rng.standard_normal((logits.shape[1], 3)), targets), attrs


linear_cross_entropy_op: Op = op(
    "linear_cross_entropy",
    _forward,
    lambda g, x, weight, targets, ignore_index, label_smoothing, reduction: [
        *linear_cross_entropy_grad_op(
            g, x, weight, targets, ignore_index=ignore_index, label_smoothing=label_smoothing, reduction=reduction
        )[:2],
        None,
    ],
    decomposition=lambda x, weight, targets, **attrs: loss._cross_entropy_steps(
        matmul(x, weight.permute(1, 0)), targets, **attrs
    ),
    shape=lambda metas, **_: [((), metas[0][1])],
    flops=lambda metas, outputs, **_: (2 * metas[0][0][1] + 16) * metas[0][0][0] * metas[1][0][0],
    samples=_samples,
    formula="cross_entropy(x W^T, targets), a chunk of rows at a time",
    source="document 000 section 2.13.3; Wijmans et al. 2024, 'Cut your losses in large-vocabulary language models'",
)

linear_cross_entropy_grad_op: Op = op(
    "linear_cross_entropy_grad",
    _gradients,
    decomposition=_gradient_steps,
    shape=lambda metas, **_: [metas[1], metas[2], ((), metas[1][1])],
    flops=lambda metas, outputs, **_: (6 * metas[1][0][1] + 26) * metas[1][0][0] * metas[2][0][0],
    samples=lambda rng: [((rng.standard_normal(()), *inputs), attrs) for inputs, attrs in _samples(rng)],
    formula="D = d cross_entropy / d logits; dx = D W, dW = D^T x, and the loss itself, a chunk of rows at a time",
    source="as linear_cross_entropy",
)


def linear_cross_entropy(
    x: Tensor,
    weight: Tensor,
    targets: Tensor,
    ignore_index: int | None = -100,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Tensor:
    """`cross_entropy(x @ weight.T, targets)` without ever storing the logits ``(N, V)``.

    x ``(N, d)`` or ``(..., d)``, weight ``(V, d)``, targets class ids ``(N,)`` or ``(...)``; reduction "mean" or "sum".
    Raises ValueError for shapes, options and targets out of range, TypeError for targets that are no integers.
    """
    d = x.array.shape[-1] if x.array.ndim else 0
    if x.array.ndim < 2 or weight.array.ndim != 2 or weight.array.shape[1] != d:
        raise ValueError(
            f"linear_cross_entropy: x {list(x.array.shape)} and weight {list(weight.array.shape)} must be (..., d) and "
            "(V, d)"
        )
    if targets.array.shape != x.array.shape[:-1]:
        raise ValueError(
            f"linear_cross_entropy: x {list(x.array.shape)} needs targets of shape {list(x.array.shape[:-1])}, "
            f"got {list(targets.array.shape)}"
        )
    if reduction == "none":
        raise ValueError("linear_cross_entropy: reduction must be 'mean' or 'sum', got 'none': use cross_entropy")
    loss.check_options(targets, label_smoothing, reduction)
    return linear_cross_entropy_op(
        x.reshape(-1, d), weight, targets.reshape(-1), ignore_index=ignore_index,
        label_smoothing=float(label_smoothing), reduction=reduction,
    )  # fmt: skip


expect_tensors(globals())
