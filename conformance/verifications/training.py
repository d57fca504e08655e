"""Verifications of the documents' statements on losses, label smoothing and clipping."""

from __future__ import annotations

import numpy as np

from conformance.evidence import Evidence, all_of, close, same, true
from conformance.reference import training as f
from conformance.verifications.base import erratum, verify


@verify("cross-entropy-leaves-padding-out-of-the-mean")
def mean_over_tokens() -> Evidence:
    """Token losses 1, 2, 3, 4 in one sequence and 5, pad, pad, pad in another."""
    losses = np.array([[1.0, 2, 3, 4], [5, 0, 0, 0]])
    real = losses > 0
    p = np.exp(-np.where(real, losses, 1.0)).ravel()
    logits = np.log(np.stack([p, 1 - p], axis=1))
    targets = np.where(real, 0, -1).ravel()
    mean = f.cross_entropy(logits, targets, ignore_index=-1)
    sequence_means = np.mean([row[kept].mean() for row, kept in zip(losses, real, strict=True)])
    return erratum(
        "mean over all positions, and mean of the sequences' means",
        [losses.mean(), sequence_means],
        [mean, mean],
        close("mean over real tokens", mean, 3.0, 1e-12),
        close("the two others", [losses.mean(), sequence_means], [1.875, 3.75], 1e-12),
        by=0.5,
    )


@verify("smoothing-over-others-needs-two-classes")
def one_class() -> Evidence:
    with np.errstate(invalid="ignore"):
        others = f.smoothed_targets(np.array([0]), 1, 0.1, "others")
    return all_of(
        true("over the others of one class: 0 / 0", np.isnan(others).all(), got=others, expected="NaN"),
        same("over all classes", f.smoothed_targets(np.array([0]), 1, 0.1, "all"), [[1.0]]),
        close("two classes", f.smoothed_targets(np.array([0]), 2, 0.1, "others"), [[0.9, 0.1]], 1e-12),
    )


@verify("an-epoch-loss-is-a-mean-of-batch-means")
def epoch_loss() -> Evidence:
    """Batches of 1 and 3 kept tokens with mean losses 1 and 3: 2.0 by batch, 2.5 by token."""
    tokens, means = np.array([1, 3]), np.array([1.0, 3.0])
    return all_of(
        close("mean of the batch losses", means.mean(), 2.0, 1e-12),
        close("weighted by tokens it would be", (tokens * means).sum() / tokens.sum(), 2.5, 1e-12),
    )


@verify("clipping-keeps-the-direction")
def norm_not_value() -> Evidence:
    gradient = np.array([3.0, 4.0])
    (clipped,) = f.clip_by_global_norm([gradient], 1.0)
    return erratum(
        "(3, 4) with max_norm 1, clipped by its largest values",
        np.clip(gradient, -1, 1),
        clipped,
        close("clipped by its norm", clipped, [0.6, 0.8], 1e-12),
        by=0.1,
    )
