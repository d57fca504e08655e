"""A plan's calls as machine code: kernels that follow each other become one table, which a small loop goes through.

A plan's arguments never change, so they are written down once, as the words that a kernel reads (see
`minigrad.kernels.numba.abi`), and a `Segment` calls one kernel after another at about the cost of a C call. Nothing is
compiled for a plan: the loop is always the same. Calls that only Python can make (numpy, BLAS) stay calls between
segments.

Where a segment has enough work, all threads of the team (see `minigrad.kernels.team`) run it together: each takes its
share of the rows of a kernel that is cut over rows, the first one alone takes the others, and they meet at a barrier
where one kernel reads what another wrote. A meeting costs 0.2 us, a hand-over to a sleeping Python thread 10 to 40.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from minigrad.kernels import serving, team
from minigrad.kernels.compiler import compile_all
from minigrad.kernels.numba import abi
from minigrad.kernels.numba.jit import Code, Kernel
from minigrad.kernels.numba.twins import TWINS
from minigrad.kernels.threads import get_num_threads

SHARED = 2_000  # work (about ns) from which a call is cut over the team's threads: ten barriers
TOGETHER = 40_000  # work in a segment from which it wakes the team: a wake-up costs 10 to 40 us


class Call(NamedTuple):
    """A kernel with its range and its other arguments, and which call of the plan it is. cut: do all threads take a
    part of the range?"""

    kernel: Kernel
    start: int
    stop: int
    types: abi.Types
    words: list[Any]
    cut: bool
    work: float
    number: int


def lower(function: Callable[..., Any], arguments: Sequence[Any], number: int) -> Call | None:
    """A call as one that machine code can make, or None."""
    cut, work = False, 0.0
    if function is team.over_rows:
        function, count, work, *rest = arguments
        cut = count >= 2 and work >= SHARED
        arguments = (0, count, *rest)
    elif function in TWINS and all(argument is not None for argument in arguments):
        function, arguments = TWINS[function], (0, 1, *arguments)
    if not isinstance(function, Kernel):
        return None
    start, stop, *rest = arguments
    types: list[Any] = []
    words: list[Any] = []
    abi.read(rest, types, words)
    return Call(function, start, stop, tuple(types), words, cut, work, number)


class Segment:
    """Calls that machine code makes, on one thread or on the whole team. Calling it runs them.

    A call that fails is made again from Python, whose exception says what is wrong.
    """

    def __init__(self, calls: Sequence[Call], plan: Sequence[Any]) -> None:
        self.calls = list(calls)
        self._plan = plan
        self._together = sum(call.work for call in calls if call.cut) >= TOGETHER
        self._codes = [code for call in calls if (code := call.kernel.codes[call.types])]
        self._threads = get_num_threads()
        packed = [_packed(call, code, self._threads) for call, code in zip(calls, self._codes, strict=True)]
        self._words = np.frombuffer(b"".join(b"".join(copies) for copies in packed), np.int64)
        table = np.zeros(len(calls), serving.CALL)
        at, barriers = self._words.ctypes.data, 0
        for i, (call, code) in enumerate(zip(calls, self._codes, strict=True)):
            meets = i > 0 and (call.cut or calls[i - 1].cut)
            barriers += meets
            cut = int(call.work) if call.cut else 0
            apart = len(packed[i][0]) if len(packed[i]) > 1 else 0
            table[i] = (code.address, at, call.start, call.stop, cut, barriers * meets, call.number, apart)
            at += sum(map(len, packed[i]))
        self._task = team.Task(table)

    def __call__(self) -> None:
        failed = team.run(self._task, self._threads) if self._together else None
        if failed is None:
            failed = self._task.alone()
        if failed:
            function, arguments = self._plan[failed - 1]
            function(*arguments)
            raise RuntimeError(f"a kernel of the plan ({getattr(function, '__name__', function)}) failed once")


def _packed(call: Call, code: Code, threads: int) -> list[bytes]:
    """The words of a call: for all threads, or for each of them where one of the words is its number."""
    if not any(isinstance(word, abi.ThreadNumber) for word in call.words):
        return [code.memory.pack(*call.words)]
    return [
        code.memory.pack(*[thread if isinstance(word, abi.ThreadNumber) else word for word in call.words])
        for thread in range(threads)
    ]


def assemble(calls: Sequence[tuple[Callable[..., Any], tuple[Any, ...]]]) -> list[tuple[Callable[..., Any], Any]]:
    """The calls of a plan with runs of kernels joined into segments: (function, arguments) to be called in order."""
    made: list[tuple[Callable[..., Any], Any]] = []
    lowered = [lower(function, arguments, number) for number, (function, arguments) in enumerate(calls)]
    compile_all([(call.kernel, call.types) for call in lowered if call])
    lowered = [call if call and call.kernel.codes[call.types] else None for call in lowered]
    for native, run in groupby(range(len(calls)), lambda number: lowered[number] is not None):
        if native:
            made.append((Segment([call for call in (lowered[number] for number in run) if call], calls), ()))
        else:
            made += [calls[number] for number in run]
    return made
