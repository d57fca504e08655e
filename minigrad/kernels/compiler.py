"""Compiling kernels before their first use, with a line on the terminal that says which.

numba compiles one kernel at a time, in 0.2 to 3 s. (A second process that compiled from the other end of the list into
the same cache would halve a cold start, but numba's cache is not made for two writers of one function's signatures.)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

Job = tuple[Any, tuple[Any, ...]]  # a kernel and the types of its arguments


def compile_all(jobs: Sequence[Job]) -> None:
    """Compile every kernel for its types, or load it from the cache."""
    missing = [(kernel, types) for kernel, types in dict.fromkeys(jobs) if types not in kernel.overloads]
    with _line(len(missing)) as line:
        for done, (kernel, types) in enumerate(missing):
            line.tell(done, f"{kernel.py_func.__module__.rsplit('.', 1)[-1]}.{kernel.py_func.__name__}")
            kernel.compile(types)
            line.compiled |= types in kernel.stats.cache_misses


class _Line:
    """What is being compiled, from the first kernel on that no cache has; nothing on a stderr that is no terminal,
    unless MINIGRAD_PROGRESS asks for it."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.compiled = False  # has a kernel been compiled, or were all of them in the cache so far
        self._wanted = bool(os.environ.get("MINIGRAD_PROGRESS")) or sys.stderr.isatty()
        self._width = 0

    def tell(self, done: int, name: str) -> None:
        if self.compiled and self._wanted:
            self._show(f"minigrad compiles kernels, once: {done + 1} of {self.total}, {name}")

    def clear(self) -> None:
        if self._width:
            self._show("")

    def _show(self, text: str) -> None:
        sys.stderr.write(f"\r{text.ljust(self._width)}" + ("" if text else "\r"))
        sys.stderr.flush()
        self._width = len(text)


@contextmanager
def _line(total: int) -> Iterator[_Line]:
    line = _Line(total)
    try:
        yield line
    finally:
        line.clear()
