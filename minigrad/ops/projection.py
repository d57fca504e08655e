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
from minigrad.ops.derivation import Example, derive, grid
from minigrad.ops.matmul import matmul
from minigrad.ops.registry import HALVES, Array, Op, Sample, op
from minigrad.tensor import Tensor


def _projected(*before: Any) -> Example:
    attrs = {"ignore_index": None, "label_smoothing": 0.1, "reduction": "mean"}
    inputs = [*[np.asarray(b) for b in before], grid(2, 2), grid(3, 2, seed=1), np.array([2, 0])]
    return lambda: (inputs, attrs)


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
    "linear_cross_entropy", _forward,
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
    flops=lambda metas, outputs, **_: (2 * metas[0][0][1] + 16) * metas[0][0][0] * metas[1][0][0], samples=_samples,
    formula="cross_entropy(x W^T, targets), a chunk of rows at a time",
    source="document 000 section 2.13.3; Wijmans et al. 2024, 'Cut your losses in large-vocabulary language models'",
    kernels={"numba.cross_entropy": "float32", "cuda.halves": HALVES, "cuda.projection": "float32"},
    derivation=derive(
        "the loss of logits z = x W^T, whose gradient is D = g (p - t) / N",
        "<D, dz> = <D, dx W^T> + <D, x dW^T> = <D W, dx> + <D^T x, dW>: a sum over rows, so that chunks of rows add up",
        let={"logits": "x @ T(weight)", **loss.SMOOTH, "D": "g * (softmax(logits) - t) / x.shape[0]"},
        example=_projected(), x="D @ weight", weight="T(D) @ x",
    ),
)  # fmt: skip

linear_cross_entropy_grad_op: Op = op(
    "linear_cross_entropy_grad", _gradients, decomposition=_gradient_steps,
    shape=lambda metas, **_: [metas[1], metas[2], ((), metas[1][1])],
    flops=lambda metas, outputs, **_: (6 * metas[1][0][1] + 26) * metas[1][0][0] * metas[2][0][0],
    samples=lambda rng: [((rng.standard_normal(()), *inputs), attrs) for inputs, attrs in _samples(rng)],
    formula="D = d cross_entropy / d logits; dx = D W, dW = D^T x, and the loss itself, a chunk of rows at a time",
    source="as linear_cross_entropy",
    kernels={"numba.cross_entropy": "float32", "cuda.halves": HALVES, "cuda.projection": "float32"},
    derivation=derive(
        "three outputs: D W, D^T x and the loss, with D = g E, E = (p - t) / N, p = softmax(z), z = x W^T",
        "L = <h, D W> + <h1, D^T x> + h2 loss = g <M, E> + h2 loss with M = h W^T + x h1^T",
        "through z: K = g / N p (M - sum M p) + h2 E carries K W to x and K^T x to W; h1 and h reach x and W directly",
        let={
            "logits": "x @ T(weight)",
            **loss.SMOOTH,
            "p": "softmax(logits)",
            "E": "(p - t) / x.shape[0]",
            "M": "h @ T(weight) + x @ T(h1)",
            "K": "g / x.shape[0] * p * (M - sum(M * p)) + h2 * E",
        },
        example=_projected(0.7),
        g="(M * E).sum()",
        x="g * E @ h1 + K @ weight",
        weight="g * T(E) @ h + T(K) @ x",
    ),
)  # fmt: skip


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
