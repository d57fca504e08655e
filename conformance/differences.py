"""Central differences: gradients that no engine had a hand in."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

STEP = 1e-5

ERROR = 1e-8
"""Error to allow for at values of order one: STEP^2 / 6 times a third derivative, and eps / STEP of rounding."""


def differences(value: Callable[[], float], at: np.ndarray, step: float = STEP) -> np.ndarray:
    """The gradient of `value()` with respect to the float64 array `at`, which is moved in place and restored."""
    gradient = np.zeros_like(at)
    for index in np.ndindex(at.shape):
        saved = at[index]
        at[index] = saved + step
        above = value()
        at[index] = saved - step
        below = value()
        at[index] = saved
        gradient[index] = (above - below) / (2 * step)
    return gradient
