"""Adding a gradient to the one that is there, each thread where it has just computed it."""

from __future__ import annotations

import numpy as np

from minigrad.kernels import team
from minigrad.kernels.numba.jit import kernel


@kernel
def _add(start, stop, total, more):
    total, more = total[start:stop], more[start:stop]
    for i in range(total.shape[0]):
        total[i] += more[i]


def accumulate(total: np.ndarray, more: np.ndarray) -> None:
    """total += more; float32, contiguous."""
    team.over_rows(_add, total.size, 0.5 * total.size, total.reshape(-1), more.reshape(-1))
