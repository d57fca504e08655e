"""What the threads of a team run, machine code: calls of a table, barriers, mailboxes, and each thread's share.

Threads do not get equal parts of a kernel but parts by their speed: another process, a slower kind of core or a busy
neighbour on the same one takes up to half of a core for seconds, and all would wait for it. How long each thread takes
for what it does is measured as it goes, and shares follow within milliseconds. Results do not depend on them.

A worker's mailbox is one word: ASLEEP, AWAKE, or the address of a task (function, threads, state); behind it lies the
bell that wakes the worker. The caller's own mailbox says whether the team is in use. A state has words on cache lines
of their own: how many have arrived at barriers, who failed, how many workers have finished, and what there is to do: a
table of calls, one cache line each (see `CALL`), their number, and where the shares are.

A task is one call from Python, which posts it, wakes workers, does the caller's part and waits for the others: Python
runs handlers of signals between calls only, so that no exception of theirs can leave a task half done.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import weakref
from functools import cache
from typing import Any

import numpy as np

from minigrad.kernels import machine

PATIENCE = 2_000  # pauses that a worker stays awake: 30 to 50 us
YIELD = 500  # pauses after which a thread at a barrier lets others have its core
ARRIVED, FAILED, FINISHED, TABLE, COUNT, SHARES = 0, 8, 16, 24, 25, 26  # words of a state
# A call of the table: `function(words, start, stop)`, its range cut over all threads where `cut`, its work (about ns),
# is not 0, else done by the first one; all meet before it where `barrier` is not 0 but the number of a barrier;
# `number` tells which call failed; thread t reads words that lie t * `apart` bytes behind the first one's.
CALL = np.dtype(
    [(name, np.int64) for name in ("function", "words", "start", "stop", "cut", "barrier", "number", "apart")]
)
WHOLE = 1 << 16  # all shares together
SELDOM = 8  # barriers from one look at the threads' speed to the next: it takes their lines out of their caches
WINDOW = 500_000  # work (about ns) after which shares follow the threads' speed,
FOLLOWED = 0.25  # by this part of the way,
MOST = 0.25  # where that is not further than this part of a share: a thread that lost its core once is not slow
_ASLEEP, _AWAKE = 0, 1
BELL, DISMISSED = 1, 2  # words behind a mailbox
IN_USE = -1  # the team is another thread's
LINE = 8  # words of a cache line

_X86 = platform.machine() in ("x86_64", "AMD64")
_ARM = platform.machine() in ("arm64", "aarch64")
_PAUSE = "call void @llvm.x86.sse2.pause()" if _X86 else "call void @llvm.aarch64.hint(i32 1)" if _ARM else ""
_GIVE = "call i32 @sched_yield()" if os.name == "posix" else "add i32 0, 0"
# Programs may not read ARM's cycles, and a function of the system's tells the time; without one shares stay equal.
_NOW = "@llvm.readcyclecounter()" if _X86 else "@mach_absolute_time()" if sys.platform == "darwin" else ""


def _read(name: str, base: str, word: int | str, kind: str = "i64") -> str:
    """Text that reads a word behind `base`, or the field of a call that has this name."""
    at = word if isinstance(word, int) else CALL.names.index(word)  # type: ignore[union-attr]
    return f"%{name}_at = getelementptr i64, ptr %{base}, i64 {at}\n  %{name} = load {kind}, ptr %{name}_at"


_RUNTIME = f"""
declare void @llvm.x86.sse2.pause()
declare void @llvm.aarch64.hint(i32)
declare i64 @llvm.readcyclecounter()
declare i64 @mach_absolute_time()
declare i32 @sched_yield()
declare void @minigrad_rings(ptr)

define internal i64 @now() {{
  %time = {f"call i64 {_NOW}" if _NOW else "add i64 0, 0"}
  ret i64 %time
}}

