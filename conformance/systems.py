"""What operating systems do differently, for everything that a run of claims needs: pipes, the end of processes, limits
of time, forks.

Elsewhere a name that Windows or macOS lacks stands only behind a test of `sys.platform`: mypy holds that, by
`--platform win32` and `--platform darwin`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import IO, Protocol

if sys.platform == "win32":
    import _winapi
    import msvcrt

    OUT_OF_TIME = None
else:
    OUT_OF_TIME = -signal.SIGPROF
    """The exit code of a process that used its processor time; None where that is not limited."""

_LOOK = 0.002
"""Seconds between two looks at a pipe, where the system cannot wait for one."""


class Process(Protocol):
    """What is asked of a process that may have started others."""

    pid: int

    def terminate(self) -> None: ...


def is_readable(pipe: IO[bytes], seconds: float) -> bool:
    """Wait until something can be read from a pipe, or its other end is closed. False when so much time is over."""
    if sys.platform == "win32":
        handle, deadline = msvcrt.get_osfhandle(pipe.fileno()), time.monotonic() + seconds
        while not _has_come(handle):
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK)
        return True
    else:
        waiting = select.poll()
        waiting.register(pipe, select.POLLIN)
        return bool(waiting.poll(max(seconds, 0.0) * 1000))


if sys.platform == "win32":

    def _has_come(handle: int) -> bool:
        try:
            return _winapi.PeekNamedPipe(handle)[0] != 0
        except OSError:  # closed: a read says so
            return True


def busyness() -> float:
    """How many processes there are for each core that this one may use, averaged over a minute; 1 where they are fewer,
    or the system does not tell. A process takes so many times as long by the clock as it computes."""
    if sys.platform == "win32":
        return 1.0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        return max(os.getloadavg()[0] / cores, 1.0)
    except OSError:
        return 1.0


def end(process: Process) -> None:
    """End a process at once, and its group, where the system has groups."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if sys.platform == "win32":
            process.terminate()
        else:
            os.killpg(process.pid, signal.SIGKILL)


def in_forks(function: Callable[[], None]) -> None:
    """Call a function in each process that is forked from this one from now on."""
    if sys.platform != "win32":
        os.register_at_fork(after_in_child=function)


def tell_where_time_ended() -> None:
    """Write to standard error where every thread stands when `limited_time` is over, before it ends the process."""
    if sys.platform != "win32":
        faulthandler.register(signal.SIGPROF, chain=True)


@contextlib.contextmanager
def limited_time(seconds: float, clock: float) -> Iterator[None]:
    """End this process when the block takes more processor time than `seconds`, or longer than `clock`. On Windows
    the clock alone counts."""
    faulthandler.dump_traceback_later(clock, exit=True)
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        if sys.platform != "win32":
            signal.setitimer(signal.ITIMER_PROF, 0.0)
        faulthandler.cancel_dump_traceback_later()
