"""Losses, regularisation, schedules and optimizers (document 000 section 2.13; 002 training; 003 training)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray


def log_softmax(logits: Array, dim: int = -1) -> Array:
    """x - max(x) - log(sum(exp(x - max(x)))) along `dim`."""
    shifted = logits - logits.max(axis=dim, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=dim, keepdims=True))


def smoothed_targets(targets: Array, classes: int, eps: float, over: str = "all") -> Array:
    """Target distributions ``(N, V)``: 1 - eps on the target, and eps spread evenly over `over`.

    over: 'all' V classes, the target among them (torch), or the V - 1 'others' (document 000 section 2.13.3).
    """
    one_hot = (targets[:, None] == np.arange(classes)).astype(float)
    if over == "all":
        return one_hot * (1.0 - eps) + eps / classes
    return one_hot * (1.0 - eps) + (1.0 - one_hot) * eps / (classes - 1)


def cross_entropy(
    logits: Array,
    targets: Array,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
    smoothing_over: str = "all",
) -> Array:
    """- sum(target distribution * log_softmax(logits)), zero where the target is `ignore_index`.

    logits ``(N, V)``, targets ``(N,)`` int. reduction: 'none' ``(N,)``, 'sum', or 'mean' over the kept targets.
    """
    kept = np.ones(len(targets), bool) if ignore_index is None else targets != ignore_index
    wanted = smoothed_targets(np.where(kept, targets, 0), logits.shape[-1], label_smoothing, smoothing_over)
    losses = np.where(kept, -(wanted * log_softmax(logits)).sum(axis=-1), 0.0)
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / kept.sum()


def cross_entropy_gradient(
    logits: Array,
    targets: Array,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    smoothing_over: str = "all",
) -> Array:
    """Of the mean: (softmax(logits) - target distribution) / number of kept targets; zero in ignored rows."""
    kept = np.ones(len(targets), bool) if ignore_index is None else targets != ignore_index
    wanted = smoothed_targets(np.where(kept, targets, 0), logits.shape[-1], label_smoothing, smoothing_over)
    return np.where(kept[:, None], np.exp(log_softmax(logits)) - wanted, 0.0) / kept.sum()


def pieces_of(batch: Array, pieces: int) -> list[Array]:
    """The rows of a batch in micro-batches of equally many rows."""
    return np.split(batch, pieces)


def accumulated_gradient(weight: Array, x: Array, labels: Array, pieces: int, pad_id: int = 0) -> Array:
    """Of the mean cross-entropy of logits x W^T over all labels but `pad_id`, added up over micro-batches.

    Each micro-batch counts with its share of the batch's tokens. weight ``(V, d)``, x ``(B, T, d)``, labels ``(B, T)``.
    """
    total, gradient = (labels != pad_id).sum(), np.zeros_like(weight)
    for rows, wanted in zip(pieces_of(x, pieces), pieces_of(labels, pieces), strict=True):
        gradient += mean_gradient(weight, rows, wanted, pad_id) * (wanted != pad_id).sum() / total
    return gradient


def mean_gradient(weight: Array, x: Array, labels: Array, pad_id: int) -> Array:
    """Of the mean cross-entropy of logits x W^T over the kept labels, by the weight."""
    flat = x.reshape(-1, x.shape[-1])
    return cross_entropy_gradient(flat @ weight.T, labels.reshape(-1), pad_id).T @ flat


def masked_tokens(
    ids: Array,
    rng: np.random.Generator,
    vocab: int,
    mask_id: int,
    rate: float = 0.15,
    mask_share: float = 0.8,
    random_share: float = 0.1,
    special_ids: Sequence[int] = (),
    ignore_index: int = -100,
) -> tuple[Array, Array]:
    """What a masked language model is given, and its labels (Devlin et al. 2019, section 3.1).

    One number a token decides what happens to it, so that the shares exclude each other.
    """
    selected = (rng.random(ids.shape) < rate) & ~np.isin(ids, special_ids)
    fate = rng.random(ids.shape)
    given = np.where(selected & (fate < mask_share), mask_id, ids)
    redrawn = selected & (fate >= mask_share) & (fate < mask_share + random_share)
    given = np.where(redrawn, rng.integers(0, vocab, ids.shape), given)
    return given, np.where(selected, ids, ignore_index)


def warmup_rate(step: float, d_model: int, warmup: int) -> float:
    """d_model^-0.5 min(step^-0.5, step warmup^-1.5) for steps from 1; 0 at step 0, where the formula has no value."""
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5) if step > 0 else 0.0


def global_norm(gradients: Sequence[Array]) -> float:
    """The L2 norm of all entries of all arrays together."""
    return float(np.sqrt(sum(float(np.sum(g * g)) for g in gradients)))


def clip_by_global_norm(gradients: Sequence[Array], max_norm: float) -> list[Array]:
    """All arrays times the same max_norm / norm where the global norm exceeds max_norm; else unchanged."""
    norm = global_norm(gradients)
    return [g * (max_norm / norm) if norm > max_norm else g for g in gradients]


def weight_decays(decay: float | Sequence[float], n_params: int) -> list[float]:
    """The weight decay of each parameter: one for all, or each its own."""
    return list(decay) if isinstance(decay, Sequence) else [decay] * n_params


def optimize(
    params: Sequence[Array], gradients: Sequence[Sequence[Array]], config: Mapping[str, Any]
) -> list[list[Array]]:
    """The parameters after each step of SGD (momentum), Adam or AdamW over given gradients, a list a step.

    sgd:   v <- momentum v + g,  w <- w - lr v                            (v = g at the first step)
    adam:  m <- b1 m + (1 - b1) g,  v <- b2 v + (1 - b2) g^2,
           w <- w - lr m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)
    adamw: w <- w (1 - lr weight_decay) first, then adam. sgd and adam add weight_decay w to g instead.
    """
    kind, lr, decays = config["kind"], config["lr"], weight_decays(config["weight_decay"], len(params))
    beta1, beta2 = config["betas"]
    current = list(params)
    first, second = [np.zeros_like(p) for p in params], [np.zeros_like(p) for p in params]
    history = []
    for t, given in enumerate(gradients, start=1):
        for i, g in enumerate(given):
            if kind == "adamw":
                current[i] = current[i] * (1.0 - lr * decays[i])
            else:
                g = g + decays[i] * current[i]
            if kind == "sgd":
                first[i] = config["momentum"] * first[i] + g
                update = first[i]
            else:
                first[i] = beta1 * first[i] + (1.0 - beta1) * g
                second[i] = beta2 * second[i] + (1.0 - beta2) * g * g
                update = first[i] / (1.0 - beta1**t) / (np.sqrt(second[i] / (1.0 - beta2**t)) + config["eps"])
            current[i] = current[i] - lr * update
        history.append(list(current))
    return history
