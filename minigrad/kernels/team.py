"""The threads that run a segment of a plan together (see `minigrad.kernels.native`), and how they meet.

Every worker is a Python thread that sleeps on a queue and holds no GIL while it works. Having run its part it stays
awake for `PATIENCE`, so that the next segment, microseconds later, finds it there; then it sleeps again, so that it
never starves the BLAS library's threads, torch's, or another process. Waiting threads pause, then give up their core.

A worker's mailbox is one word: ASLEEP, AWAKE, or the address of a task (function, threads, state). A state is three
words, each on a cache line of its own: how many have arrived at barriers, who failed, how many workers have finished.
"""

from __future__ import annotations

import ctypes
import os
import platform
import threading
from functools import cache
from queue import SimpleQueue
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from minigrad.kernels import threads

PATIENCE = 2_000  # pauses that a worker stays awake: about 50 us
YIELD = 500  # pauses after which a thread at a barrier lets others have its core
ARRIVED, FAILED, FINISHED = 0, 8, 16  # words of a state
_ASLEEP, _AWAKE = 0, 1
_LINE = 8  # words of a cache line

_PAUSES = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "AMD64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "arm64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
}
_DECLARED_PAUSE, _PAUSE = _PAUSES.get(platform.machine(), ("", ""))


def _give_way() -> str:
    """The call that gives the core to another thread, by address: a symbol may lie too far away for the code model."""
    if os.name != "posix":
        return ""
    address = ctypes.cast(ctypes.CDLL(None).sched_yield, ctypes.c_void_p).value
    return f"call i32 inttoptr (i64 {address} to ptr)()"


DECLARATIONS = f"""
{_DECLARED_PAUSE}

define internal void @wait(i64 %tries) {{
  {_PAUSE}
  %long = icmp ugt i64 %tries, {YIELD}
  br i1 %long, label %give, label %end
give:
  {_give_way()}
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
"""

_RUNTIME = (
    DECLARATIONS
    + f"""
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
)


def load(text: str) -> Any:
    """An engine that holds the compiled functions of an LLVM module."""
    module = llvm.parse_assembly(text)
    module.verify()
    engine = llvm.create_mcjit_compiler(module, _machine())
    engine.finalize_object()
    return engine


def _machine() -> Any:
    """Code generation with little optimisation: there is nothing to optimise in a list of calls."""
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), opt=1, jit=True, codemodel="jitdefault"
    )


class Task:
    """What `serve` reads: a function's address, the number of threads, the state's address."""

    def __init__(self, function: int) -> None:
        memory = np.zeros(4 * _LINE, np.int64)
        start = -memory.ctypes.data // 8 % _LINE
        self._state = memory[start : start + 3 * _LINE]
        self.state_address = self._state.ctypes.data
        self.words = np.array([function, 1, self.state_address], np.int64)
        self.address = self.words.ctypes.data


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
            mailbox = self.address + 8 * _LINE * thread
            arguments = (_runtime()[1], self.queues[thread], mailbox, thread)
            threading.Thread(target=_serve, args=arguments, name=f"minigrad-team-{thread}", daemon=True).start()

    def dismiss(self) -> None:
        """Let the workers end."""
        for queue in self.queues[1:]:
            queue.put(False)


def _serve(serve: Any, queue: SimpleQueue[bool], mailbox: int, thread: int) -> None:
    while queue.get():
        serve(mailbox, thread)


@cache
def _runtime() -> tuple[Any, Any, Any, Any]:
    """(engine, serve, post, join); only whoever holds `_busy` asks for it, so that there is one engine."""
    engine = load(_RUNTIME)
    word, pointer = ctypes.c_int64, ctypes.c_void_p
    serve = ctypes.CFUNCTYPE(None, pointer, word)(engine.get_function_address("serve"))
    post = ctypes.PYFUNCTYPE(word, pointer, pointer)(engine.get_function_address("post"))
    join = ctypes.CFUNCTYPE(word, pointer)(engine.get_function_address("join"))
    return engine, serve, post, join


_team: _Team | None = None
_busy = threading.Lock()


def _forget() -> None:
    """In a forked child the parent's threads do not exist: start anew."""
    global _team, _busy
    _team, _busy = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def run(task: Task) -> int | None:
    """Run a task on all threads: 0, or 1 + the index of the call that failed. None where there is one thread only,
    or where another Python thread has the team: the caller then runs it alone."""
    global _team
    count = min(threads.get_num_threads(), threads.available())
    if count < 2 or os.name != "posix" or not _busy.acquire(blocking=False):
        return None
    try:
        if _team is None or _team.count != count:
            if _team is not None:
                _team.dismiss()
            _team = _Team(count)
        _, _, post, join = _runtime()
        task.words[1] = count
        wake = post(task.address, _team.address)
        while wake:
            thread = wake.bit_length() - 1
            _team.queues[thread].put(True)
            wake ^= 1 << thread
        result: int = join(task.address)
        return result
    finally:
        _busy.release()
