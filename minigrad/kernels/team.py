"""The threads that run kernels together: `over_rows` cuts one kernel over them, `run` takes a whole table of calls, a
segment of a plan (see `minigrad.kernels.native`). They are started on first use, and started anew in a forked child.

Every worker is a Python thread that sleeps on a queue and holds no GIL while it works. Having run its part it stays
awake for some microseconds, so that what comes next finds it there; then it sleeps again, so that it never starves the
BLAS library's threads, torch's, or another process. Where it is woken soon, by the next step of a loop, it stays awake
for longer. What it runs meanwhile is machine code: `minigrad.kernels.serving`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from functools import cache
from queue import SimpleQueue
from typing import Any

import numpy as np

from minigrad.kernels import threads
from minigrad.kernels.numba.jit import Code, Kernel
from minigrad.kernels.serving import CALL, COUNT, LINE, PATIENCE, SHARES, TABLE, WHOLE, runtime

SOON = 1e-4  # seconds asleep after which a worker was woken too soon: a wake-up takes half of that
PATIENT = 4 * PATIENCE  # pauses that it stays awake next time
MOST = 63  # threads: one bit each of a word that says who has to be woken, and is not negative


def _lines(count: int) -> np.ndarray:
    """So many lines of the cache, filled with zeros."""
    memory = np.zeros((count + 1) * LINE, np.int64)
    start = -memory.ctypes.data // 8 % LINE
    return memory[start : start + count * LINE]


class Task:
    """What `serve` reads: a function's address, the number of threads, the address of a state with a table of calls."""

    def __init__(self, table: np.ndarray) -> None:
        self._state, self._table = _lines(4), table
        self._state[TABLE], self._state[COUNT] = table.ctypes.data, len(table)
        self._state_address = self._state.ctypes.data
        self.words = np.array([runtime().calls_address, 1, self._state_address], np.int64)
        self.address = self.words.ctypes.data

    def share(self, shares: int) -> None:
        """Where the shares of its threads are; 0: they get equal parts."""
        self._state[SHARES] = shares

    def alone(self) -> int:
        """Run it on this thread: 0, or 1 + the number of the call that failed."""
        self.share(0)
        failed: int = runtime().calls(0, 1, self._state_address)
        return failed


class _Team:
    """Workers, one mailbox each (the caller is thread 0, whose mailbox stays unused)."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._mailboxes = _lines(count)
        self.address = self._mailboxes.ctypes.data
        room = count // LINE + 1  # lines of a list of shares
        shares = _lines(3 * room + count)
        self.last = shares[2 * room * LINE :][: count + 1]  # the last shares made
        self.last[:] = np.arange(count + 1) * WHOLE // count
        self.shares = shares.ctypes.data
        self.queues: list[SimpleQueue[bool]] = [SimpleQueue() for _ in range(count)]
        for thread in range(1, count):
            arguments = (runtime().serve, self.queues[thread], self._mailboxes[LINE * thread :], thread)
            threading.Thread(target=_serve, args=arguments, name=f"minigrad-team-{thread}", daemon=True).start()

    def dismiss(self) -> None:
        """Let the workers end."""
        for queue in self.queues[1:]:
            queue.put(False)


def _serve(serve: Any, queue: SimpleQueue[bool], mailbox: np.ndarray, thread: int) -> None:
    """A worker's life. A worker that is awake still looks into its mailbox when it has been dismissed.

    It is not patient twice in a row: who comes that late is not in a hurry, or is another library that wants the core.
    """
    patience = PATIENCE
    asleep = time.perf_counter()
    while queue.get():
        soon = time.perf_counter() - asleep < SOON
        patience = PATIENT if soon and patience == PATIENCE else PATIENCE
        serve(mailbox.ctypes.data, thread, patience)
        asleep = time.perf_counter()


_team: _Team | None = None
_busy = threading.Lock()


def _forget() -> None:
    """In a forked child the parent's threads do not exist: start anew."""
    global _team, _busy
    _team, _busy = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _take(count: int) -> bool:
    """Have the team, of at least `count` threads, until `_busy` is released. False where there is none, or where
    another Python thread has it: the caller then works alone."""
    global _team
    size = _size()
    if count < 2 or size < 2 or not _busy.acquire(blocking=False):
        return False
    if _team is None or _team.count != size:
        if _team is not None:
            _team.dismiss()
        _team = _Team(size)
    return True


def _size() -> int:
    return min(threads.get_num_threads(), threads.available(), MOST) if os.name == "posix" else 1


def _together(task: Task, count: int) -> int:
    """Run a task on `count` threads of the team, which the caller has: 0, or 1 + the number of the call that failed."""
    assert _team is not None
    code = runtime()
    task.words[1] = count
    task.share(_team.shares if count == _team.count else 0)
    wake = code.post(task.address, _team.address)
    while wake:
        thread = wake.bit_length() - 1
        _team.queues[thread].put(True)
        wake ^= 1 << thread
    result: int = code.join(task.address)
    return result


def run(task: Task, most: int) -> int | None:
    """Run a task on all threads, but no more than `most`: 0, or 1 + the number of the call that failed. None where the
    team is not to be had: the caller then runs it alone."""
    count = min(_size(), most)
    if not _take(count):
        return None
    try:
        return _together(task, count)
    finally:
        _busy.release()


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


_one = cache(_One)


def over_rows(kernel: Kernel, rows: int, work: float, *arrays: Any) -> None:
    """Run `kernel(start, stop, *arrays)` over all rows: here, or cut over the team where `work` (nanoseconds of one
    thread, about) pays."""
    code, words = kernel.on(*arrays)
    count = min(_size(), threads.worth(rows, work))
    if _take(count):
        try:
            one = _one()
            one.fill(code, words, rows, work)
            failed = _together(one.task, count) != 0
        finally:
            _busy.release()
    else:
        failed = code.fails(words, 0, rows)
    if failed:
        kernel.explain(0, rows, *arrays)
