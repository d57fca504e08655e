"""Normalisation formulas (document 000 section 2.8.2; 002 GPT section; Ba et al. 2016; Zhang and Sennrich 2019)."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def layer_norm(x: Array, weight: Array | float = 1.0, bias: Array | float = 0.0, eps: float = 1e-5) -> Array:
    """(x - mean) / sqrt(var + eps) * weight + bias over the last axis; the variance divides by d."""
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred**2).mean(-1, keepdims=True)
    return centred / np.sqrt(variance + eps) * weight + bias


def rms_norm(x: Array, weight: Array, eps: float = 1e-6) -> Array:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis."""
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * weight
