"""Positional formulas (document 000 section 2.6; 002 Position Encoding; Vaswani et al. 2017, 3.5; Su et al. 2021)."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def frequencies(d: int, base: float = 10000.0) -> Array:
    """base^(-2i/d) for the pairs i = 0, 1, ...: ``((d + 1) // 2,)``; an odd width has half a pair at its end."""
    return base ** (-np.arange(0, d, 2) / d)


def sinusoid(positions: Array, d: int, layout: str = "interleaved") -> Array:
    """sin and cos of position times frequency: ``(len(positions), d)``.

    layout: 'interleaved' puts sin and cos of a pair side by side (the documents), 'half' all sines first.
    """
    angles = np.multiply.outer(np.asarray(positions, np.float64), frequencies(d))
    if layout == "half":
        return np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)[:, :d]
    table = np.empty((len(angles), d))
    table[:, 0::2] = np.sin(angles)
    table[:, 1::2] = np.cos(angles[:, : d // 2])
    return table


def rope(x: Array, offset: int = 0, base: float = 10000.0, pairing: str = "interleaved") -> Array:
    """Rotate pair i of row t by the angle (t + offset) * base^(-2i/d), anticlockwise.

    x ``(..., T, d)``, d even. pairing: 'interleaved' pairs (2i, 2i + 1), 'half' pairs (i, i + d/2).
    """
    n, d = x.shape[-2:]
    angles = np.multiply.outer(np.arange(offset, offset + n), frequencies(d, base))
    cos, sin = np.cos(angles), np.sin(angles)
    first, second = pairs(d, pairing)
    a, b = x[..., first], x[..., second]
    rotated = np.empty_like(x)
    rotated[..., first] = a * cos - b * sin
    rotated[..., second] = a * sin + b * cos
    return rotated


def pairs(d: int, pairing: str) -> tuple[slice, slice]:
    """The columns that hold the first and the second members of the pairs."""
    return (slice(0, d, 2), slice(1, d, 2)) if pairing == "interleaved" else (slice(0, d // 2), slice(d // 2, d))
