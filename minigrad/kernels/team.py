"""The threads that run kernels together, and how they meet.

`over_rows` cuts one kernel over them; `run` takes a whole table of calls, a segment of a plan (see
`minigrad.kernels.native`). Threads are started on first use, and started anew in a forked child.

Every worker is a Python thread that sleeps on a queue and holds no GIL while it works. Having run its part it stays
awake for `PATIENCE`, so that what comes microseconds later finds it there; then it sleeps again, so that it never
starves the BLAS library's threads, torch's, or another process. Waiting threads pause, then give up their core.

A worker's mailbox is one word: ASLEEP, AWAKE, or the address of a task (function, threads, state). A state has words
on cache lines of their own: how many have arrived at barriers, who failed, how many workers have finished, and what
there is to do: a table of calls, one cache line each (see `CALL`), and their number.
"""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from collections.abc import Sequence
from functools import cache
from queue import SimpleQueue
from typing import Any

import numpy as np

from minigrad.kernels import machine, threads
from minigrad.kernels.numba.jit import RETURNED_NONE, Code, Kernel

PATIENCE = 2_000  # pauses that a worker stays awake: about 50 us
YIELD = 500  # pauses after which a thread at a barrier lets others have its core
MOST = 63  # threads: one bit each of a word that says who has to be woken, and is not negative
ARRIVED, FAILED, FINISHED, TABLE, COUNT = 0, 8, 16, 24, 25  # words of a state
# A call of the table: `function(words, start, stop)`, its range `cut` over all threads, or done by the first one; all
# meet before it where `barrier` is not 0 but the number of a barrier; `number` tells which call failed.
CALL = np.dtype([(name, np.int64) for name in ("function", "words", "start", "stop", "cut", "barrier", "number", "_")])
_ASLEEP, _AWAKE = 0, 1
_LINE = 8  # words of a cache line

_PAUSES = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "AMD64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "arm64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}
_DECLARED_PAUSE, _PAUSE = _PAUSES.get(platform.machine(), ("", ""))


