"""A process between the suite and an implementation's process: what the implementation starts ends with it.

`keep` forks. The child goes on; the parent, the keeper, runs nothing foreign. It has every process that the child
leaves behind, also one in a session of its own (Linux calls it a subreaper). It ends them all when the child ends, when
the suite asks for it (SIGTERM), or when the suite is gone. It also looks at how many they are, and what they take
together, and ends them when that is too much. The keeper itself ends as the child ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

from conformance.limits import GIB, Limits

EXCEEDED = 113
"""The exit code after too many processes, or too much memory. The last line of standard error says which."""

_LOOK, _LOOK_CLOSELY = 0.05, 0.01  # seconds between two looks at what one process takes, and what several do
_LIBRARIES = GIB  # bytes of programs and libraries, which a limit of what is allocated does not count


def is_possible() -> bool:
    """Whether this system has what a keeper needs."""
    return sys.platform == "linux" and Path("/proc/self/stat").exists()


def keep(limits: Limits) -> None:
    """Go on in a child of this process, which must have one thread. Where that is not possible, do nothing."""
    if not is_possible():
        return
    from conformance.sandbox.system import SET_CHILD_SUBREAPER, prctl

    suite = os.getppid()
    prctl(SET_CHILD_SUBREAPER, 1)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM})
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return
    with contextlib.suppress(OSError):  # among hundreds of processes it must get its turn; who may not ask, waits
        os.setpriority(os.PRIO_PROCESS, 0, -20)
    try:
        _let_go_of_pipes()
        status = _watch(child, suite, limits)
    except BaseException:
        status = signal.SIGKILL
    _end_all(child)
    _end_like(status)


def _watch(child: int, suite: int, limits: Limits) -> int:
    """Wait for the child's end; returns its status. Whoever else comes to an end meanwhile is forgotten."""
    count = 1
    while True:
        came = signal.sigtimedwait({signal.SIGCHLD, signal.SIGTERM}, _LOOK if count == 1 else _LOOK_CLOSELY)
        if (came is not None and came.si_signo == signal.SIGTERM) or os.getppid() != suite:
            return signal.SIGKILL
        while (ended := _ended()) is not None:
            if ended[0] == child:
                return ended[1]
        processes = _descendants()
        count = len(processes)
        if trouble := _excess(processes, limits):
            _end_all(child)
            os.write(2, f"\n{trouble}\n".encode())
            return EXCEEDED << 8


def _ended() -> tuple[int, int] | None:
    """A child that ended, and its status."""
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None


def _excess(processes: list[int], limits: Limits) -> str:
    """What the processes have too much of, in words; nothing, where they keep the limits."""
    if trouble := _too_many(processes, limits):
        return trouble
    most, taken = limits.memory + _LIBRARIES, 0
    if sum(map(_resident, processes)) <= most:
        return ""
    for process in processes:  # slower: pages that several processes share are counted once
        taken += _share(process)  # this waits while the process forks, so a fork bomb grows meanwhile
        if trouble := _too_many(_descendants(), limits):
            return trouble
    return f"it had {taken / GIB:.1f} GiB in memory, and {most / GIB:.1f} GiB are the most" if taken > most else ""


def _too_many(processes: list[int], limits: Limits) -> str:
    number = len(processes)
    return f"it had {number} processes, and {limits.processes} are the most" if number > limits.processes else ""


def _descendants() -> list[int]:
    """Every process that this one has, and that those have."""
    found, left = [], _children(os.getpid())
    while left:
        found.extend(left)
        left = [child for process in left for child in _children(process)]
    return found


def _children(process: int) -> list[int]:
    try:
        tasks = os.listdir(f"/proc/{process}/task")
        texts = [Path(f"/proc/{process}/task/{task}/children").read_text() for task in tasks]
    except OSError:
        return []
    return [int(child) for text in texts for child in text.split()]


def _resident(process: int) -> int:
    """Bytes that a process has in memory."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def _share(process: int) -> int:
    """Bytes that a process has in memory; of those that it shares, its share."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return _resident(process)
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def _end_all(child: int) -> None:
    """End every process that is left. The child's group ends at once, whatever it starts meanwhile; of those that left
    it all are stopped first, so that none starts another, and then killed."""
    deadline = time.monotonic() + 10.0
    while time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child, signal.SIGKILL)
        stopped: set[int] = set()
        while new := set(_descendants()) - stopped:
            _signal(new, signal.SIGSTOP)
            stopped |= new
        _signal(stopped, signal.SIGKILL)
        while _ended() is not None:
            pass
        if not _descendants():
            return
        time.sleep(0.001)


def _signal(processes: set[int], number: int) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)


def _let_go_of_pipes() -> None:
    """The suite must see the end of the pipes when the child is gone."""
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(null, descriptor)
    os.close(null)


def _end_like(status: int) -> None:
    """End this process as its child ended: with its exit code, or by the signal that killed it."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    os._exit(os.WEXITSTATUS(status))
