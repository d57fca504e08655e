"""What a fast kernel hands over: a list of calls on given arrays, to run now (eager) or many times (a plan).

A kernel is a function `kernel(calls, inputs, outputs, **attributes) -> bool`. It appends calls that fill `outputs` from
`inputs` and returns True, or returns False to decline (a layout that it does not serve). It may not look at values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad.kernels import team

LINE = 16  # float32 numbers in a cache line


class Calls(list[tuple[Callable[..., Any], tuple[Any, ...]]]):
    """Bound calls in order: (function, arguments)."""

    def __init__(self) -> None:
        super().__init__()
        self._scratch: dict[tuple[int, str], np.ndarray] = {}

    def scratch(self, size: int, use: str = "") -> np.ndarray:
        """`size` float32 numbers, from a cache line on, that a call may use while it runs, or leave to the next one:
        the same ones for all calls that ask for as many for this use, so that they stay in the cache."""
        if (size, use) not in self._scratch:
            memory = np.empty(size + LINE, np.float32)
            start = -memory.ctypes.data // memory.itemsize % LINE
            self._scratch[size, use] = memory[start : start + size]
        return self._scratch[size, use]

    def add(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.append((function, arguments))

    def over_rows(self, kernel: Callable[..., Any], rows: int, work: float, *arrays: Any) -> None:
        """A kernel over a range of rows, cut over threads where `work` (nanoseconds of one thread, about) pays."""
        self.add(team.over_rows, kernel, rows, work, *arrays)

    def contiguous(self, array: np.ndarray) -> np.ndarray:
        """`array` itself, or memory that a call before the kernel's copies it to."""
        if array.flags.c_contiguous:
            return array
        copy = np.empty(array.shape, array.dtype)
        self.add(np.copyto, copy, array)
        return copy

    def rows(self, array: np.ndarray) -> np.ndarray:
        """`array` ``(..., n)`` as contiguous rows ``(rows, n)``."""
        return self.contiguous(array).reshape(-1, array.shape[-1])

    def run(self) -> None:
        for function, arguments in self:
            function(*arguments)
