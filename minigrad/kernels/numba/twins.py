"""Kernels that do what a Python function of a plan does, so that machine code can call them in its place.

A twin takes the same arguments behind its range. Where the Python function would raise, its twin raises too (no matter
what), and the Python function is called again to say why.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minigrad.kernels.numba.jit import kernel
from minigrad.ops.embedding import check_rows
from minigrad.ops.loss import check_targets


@kernel
def _check_rows(start, stop, ids, vocab):
    for i in range(ids.size):
        if ids[i] < 0 or ids[i] >= vocab:
            raise IndexError("an id is out of range")


@kernel
def _check_targets(start, stop, targets, classes, ignored):
    for i in range(targets.size):
        if (targets[i] < 0 or targets[i] >= classes) and targets[i] != ignored:
            raise ValueError("a target is no class")


TWINS: dict[Callable[..., Any], Any] = {check_rows: _check_rows, check_targets: _check_targets}