define internal void @wait(i64 %tries) {{
  {_PAUSE}
  %long = icmp ugt i64 %tries, {YIELD}
  br i1 %long, label %give, label %end
give:
  %ignored = {_GIVE}
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

; Shares of the threads, as the first row of each one's range if there were {WHOLE} rows, and {WHOLE}: a list for the
; calls behind even barriers, one for those behind odd ones, and the last one made. Then a line for each thread: the
; time that its parts took, the work that they were, and both when shares were made. Where a thread got no row, whose
; speed is not known then, shares go towards equal ones until it gets some. The first thread makes the list
; for the calls behind the next barrier when all have met at `barrier`, and what was there is of no use any more.
define internal void @adjust(ptr %shares, i64 %threads, i64 %barrier) {{
entry:
  %room = add i64 %threads, {LINE}
  %stride = and i64 %room, {-LINE}
  %odd = and i64 %barrier, 1
  %even = xor i64 %odd, 1
  %at_old = mul i64 %odd, %stride
  %at_new = mul i64 %even, %stride
  %at_last = mul i64 2, %stride
  %at_lines = mul i64 3, %stride
  %old = getelementptr i64, ptr %shares, i64 %at_old
  %new = getelementptr i64, ptr %shares, i64 %at_new
  %last = getelementptr i64, ptr %shares, i64 %at_last
  %lines = getelementptr i64, ptr %shares, i64 %at_lines
  %turn = urem i64 %barrier, {SELDOM}
  %now = icmp eq i64 %turn, 0
  br i1 %now, label %measure, label %keep
measure:
  %t = phi i64 [ 0, %entry ], [ %t_next, %measure ]
  %total = phi double [ 0.0, %entry ], [ %total_next, %measure ]
  %done = phi double [ 0.0, %entry ], [ %done_next, %measure ]
  %all = phi i1 [ true, %entry ], [ %all_next, %measure ]
  %t_line = mul i64 %t, {LINE}
  %line = getelementptr i64, ptr %lines, i64 %t_line
  %did_at = getelementptr i64, ptr %line, i64 1
  %time_then_at = getelementptr i64, ptr %line, i64 2
  %did_then_at = getelementptr i64, ptr %line, i64 3
  %speed_at = getelementptr i64, ptr %line, i64 4
  %time = load atomic i64, ptr %line monotonic, align 8
  %did = load atomic i64, ptr %did_at monotonic, align 8
  %time_then = load i64, ptr %time_then_at
  %did_then = load i64, ptr %did_then_at
  %took = sub i64 %time, %time_then
  %work = sub i64 %did, %did_then
  %took_any = icmp sgt i64 %took, 0
  %work_any = icmp sgt i64 %work, 0
  %both = and i1 %took_any, %work_any
  %all_next = and i1 %all, %both
  %took_real = sitofp i64 %took to double
  %work_real = sitofp i64 %work to double
  %speed = fdiv double %work_real, %took_real
  store double %speed, ptr %speed_at
  %total_next = fadd double %total, %speed
  %done_next = fadd double %done, %work_real
  %t_next = add i64 %t, 1
  %t_more = icmp ult i64 %t_next, %threads
  br i1 %t_more, label %measure, label %measured
measured:
  %long = fcmp ogt double %done_next, {float(WINDOW)}
  %count = uitofp i64 %threads to double
  %fair = fdiv double {float(WHOLE)}, %count
  br i1 %long, label %follow, label %keep
keep:
  %k = phi i64 [ 0, %entry ], [ 0, %measured ], [ %k_next, %keep ]
  %kept_at = getelementptr i64, ptr %old, i64 %k
  %copy_at = getelementptr i64, ptr %new, i64 %k
  %kept = load i64, ptr %kept_at
  store i64 %kept, ptr %copy_at
  %k_next = add i64 %k, 1
  %k_more = icmp ule i64 %k_next, %threads
  br i1 %k_more, label %keep, label %end
follow:
  %f = phi i64 [ 0, %measured ], [ %f_next, %follow ]
  %sum = phi double [ 0.0, %measured ], [ %sum_next, %follow ]
  %f_next = add i64 %f, 1
  %low_at = getelementptr i64, ptr %old, i64 %f
  %high_at = getelementptr i64, ptr %old, i64 %f_next
  %low = load i64, ptr %low_at
  %high = load i64, ptr %high_at
  %share_word = sub i64 %high, %low
  %share = sitofp i64 %share_word to double
  %f_line = mul i64 %f, {LINE}
  %of = getelementptr i64, ptr %lines, i64 %f_line
  %its_at = getelementptr i64, ptr %of, i64 4
  %its = load double, ptr %its_at
  %part = fdiv double %its, %total_next
  %fast = fmul double %part, {float(WHOLE)}
  %target = select i1 %all_next, double %fast, double %fair
  %way = fsub double %target, %share
  %most = fmul double %share, {MOST}
  %least = fneg double %most
  %is_high = fcmp ogt double %way, %most
  %below = select i1 %is_high, double %most, double %way
  %is_low = fcmp olt double %below, %least
  %within = select i1 %is_low, double %least, double %below
  %step = fmul double %within, {FOLLOWED}
  %moved = fadd double %share, %step
  store double %moved, ptr %its_at
  %sum_next = fadd double %sum, %moved
  %f_more = icmp ult i64 %f_next, %threads
  br i1 %f_more, label %follow, label %write
write:
  store i64 0, ptr %new
  store i64 0, ptr %last
  %factor = fdiv double {float(WHOLE)}, %sum_next
  br label %place
place:
  %p = phi i64 [ 0, %write ], [ %p_next, %place ]
  %reached = phi double [ 0.0, %write ], [ %reached_next, %place ]
  %p_next = add i64 %p, 1
  %p_line = mul i64 %p, {LINE}
  %whose = getelementptr i64, ptr %lines, i64 %p_line
  %moved_at = getelementptr i64, ptr %whose, i64 4
  %its_moved = load double, ptr %moved_at
  %its_part = fmul double %its_moved, %factor
  %reached_next = fadd double %reached, %its_part
  %rounded = fadd double %reached_next, 0.5
  %word = fptosi double %rounded to i64
  %new_at = getelementptr i64, ptr %new, i64 %p_next
  %last_at = getelementptr i64, ptr %last, i64 %p_next
  store i64 %word, ptr %new_at
  store i64 %word, ptr %last_at
  %its_did_at = getelementptr i64, ptr %whose, i64 1
  %its_time_then = getelementptr i64, ptr %whose, i64 2
  %its_did_then = getelementptr i64, ptr %whose, i64 3
  %its_time = load atomic i64, ptr %whose monotonic, align 8
  %its_did = load atomic i64, ptr %its_did_at monotonic, align 8
  store i64 %its_time, ptr %its_time_then
  store i64 %its_did, ptr %its_did_then
  %p_more = icmp ult i64 %p_next, %threads
  br i1 %p_more, label %place, label %end
end:
  ret void
}}

; before a task: the last shares made, after what was measured since, hold for all its calls until others are made
define internal void @resume(ptr %shares, i64 %threads) {{
entry:
  %room = add i64 %threads, {LINE}
  %stride = and i64 %room, {-LINE}
  %at_last = mul i64 2, %stride
  %odd = getelementptr i64, ptr %shares, i64 %stride
  %last = getelementptr i64, ptr %shares, i64 %at_last
  br label %turn
turn:
  %again = phi i1 [ true, %entry ], [ false, %adjust ]
  br label %copy
copy:
  %k = phi i64 [ 0, %turn ], [ %k_next, %copy ]
  %last_at = getelementptr i64, ptr %last, i64 %k
  %even_at = getelementptr i64, ptr %shares, i64 %k
  %odd_at = getelementptr i64, ptr %odd, i64 %k
  %word = load i64, ptr %last_at
  store i64 %word, ptr %even_at
  store i64 %word, ptr %odd_at
  %k_next = add i64 %k, 1
  %more = icmp ule i64 %k_next, %threads
  br i1 %more, label %copy, label %copied
copied:
  br i1 %again, label %adjust, label %end
adjust:
  call void @adjust(ptr %shares, i64 %threads, i64 0)
  br label %turn
end:
  ret void
}}

; the calls of a state's table: 0, or 1 + the number of the call that failed
define i64 @calls(i64 %thread, i64 %threads, ptr %state) {{
entry:
  %flag = getelementptr i64, ptr %state, i64 {FAILED}
  {_read("table", "state", TABLE, "ptr")}
  {_read("count", "state", COUNT)}
  {_read("shares", "state", SHARES, "ptr")}
  %even = icmp eq ptr %shares, null
  %room = add i64 %threads, {LINE}
  %stride = and i64 %room, {-LINE}
  %at_lines = mul i64 3, %stride
  %before_line = mul i64 %thread, {LINE}
  %at_line = add i64 %at_lines, %before_line
  %time_at = getelementptr i64, ptr %shares, i64 %at_line
  %did_at = getelementptr i64, ptr %time_at, i64 1
  %first = icmp eq i64 %thread, 0
  %next = add i64 %thread, 1
  %unequal = xor i1 %even, true
  %adjusts = and i1 %first, %unequal
  br label %look
look:
  %i = phi i64 [ 0, %entry ], [ %following, %done ]
  %odd = phi i64 [ 0, %entry ], [ %odd_now, %done ]
  %following = add i64 %i, 1
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %end
one:
  %offset = mul i64 %i, {LINE}
  %call = getelementptr i64, ptr %table, i64 %offset
  {_read("barrier", "call", "barrier")}
  %meets = icmp ne i64 %barrier, 0
  br i1 %meets, label %meet, label %go
meet:
  %met = call i1 @barrier(ptr %state, i64 %threads, i64 %barrier)
  %odd_here = and i64 %barrier, 1
  br i1 %met, label %look_ahead, label %end
look_ahead:
  br i1 %adjusts, label %adjust, label %go
adjust:
  call void @adjust(ptr %shares, i64 %threads, i64 %barrier)
  br label %go
go:
  %odd_now = phi i64 [ %odd, %one ], [ %odd_here, %look_ahead ], [ %odd_here, %adjust ]
  {_read("start", "call", "start")}
  {_read("stop", "call", "stop")}
  {_read("its_work", "call", "cut")}
  %whole = icmp eq i64 %its_work, 0
  br i1 %whole, label %alone, label %part
alone:
  br i1 %first, label %do, label %done
part:
  %rows = sub i64 %stop, %start
  br i1 %even, label %equal, label %share
equal:
  %low = mul i64 %rows, %thread
  %skipped = udiv i64 %low, %threads
  %high = mul i64 %rows, %next
  %passed = udiv i64 %high, %threads
  br label %cut
share:
  %at_shares = mul i64 %odd_now, %stride
  %list = getelementptr i64, ptr %shares, i64 %at_shares
  %low_at = getelementptr i64, ptr %list, i64 %thread
  %high_at = getelementptr i64, ptr %list, i64 %next
  %low_share = load i64, ptr %low_at
  %high_share = load i64, ptr %high_at
  %low_rows = mul i64 %rows, %low_share
  %high_rows = mul i64 %rows, %high_share
  %low_near = add i64 %low_rows, {WHOLE // 2}
  %high_near = add i64 %high_rows, {WHOLE // 2}
  %skipped_share = udiv i64 %low_near, {WHOLE}
  %passed_share = udiv i64 %high_near, {WHOLE}
  br label %cut
cut:
  %from_row = phi i64 [ %skipped, %equal ], [ %skipped_share, %share ]
  %to_row = phi i64 [ %passed, %equal ], [ %passed_share, %share ]
  %mine = add i64 %start, %from_row
  %last = add i64 %start, %to_row
  %nothing = icmp uge i64 %from_row, %to_row
  br i1 %nothing, label %done, label %do
do:
  %from = phi i64 [ %start, %alone ], [ %mine, %cut ]
  %to = phi i64 [ %stop, %alone ], [ %last, %cut ]
  %function = load ptr, ptr %call
  {_read("words_first", "call", "words", "ptr")}
  {_read("apart", "call", "apart")}
  %behind = mul i64 %apart, %thread
  %words = getelementptr i8, ptr %words_first, i64 %behind
  %begun = call i64 @now()
  %status = call i32 %function(ptr %words, i64 %from, i64 %to)
  %ended = call i64 @now()
  %ok = icmp eq i32 %status, 0
  br i1 %ok, label %well, label %failed
well:
  %unmeasured = or i1 %whole, %even
  br i1 %unmeasured, label %done, label %note
note:
  %all_rows = sub i64 %stop, %start
  %its_rows = sub i64 %to, %from
  %work_rows = mul i64 %its_work, %its_rows
  %work = udiv i64 %work_rows, %all_rows
  %took = sub i64 %ended, %begun
  %time_before = load i64, ptr %time_at
  %did_before = load i64, ptr %did_at
  %time_now = add i64 %time_before, %took
  %did_now = add i64 %did_before, %work
  store atomic i64 %time_now, ptr %time_at monotonic, align 8
  store atomic i64 %did_now, ptr %did_at monotonic, align 8
  br label %done
done:
  br label %look
failed:
  {_read("number", "call", "number")}
  %shown = add i64 %number, 1
  store atomic i64 %shown, ptr %flag release, align 8
  ret i64 %shown
end:
  ret i64 0
}}

; a worker: run the tasks that arrive, return when none has come for `patience` pauses
define void @serve(ptr %mailbox, i64 %thread, i64 %patience) {{
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
  %long = icmp ugt i64 %more, %patience
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
  {_read("threads", "task", 1)}
  {_read("state", "task", 2, "ptr")}
  store atomic i64 {_AWAKE}, ptr %mailbox release, align 8
  %result = call i64 %function(i64 %thread, i64 %threads, ptr %state)
  %finished = getelementptr i64, ptr %state, i64 {FINISHED}
  %others = atomicrmw add ptr %finished, i64 1 acq_rel
  br label %look
}}

; the caller: a task from its first word to its last, on so many threads: post it to every worker, wake those that
; sleep, do the caller's own part, wait for the others. 0, or 1 + the number of the call that failed; {IN_USE}: nothing
; was done
define i64 @together(ptr %task, ptr %mailboxes, i64 %threads, ptr %shares) {{
entry:
  %taken = cmpxchg ptr %mailboxes, i64 0, i64 1 acq_rel acquire
  %ours = extractvalue {{ i64, i1 }} %taken, 1
  br i1 %ours, label %prepare, label %in_use
in_use:
  ret i64 {IN_USE}
prepare:
  %threads_at = getelementptr i64, ptr %task, i64 1
  store i64 %threads, ptr %threads_at
  {_read("state", "task", 2, "ptr")}
  %shares_at = getelementptr i64, ptr %state, i64 {SHARES}
  store ptr %shares, ptr %shares_at
  %failed_at = getelementptr i64, ptr %state, i64 {FAILED}
  %finished = getelementptr i64, ptr %state, i64 {FINISHED}
  store atomic i64 0, ptr %state release, align 8
  store atomic i64 0, ptr %failed_at release, align 8
  store atomic i64 0, ptr %finished release, align 8
  %word = ptrtoint ptr %task to i64
  %even = icmp eq ptr %shares, null
  br i1 %even, label %each, label %resume
resume:
  call void @resume(ptr %shares, i64 %threads)
  br label %each
each:
  %thread = phi i64 [ 1, %prepare ], [ 1, %resume ], [ %next, %posted ]
  %next = add i64 %thread, 1
  %more = icmp ult i64 %thread, %threads
  br i1 %more, label %post, label %own
post:
  %offset = mul i64 %thread, {LINE}
  %mailbox = getelementptr i64, ptr %mailboxes, i64 %offset
  %swap = cmpxchg ptr %mailbox, i64 {_AWAKE}, i64 %word acq_rel acquire
  %awake = extractvalue {{ i64, i1 }} %swap, 1
  br i1 %awake, label %posted, label %asleep
asleep:
  store atomic i64 %word, ptr %mailbox release, align 8
  {_read("bell", "mailbox", BELL, "ptr")}
  call void @minigrad_rings(ptr %bell)
  br label %posted
posted:
  br label %each
own:
  %function = load ptr, ptr %task
  %workers = sub i64 %threads, 1
  %mine = call i64 %function(i64 0, i64 %threads, ptr %state)
  br label %look
look:
  %tries = phi i64 [ 0, %own ], [ %tried, %again ]
  %count = load atomic i64, ptr %finished acquire, align 8
  %done = icmp uge i64 %count, %workers
  br i1 %done, label %end, label %again
again:
  %tried = add i64 %tries, 1
  call void @wait(i64 %tries)
  br label %look
end:
  %failed = load atomic i64, ptr %failed_at acquire, align 8
  store atomic i64 0, ptr %mailboxes release, align 8
  ret i64 %failed
}}
"""


def _python(name: str, result: Any, *arguments: Any) -> Any:
    """A function of Python's C interface that is called without the GIL."""
    return ctypes.CFUNCTYPE(result, *arguments)((name, ctypes.pythonapi))


_new_lock = _python("PyThread_allocate_lock", ctypes.c_void_p)
_acquire_lock = _python("PyThread_acquire_lock", ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
_release_lock = _python("PyThread_release_lock", None, ctypes.c_void_p)
_free_lock = _python("PyThread_free_lock", None, ctypes.c_void_p)


class Bell:
    """What a worker sleeps on and machine code rings: a lock in Python's own portable kind, which needs no GIL."""

    def __init__(self) -> None:
        self.address: int = _new_lock()
        weakref.finalize(self, _free_lock, self.address).atexit = False
        self.wait()

    def wait(self) -> None:
        """Sleep until it rings; return at once where it has rung since the last time."""
        _acquire_lock(self.address, 1)

    def ring(self) -> None:
        _release_lock(self.address)


class Runtime:
    """The functions of `_RUNTIME`, machine code."""

    def __init__(self) -> None:
        word, pointer = ctypes.c_int64, ctypes.c_void_p
        machine.name("minigrad_rings", _release_lock)
        self._engine = engine = machine.load(_RUNTIME)
        self.serve = ctypes.CFUNCTYPE(None, pointer, word, word)(engine.get_function_address("serve"))
        together = engine.get_function_address("together")
        self.together = ctypes.CFUNCTYPE(word, pointer, pointer, word, pointer)(together)
        self.calls_address = engine.get_function_address("calls")
        self.calls = ctypes.CFUNCTYPE(word, word, word, pointer)(self.calls_address)


runtime = cache(Runtime)
