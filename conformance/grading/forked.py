"""A fork of the warm process that hosts a submission (`Forked`), and what it is forbidden to call (`forbid`).

The forked child is a host as every run of the suite has one (`conformance.host`), with the same questions, limits and
pipes.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import IO, Any

from conformance.forking import become_host
from conformance.limits import GIB, Limits

LIMITS = Limits(memory=2 * GIB, processes=16)
"""What a submission may use of the machine, less than what stands alone: one that takes all it gets costs the others
time, and a fork of a warm process has much to copy."""


class Forked:
    """A fork of this process that hosts a submission; it has what a `subprocess.Popen` has.

    log: takes what it writes to standard error. scratch: the sandbox's folder; "" for no sandbox. folder: where it
    runs; around it lies nothing else, so that it may read there. before: called in the fork before anything of the
    submission is loaded.
    """

    def __init__(self, log: IO[bytes], scratch: str, folder: str, before: Callable[[], None]) -> None:
        self.pid: int
        if sys.platform == "win32":
            raise OSError("Windows cannot fork")
        questions, answers = os.pipe(), os.pipe()
        self.pid = os.fork()
        if not self.pid:
            become_host((questions[0], answers[1], log.fileno()), lambda: _answer(scratch, folder, before))
        os.close(questions[0])
        os.close(answers[1])
        self.stdin: IO[bytes] | None = os.fdopen(questions[1], "wb")
        self.stdout: IO[bytes] | None = os.fdopen(answers[0], "rb")
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        if sys.platform == "win32":
            raise OSError("Windows cannot fork")
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            pid, status = os.waitpid(self.pid, 0 if deadline is None else os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
            elif deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("fork", timeout or 0.0)
            else:
                time.sleep(0.001)
        return self.returncode

    def terminate(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGTERM)


def _answer(scratch: str, folder: str, before: Callable[[], None]) -> None:
    """Be the host of a submission."""
    from conformance.host import main as answer_questions

    os.chdir(folder)
    before()
    answer_questions(scratch, [os.path.dirname(folder)], LIMITS)  # around it, where relative imports are found


def forbid(names: Sequence[str]) -> None:
    """Make the named functions and classes of libraries raise where they are called: the task says to write them.

    A name that is not there is left out: another version of a library may lack it.
    """
    for name in names:
        module, _, last = name.rpartition(".")
        with contextlib.suppress(ImportError, AttributeError):
            holder = importlib.import_module(module)
            found = getattr(holder, last)
            if isinstance(found, type):
                found.__init__ = _refusal(name)  # type: ignore[misc]
            else:
                setattr(holder, last, _refusal(name))


def _refusal(name: str) -> Callable[..., None]:
    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(f"the task forbids {name}: write it yourself")

    return refuse
