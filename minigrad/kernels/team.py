"""The threads that run kernels together: `over_rows` cuts one kernel over them, `run` takes a whole table of calls, a
segment of a plan (see `minigrad.kernels.native`). They are started on first use, and started anew in a forked child.

Whoever runs a task makes one call into machine code, from whose beginning to whose end the team is its own: there is no
lock of Python's to forget, and no signal's handler between a task's parts. Who finds the team in use works alone.

Every worker is a Python thread that sleeps until a bell rings, and holds no GIL while it works. Having run its part it
stays awake for some microseconds, so that what comes next finds it there; then it sleeps again, so that it never
starves the BLAS library's threads, torch's, or another process. Where it is woken soon, by the next step of a loop, it
stays awake for longer. What it runs meanwhile is machine code: `minigrad.kernels.serving`.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from minigrad.kernels import threads
from minigrad.kernels.numba.jit import Code, Kernel
from minigrad.kernels.serving import (
    BELL,
    CALL,
    COUNT,
    DISMISSED,
    IN_USE,
    LINE,
    PATIENCE,
    SHARES,
    TABLE,
    WHOLE,
    Bell,
    runtime,
)

SOON = 1e-4  # seconds asleep after which a worker was woken too soon: a wake-up takes half of that
PATIENT = 4 * PATIENCE  # pauses that it stays awake next time
MOST = 64  # threads


def _lines(count: int) -> np.ndarray:
    """So many lines of the cache, filled with zeros."""
    memory = np.zeros((count + 1) * LINE, np.int64)
    start = -memory.ctypes.data // 8 % LINE
    return memory[start : start + count * LINE]


class Task:
    """What threads read: a function's address, how many they are, the address of a state with a table of calls."""

    def __init__(self, table: np.ndarray) -> None:
        self._state, self._table = _lines(4), table
        self._state[TABLE], self._state[COUNT] = table.ctypes.data, len(table)
        self._state_address = self._state.ctypes.data
        self._words = np.array([runtime().calls_address, 1, self._state_address], np.int64)
        self.address = self._words.ctypes.data

    def alone(self) -> int:
        """Run it on this thread: 0, or 1 + the number of the call that failed."""
        self._state[SHARES] = 0
        failed: int = runtime().calls(0, 1, self._state_address)
        return failed


class _Team:
    """The caller and its workers, one mailbox each: `count` threads, `size` where the system gives as many."""

    def __init__(self, size: int) -> None:
        self.size, self.count = size, 1
        self._mailboxes = _lines(size)
        self.address = self._mailboxes.ctypes.data
        bells: list[Bell] = []
        weakref.finalize(self, _dismiss, self._mailboxes, bells).atexit = False
        for thread in range(1, size):
            bell, mailbox = Bell(), self._mailboxes[LINE * thread :]
            mailbox[BELL] = bell.address
            bells.append(bell)
            arguments = (runtime().serve, bell, mailbox, thread)
            try:
                threading.Thread(target=_serve, args=arguments, name=f"minigrad-team-{thread}", daemon=True).start()
            except RuntimeError:  # the system gives no more threads: those that are there do the work
                break
            self.count += 1
        room = self.count // LINE + 1  # lines of a list of shares
        shares = _lines(3 * room + self.count)
        self.last = shares[2 * room * LINE :][: self.count + 1]  # the last shares made
        self.last[:] = np.arange(self.count + 1) * WHOLE // self.count
        self.shares = shares.ctypes.data

    def run(self, task: Task, most: int) -> int | None:
        """See `run` of this module."""
        count = min(self.count, most)
        shares = self.shares if count == self.count else 0
        failed: int = runtime().together(task.address, self.address, count, shares)
        return None if failed == IN_USE else failed


def _dismiss(mailboxes: np.ndarray, bells: Sequence[Bell]) -> None:
    """Let the workers end. Nobody has the team any more, so that no task is under way."""
    mailboxes[LINE + DISMISSED :: LINE] = 1
    for bell in bells:
        bell.ring()


def _serve(serve: Any, bell: Bell, mailbox: np.ndarray, thread: int) -> None:
    """A worker's life. A worker that is awake still looks into its mailbox when it has been dismissed.

    It is not patient twice in a row: who comes that late is not in a hurry, or is another library that wants the core.
    """
    patience = PATIENCE
    asleep = time.perf_counter()
    while True:
        bell.wait()
        if mailbox[DISMISSED]:
            return
        soon = time.perf_counter() - asleep < SOON
        patience = PATIENT if soon and patience == PATIENCE else PATIENCE
        serve(mailbox.ctypes.data, thread, patience)
        asleep = time.perf_counter()


_team: _Team | None = None


def _forget() -> None:
    """In a forked child the parent's threads do not exist: start anew."""
    global _team
    _team = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _size() -> int:
    return min(threads.get_num_threads(), threads.available(), MOST) if os.name == "posix" else 1


def _members(most: int) -> _Team | None:
    """The team for work of at most so many threads; None where one thread does it. A team of another size ends when
    nobody has it any more."""
    global _team
    size = _size()
    if min(size, most) < 2:
        return None
    members = _team
    if members is None or members.size != size:
        members = _team = _Team(size)
    return members


def run(task: Task, most: int) -> int | None:
    """Run a task on all threads, but no more than `most`: 0, or 1 + the number of the call that failed. None where the
    team is not to be had: the caller then runs it alone."""
    members = _members(most)
    return None if members is None else members.run(task, most)


class _One:
    """A task of one call."""

    def __init__(self) -> None:
        self._words = np.empty(0, np.int64)
        self._table = np.zeros(1, CALL)
        self.task = Task(self._table)

    def fill(self, code: Code, words: Sequence[Any], rows: int, work: float) -> None:
        if code.memory.size > self._words.nbytes:
            self._words = np.empty(code.memory.size // 8, np.int64)
        code.memory.pack_into(self._words.data, 0, *words)
        self._table[0] = (code.address, self._words.ctypes.data, 0, rows, int(work), 0, 0, 0)


_spare: list[_One] = []  # those that no thread has


def over_rows(kernel: Kernel, rows: int, work: float, *arrays: Any) -> None:
    """Run `kernel(start, stop, *arrays)` over all rows: here, or cut over the team where `work` (nanoseconds of one
    thread, about) pays."""
    code, words = kernel.on(*arrays)
    if code is None:
        kernel(0, rows, *arrays)
        return
    most, failed = threads.worth(rows, work), None
    members = _members(most)
    if members is not None:
        try:
            one = _spare.pop()
        except IndexError:
            one = _One()
        one.fill(code, words, rows, work)
        failed = members.run(one.task, most)
        _spare.append(one)
    if failed is None:
        failed = code.fails(words, 0, rows)
    if failed:
        kernel.explain(0, rows, *arrays)