_RUNTIME = f"""
{_DECLARED_PAUSE}

@yield = global ptr null  ; the system's call that gives the core to another thread, where there is one

define internal void @wait(i64 %tries) {{
  {_PAUSE}
  %long = icmp ugt i64 %tries, {YIELD}
  br i1 %long, label %give, label %end
give:
  %function = load ptr, ptr @yield
  %none = icmp eq ptr %function, null
  br i1 %none, label %end, label %call
call:
  %ignored = call i32 %function()
  br label %end
end:
  ret void
}}

define internal i1 @barrier(ptr %state, i64 %threads, i64 %number) {{
  %alone = icmp eq i64 %threads, 1
  br i1 %alone, label %met, label %meet
meet:
  %flag = getelementptr i64, ptr %state, i64 {FAILED}
  %target = mul i64 %threads, %number
  %before = atomicrmw add ptr %state, i64 1 acq_rel
  br label %look
look:
  %tries = phi i64 [ 0, %meet ], [ %more, %again ]
  %count = load atomic i64, ptr %state acquire, align 8
  %there = icmp uge i64 %count, %target
  br i1 %there, label %met, label %check
check:
  %failed = load atomic i64, ptr %flag acquire, align 8
  %bad = icmp ne i64 %failed, 0
  br i1 %bad, label %left, label %again
again:
  %more = add i64 %tries, 1
  call void @wait(i64 %tries)
  br label %look
met:
  ret i1 true
left:
  ret i1 false
}}

; the calls of a state's table: 0, or 1 + the number of the call that failed
define i64 @calls(i64 %thread, i64 %threads, ptr %state) {{
entry:
  %flag = getelementptr i64, ptr %state, i64 {FAILED}
  %table_at = getelementptr i64, ptr %state, i64 {TABLE}
  %table = load ptr, ptr %table_at
  %count_at = getelementptr i64, ptr %state, i64 {COUNT}
  %count = load i64, ptr %count_at
  %first = icmp eq i64 %thread, 0
  %next = add i64 %thread, 1
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %following, %done ]
  %following = add i64 %i, 1
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %end
one:
  %offset = mul i64 %i, {_LINE}
  %call = getelementptr i64, ptr %table, i64 %offset
  %barrier_at = getelementptr i64, ptr %call, i64 5
  %barrier = load i64, ptr %barrier_at
  %meets = icmp ne i64 %barrier, 0
  br i1 %meets, label %meet, label %go
meet:
  %met = call i1 @barrier(ptr %state, i64 %threads, i64 %barrier)
  br i1 %met, label %go, label %end
go:
  %start_at = getelementptr i64, ptr %call, i64 2
  %start = load i64, ptr %start_at
  %stop_at = getelementptr i64, ptr %call, i64 3
  %stop = load i64, ptr %stop_at
  %cut_at = getelementptr i64, ptr %call, i64 4
  %cut = load i64, ptr %cut_at
  %whole = icmp eq i64 %cut, 0
  br i1 %whole, label %alone, label %part
alone:
  br i1 %first, label %do, label %done
part:
  %rows = sub i64 %stop, %start
  %low = mul i64 %rows, %thread
  %skipped = udiv i64 %low, %threads
  %mine = add i64 %start, %skipped
  %high = mul i64 %rows, %next
  %passed = udiv i64 %high, %threads
  %last = add i64 %start, %passed
  br label %do
do:
  %from = phi i64 [ %start, %alone ], [ %mine, %part ]
  %to = phi i64 [ %stop, %alone ], [ %last, %part ]
  %function = load ptr, ptr %call
  %words_at = getelementptr i64, ptr %call, i64 1
  %words = load ptr, ptr %words_at
  %status = call i32 %function(ptr %words, i64 %from, i64 %to)
  %ok = icmp eq i32 %status, 0
  %none = icmp eq i32 %status, {RETURNED_NONE}
  %fine = or i1 %ok, %none
  br i1 %fine, label %done, label %failed
done:
  br label %look
failed:
  %number_at = getelementptr i64, ptr %call, i64 6
  %number = load i64, ptr %number_at
  %shown = add i64 %number, 1
  store atomic i64 %shown, ptr %flag release, align 8
  ret i64 %shown
end:
  ret i64 0
}}

; a worker: run the tasks that arrive, return when none has come for some time
define void @serve(ptr %mailbox, i64 %thread) {{
entry:
  br label %look
look:
  %tries = phi i64 [ 0, %entry ], [ %more, %again ], [ 0, %work ], [ 0, %tired ]
  %value = load atomic i64, ptr %mailbox acquire, align 8
  %is_task = icmp ugt i64 %value, {_AWAKE}
  br i1 %is_task, label %work, label %again
again:
  %more = add i64 %tries, 1
  call void @wait(i64 0)
  %long = icmp ugt i64 %more, {PATIENCE}
  br i1 %long, label %tired, label %look
tired:
  %swap = cmpxchg ptr %mailbox, i64 {_AWAKE}, i64 {_ASLEEP} acq_rel acquire
  %asleep = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %asleep, label %sleep, label %look
sleep:
  ret void
work:
  %task = inttoptr i64 %value to ptr
  %function = load ptr, ptr %task
  %threads_at = getelementptr i64, ptr %task, i64 1
  %threads = load i64, ptr %threads_at
  %state_at = getelementptr i64, ptr %task, i64 2
  %state = load ptr, ptr %state_at
  store atomic i64 {_AWAKE}, ptr %mailbox release, align 8
  %result = call i64 %function(i64 %thread, i64 %threads, ptr %state)
  %finished = getelementptr i64, ptr %state, i64 {FINISHED}
  %others = atomicrmw add ptr %finished, i64 1 acq_rel
  br label %look
}}

; the caller: post a task to every worker; a set of those that must be woken, and their mailbox is filled already
define i64 @post(ptr %task, ptr %mailboxes) {{
entry:
  %threads_at = getelementptr i64, ptr %task, i64 1
  %threads = load i64, ptr %threads_at
  %state_at = getelementptr i64, ptr %task, i64 2
  %state = load ptr, ptr %state_at
  %failed = getelementptr i64, ptr %state, i64 {FAILED}
  %finished = getelementptr i64, ptr %state, i64 {FINISHED}
  store atomic i64 0, ptr %state release, align 8
  store atomic i64 0, ptr %failed release, align 8
  store atomic i64 0, ptr %finished release, align 8
  %word = ptrtoint ptr %task to i64
  br label %each
each:
  %thread = phi i64 [ 1, %entry ], [ %next, %posted ]
  %wake = phi i64 [ 0, %entry ], [ %woken, %posted ]
  %more = icmp ult i64 %thread, %threads
  br i1 %more, label %one, label %end
one:
  %offset = mul i64 %thread, {_LINE}
  %mailbox = getelementptr i64, ptr %mailboxes, i64 %offset
  %swap = cmpxchg ptr %mailbox, i64 {_AWAKE}, i64 %word acq_rel acquire
  %awake = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %awake, label %posted, label %asleep
asleep:
  store atomic i64 %word, ptr %mailbox release, align 8
  br label %posted
posted:
  %bit = shl i64 1, %thread
  %needed = select i1 %awake, i64 0, i64 %bit
  %woken = or i64 %wake, %needed
  %next = add i64 %thread, 1
  br label %each
end:
  ret i64 %wake
}}

; the caller's own part, then wait for the others; 0, or 1 + the index of the call that failed
define i64 @join(ptr %task) {{
entry:
  %function = load ptr, ptr %task
  %threads_at = getelementptr i64, ptr %task, i64 1
  %threads = load i64, ptr %threads_at
  %state_at = getelementptr i64, ptr %task, i64 2
  %state = load ptr, ptr %state_at
  %failed_at = getelementptr i64, ptr %state, i64 {FAILED}
  %finished = getelementptr i64, ptr %state, i64 {FINISHED}
  %workers = sub i64 %threads, 1
  %mine = call i64 %function(i64 0, i64 %threads, ptr %state)
  br label %look
look:
  %tries = phi i64 [ 0, %entry ], [ %more, %again ]
  %count = load atomic i64, ptr %finished acquire, align 8
  %done = icmp uge i64 %count, %workers
  br i1 %done, label %end, label %again
again:
  %more = add i64 %tries, 1
  call void @wait(i64 %tries)
  br label %look
end:
  %failed = load atomic i64, ptr %failed_at acquire, align 8
  ret i64 %failed
}}
"""


