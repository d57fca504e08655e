"""The BLAS library behind numpy.matmul, as far as threads go.

Many small products are faster when each of our threads runs whole ones on one core than when BLAS cuts each over all
cores; `single` says so for the duration of a block.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

from minigrad import forks

_depth = 0
_lock = forks.lock()
_before: list[int] = []  # threads of each library outside; empty where nobody is inside


@cache
def libraries() -> list[Any]:
    """The loaded BLAS libraries whose threads can be set (none under Apple's Accelerate, which needs no help)."""
    return [lib for lib in ThreadpoolController().lib_controllers if lib.user_api == "blas"]


@contextmanager
def single() -> Iterator[None]:
    """Every BLAS call inside runs on the thread that makes it. Nests, and is safe from several threads."""
    global _depth
    with _lock:
        if not _before:
            _before[:] = [lib.get_num_threads() for lib in libraries()]
            for lib in libraries():
                lib.set_num_threads(1)
        _depth += 1
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                _restore()


def _restore() -> None:
    for lib, count in zip(libraries(), _before, strict=True):
        lib.set_num_threads(count)
    _before.clear()


def _leave_in_child() -> None:
    """The threads that were inside a block do not exist in a forked child."""
    global _depth
    _depth = 0
    if _before:
        _restore()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_in_child)
