"""Attention formulas (document 000 section 2.2.3; 001 section 2; 002 Self-Attention; Vaswani et al. 2017, 3.2)."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def softmax(x: Array, dim: int = -1) -> Array:
    """exp(x) / sum(exp(x)) along `dim`, shifted by the maximum."""
    shifted = np.exp(x - np.max(x, axis=dim, keepdims=True))
    return shifted / shifted.sum(axis=dim, keepdims=True)


def scaled_scores(query: Array, key: Array) -> Array:
    """Q K^T / sqrt(d_k): query ``(..., Tq, d_k)``, key ``(..., Tk, d_k)``, result ``(..., Tq, Tk)``."""
    return query @ np.swapaxes(key, -1, -2) / query.shape[-1] ** 0.5


def masked_softmax(scores: Array, mask: Array | None = None) -> Array:
    """Softmax over the visible keys of each row (mask bool, True = may attend). A row without any is zero."""
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    highest = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    exponentials = np.exp(scores - np.where(np.isfinite(highest), highest, 0.0))
    total = exponentials.sum(axis=-1, keepdims=True)
    return exponentials / np.where(total == 0, 1.0, total)


def attention(query: Array, key: Array, value: Array, mask: Array | None = None) -> tuple[Array, Array]:
    """softmax(Q K^T / sqrt(d_k)) V and the weights. A row whose keys are all hidden is zero.

    query ``(..., Tq, d_k)``, key ``(..., Tk, d_k)``, value ``(..., Tk, d_v)``, mask bool, True = may attend.
    """
    weights = masked_softmax(scaled_scores(query, key), mask)
    return weights @ value, weights


def causal_mask(n: int) -> Array:
    """``(n, n)``: position i may attend to j <= i."""
    return np.tri(n, dtype=bool)


def padding_mask(ids: Array, pad_id: int = 0) -> Array:
    """``(B, T)``: which keys are tokens and not padding (document 002 L539-546)."""
    return ids != pad_id