class Task:
    """What `serve` reads: a function's address, the number of threads, the address of a state with a table of calls."""

    def __init__(self, table: np.ndarray) -> None:
        memory = np.zeros(5 * _LINE, np.int64)
        start = -memory.ctypes.data // 8 % _LINE
        self._state, self._table = memory[start : start + 4 * _LINE], table
        self._state[TABLE], self._state[COUNT] = table.ctypes.data, len(table)
        self._state_address = self._state.ctypes.data
        self.words = np.array([_runtime().calls_address, 1, self._state_address], np.int64)
        self.address = self.words.ctypes.data

    def alone(self) -> int:
        """Run it on this thread: 0, or 1 + the number of the call that failed."""
        failed: int = _runtime().calls(0, 1, self._state_address)
        return failed


class _Team:
    """Workers, one mailbox each (the caller is thread 0, whose mailbox stays unused)."""

    def __init__(self, count: int) -> None:
        self.count = count
        memory = np.zeros((count + 1) * _LINE, np.int64)
        start = -memory.ctypes.data // 8 % _LINE
        self._mailboxes = memory[start : start + count * _LINE]
        self.address = self._mailboxes.ctypes.data
        self.queues: list[SimpleQueue[bool]] = [SimpleQueue() for _ in range(count)]
        for thread in range(1, count):
            arguments = (_runtime().serve, self.queues[thread], self._mailboxes[_LINE * thread :], thread)
            threading.Thread(target=_serve, args=arguments, name=f"minigrad-team-{thread}", daemon=True).start()

    def dismiss(self) -> None:
        """Let the workers end."""
        for queue in self.queues[1:]:
            queue.put(False)


def _serve(serve: Any, queue: SimpleQueue[bool], mailbox: np.ndarray, thread: int) -> None:
    """A worker's life. A worker that is awake still looks into its mailbox when it has been dismissed."""
    while queue.get():
        serve(mailbox.ctypes.data, thread)


class _Runtime:
    """The functions of `_RUNTIME`, machine code. `post` keeps the GIL: it takes less time than giving that up."""

    def __init__(self) -> None:
        word, pointer = ctypes.c_int64, ctypes.c_void_p
        self._engine = engine = machine.load(_RUNTIME)
        if os.name == "posix":
            place = pointer.from_address(engine.get_global_value_address("yield"))
            place.value = ctypes.cast(ctypes.CDLL(None).sched_yield, pointer).value
        self.serve = ctypes.CFUNCTYPE(None, pointer, word)(engine.get_function_address("serve"))
        self.post = ctypes.PYFUNCTYPE(word, pointer, pointer)(engine.get_function_address("post"))
        self.join = ctypes.CFUNCTYPE(word, pointer)(engine.get_function_address("join"))
        self.calls_address = engine.get_function_address("calls")
        self.calls = ctypes.CFUNCTYPE(word, word, word, pointer)(self.calls_address)


_runtime = cache(_Runtime)


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
    runtime = _runtime()
    task.words[1] = count
    wake = runtime.post(task.address, _team.address)
    while wake:
        thread = wake.bit_length() - 1
        _team.queues[thread].put(True)
        wake ^= 1 << thread
    result: int = runtime.join(task.address)
    return result


def run(task: Task) -> int | None:
    """Run a task on all threads: 0, or 1 + the number of the call that failed. None where the team is not to be had:
    the caller then runs it alone."""
    count = _size()
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

    def fill(self, code: Code, words: Sequence[Any], rows: int) -> None:
        if code.memory.size > self._words.nbytes:
            self._words = np.empty(code.memory.size // 8, np.int64)
        code.memory.pack_into(self._words.data, 0, *words)
        self._table[0] = (code.address, self._words.ctypes.data, 0, rows, True, 0, 0, 0)


_one = cache(_One)


def over_rows(kernel: Kernel, rows: int, work: float, *arrays: Any) -> None:
    """Run `kernel(start, stop, *arrays)` over all rows: here, or cut over the team where `work` (nanoseconds of one
    thread, about) pays."""
    code, words = kernel.on(*arrays)
    count = min(_size(), threads.worth(rows, work))
    if _take(count):
        try:
            one = _one()
            one.fill(code, words, rows)
            failed = _together(one.task, count) != 0
        finally:
            _busy.release()
    else:
        failed = code.fails(words, 0, rows)
    if failed:
        kernel.explain(0, rows, *arrays)
