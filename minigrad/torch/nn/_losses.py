"""torch.nn.functional's losses: class weights, class probabilities, broadcasting, and those that minigrad lacks."""

from __future__ import annotations

from typing import Any

import numpy as np

import minigrad
from minigrad import Tensor, dtypes
from minigrad import functional as _functional
from minigrad.ops.arguments import expect_tensors

_WORDS = ("mean", "sum", "none")


def _reduced(each: Tensor, reduction: str) -> Tensor:
    if reduction not in _WORDS:
        raise ValueError(f"reduction {reduction!r} is not one of {', '.join(_WORDS)}")
    return each.mean() if reduction == "mean" else each.sum() if reduction == "sum" else each


def _pair(name: str, input: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both in one shape. Raises ValueError where they do not broadcast."""
    try:
        shape = np.broadcast_shapes(input.shape, target.shape)
    except ValueError:
        raise ValueError(f"{name}: shapes {list(input.shape)} and {list(target.shape)} do not broadcast") from None
    return minigrad.broadcast_to(input, shape), minigrad.broadcast_to(target, shape)


def _weighted(each: Tensor, weight: Tensor | None, reduction: str) -> Tensor:
    """A mean with weights is divided by their sum."""
    if weight is None:
        return _reduced(each, reduction)
    each, weight = _pair("a loss's weight", each * weight, weight)
    return each.sum() / weight.sum() if reduction == "mean" else _reduced(each, reduction)


# --- differences -------------------------------------------------------------------------------------------


def mse_loss(input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """The squared difference, with broadcasting."""
    input, target = _pair("mse_loss", input, target)
    return _weighted((input - target).square(), weight, reduction)


def l1_loss(input: Tensor, target: Tensor, reduction: str = "mean", weight: Tensor | None = None) -> Tensor:
    """The absolute difference, with broadcasting."""
    input, target = _pair("l1_loss", input, target)
    return _weighted((input - target).abs(), weight, reduction)


def huber_loss(
    input: Tensor, target: Tensor, reduction: str = "mean", delta: float = 1.0, weight: Tensor | None = None
) -> Tensor:
    """Half the square of a difference up to delta, a straight line beyond."""
    if delta <= 0:
        raise ValueError(f"huber_loss: delta must be positive, got {delta}")
    input, target = _pair("huber_loss", input, target)
    size = (input - target).abs()
    return _weighted(minigrad.where(size <= delta, 0.5 * size * size, delta * (size - 0.5 * delta)), weight, reduction)


def smooth_l1_loss(input: Tensor, target: Tensor, reduction: str = "mean", beta: float = 1.0) -> Tensor:
    """The absolute difference, with a parabola below beta."""
    if beta < 0:
        raise ValueError(f"smooth_l1_loss: beta must not be negative, got {beta}")
    if beta == 0:
        return l1_loss(input, target, reduction)
    input, target = _pair("smooth_l1_loss", input, target)
    size = (input - target).abs()
    return _reduced(minigrad.where(size < beta, 0.5 * size * size / beta, size - 0.5 * beta), reduction)


def kl_div(input: Tensor, target: Tensor, reduction: str = "mean", log_target: bool = False) -> Tensor:
    """minigrad.functional.kl_div, with broadcasting."""
    input, target = _pair("kl_div", input, target)
    return _functional.kl_div(input, target, reduction, log_target)


# --- probabilities -----------------------------------------------------------------------------------------


def binary_cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, *, reduction: str = "mean"
) -> Tensor:
    """-(t ln p + (1 - t) ln(1 - p)) of probabilities; logarithms below -100 count as -100.

    Raises ValueError for other shapes, and for what is no probability.
    """
    if input.shape != target.shape:
        raise ValueError(
            f"binary_cross_entropy: shapes {list(input.shape)} and {list(target.shape)} differ: they must agree"
        )
    if not input.storage.abstract and input.numel():
        values = input.detach().numpy()
        if not bool(((values >= 0) & (values <= 1)).all()):
            raise ValueError("binary_cross_entropy: the input must be probabilities, from 0 to 1: take sigmoid() first")
    yes, no = input.log().clamp(min=-100.0), (-input).log1p().clamp(min=-100.0)
    each = (target - 1) * no - target * yes
    return _reduced(each if weight is None else each * weight, reduction)


def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor:
    """minigrad.functional.binary_cross_entropy_with_logits; pos_weight multiplies what positive targets cost."""
    if pos_weight is None:
        each = _functional.binary_cross_entropy_with_logits(input, target, "none")
    else:
        if input.shape != target.shape:
            raise ValueError(
                f"binary_cross_entropy_with_logits: shapes {list(input.shape)} and {list(target.shape)} differ"
            )
        costs = 1 + (pos_weight - 1) * target
        each = (1 - target) * input + costs * _functional.softplus(-input)
    return _reduced(each if weight is None else each * weight, reduction)


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """-input[n, t_n] of log-probabilities ``(N, C, ...)`` or ``(C,)``; a mean is divided by the targets' weights.

    Raises ValueError for shapes that do not fit, IndexError for a target that is no class.
    """
    if not input.ndim or target.shape != (input.shape[:1] + input.shape[2:] if input.ndim > 1 else ()):
        raise ValueError(f"nll_loss: log-probabilities {list(input.shape)} and targets {list(target.shape)} do not fit")
    if input.ndim == 1:
        input, target = input.unsqueeze(0), target.unsqueeze(0)
        alone = nll_loss(input, target, weight, ignore_index=ignore_index, reduction=reduction)
        return alone.reshape(())
    classes = input.shape[1]
    if weight is not None and weight.shape != (classes,):
        raise ValueError(f"nll_loss: weights {list(weight.shape)} do not fit {classes} classes")
    kept = target != ignore_index
    safe = minigrad.where(kept, target, 0).long()
    picked = input.gather(1, safe.unsqueeze(1)).squeeze(1)
    one = minigrad.ones(classes, dtype=input.dtype) if weight is None else weight
    count = minigrad.where(kept, one[safe], 0.0)
    each = minigrad.where(kept, -picked * count, 0.0)
    return each.sum() / count.sum() if reduction == "mean" else _reduced(each, reduction)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    *,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """minigrad.functional.cross_entropy; also with class weights ``(C,)``, and for class probabilities as targets.

    Raises ValueError for shapes and options, as it does.
    """
    probable = dtypes.is_floating(target.dtype)
    if not probable and weight is None:
        return _functional.cross_entropy(input, target, ignore_index, label_smoothing, reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueError(f"cross_entropy: label_smoothing must lie in [0, 1], got {label_smoothing}")
    dim = 1 if input.ndim > 1 else 0
    log_probs = minigrad.log_softmax(input, dim)
    classes = input.shape[dim]
    shape = [classes if d == dim else 1 for d in range(input.ndim)]
    each = log_probs if weight is None else log_probs * weight.reshape(shape)
    if probable:
        if target.shape != input.shape:
            raise ValueError(f"cross_entropy: probabilities {list(target.shape)} for logits {list(input.shape)}")
        if ignore_index >= 0:
            raise ValueError("cross_entropy: ignore_index goes with class ids, not with class probabilities")
        smooth = target * (1 - label_smoothing) + label_smoothing / classes
        lost = -(each * smooth).sum(dim)
        return lost.sum() / (input.numel() // classes) if reduction == "mean" else _reduced(lost, reduction)
    loss = nll_loss(log_probs, target, weight, ignore_index=ignore_index, reduction=reduction)
    if not label_smoothing:
        return loss
    assert weight is not None
    kept = target != ignore_index
    spread = minigrad.where(kept, -each.sum(dim), 0.0)
    if reduction == "mean":
        spread = spread.sum() / minigrad.where(kept, weight[minigrad.where(kept, target, 0)], 0.0).sum()
    else:
        spread = _reduced(spread, reduction)
    return (1 - label_smoothing) * loss + label_smoothing / classes * spread


def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Tensor:
    """`cross_entropy` of linear(input, linear_weight, linear_bias): weight ``(C, d)`` or ``(C, ..., d)``.

    options: how much memory torch may take; the result is the same. Raises what the two functions raise, and ValueError
    for such a weight with an input that is no ``(N, d)``.
    """
    classes, width = linear_weight.shape[:-1], linear_weight.shape[-1]
    if len(classes) > 1 and input.ndim != 2:
        raise ValueError(
            f"linear_cross_entropy: a weight {list(linear_weight.shape)} needs an input (N, {width}), got "
            f"{list(input.shape)}"
        )
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    logits = _functional.linear(input, linear_weight.reshape(-1, width), bias).reshape(*input.shape[:-1], *classes)
    ignored = -100 if ignore_index is None else ignore_index
    return cross_entropy(
        logits, target, weight, ignore_index=ignored, reduction=reduction, label_smoothing=label_smoothing
    )


def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, *, reduction: str = "mean"
) -> Tensor:
    """1 - cos of pairs with target 1, what cos exceeds the margin by for target -1."""
    lengths = (input1.square().sum(-1) + 1e-12) * (input2.square().sum(-1) + 1e-12)
    cosine = (input1 * input2).sum(-1) / lengths.sqrt()
    near = minigrad.where(target == 1, 1 - cosine, 0.0)
    return _reduced(near + minigrad.where(target == -1, (cosine - margin).clamp(min=0.0), 0.0), reduction)


expect_tensors(globals())
