"""The sandbox: `enter` shuts the process in that calls it, with all that it starts, and there is no way out again.

A process in the sandbox cannot use the network, writes into one scratch folder only, and neither sees nor signals nor
traces a process outside. Its memory, processes, open files and the size of what it writes are limited. The means are
Linux's: Landlock for files and signals, a seccomp filter for system calls, no privileges, and limits.

    child = os.fork()
    if not child:
        sandbox.enter(scratch)     # raises SandboxError where a promise would not be kept
        ...                        # code that nobody trusts

Nothing is believed: when everything is set, `enter` tries to break each promise, and refuses to go on where it can.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from conformance.limits import DEFAULT, Limits, limit, limit_address_space

PROMISES = {
    "network": "it reaches no network, and no other program's socket",
    "writes": "it changes no file outside of its scratch folder",
    "others": "it reads nothing of other processes",
    "signals": "it sends no signal to other processes",
    "ptrace": "it traces no other process, and reads no other process's memory",
    "memory": "its processes allocate no more memory than they may",
    "processes": "it has no more processes and threads than it may",
}
"""What `enter` promises: the name of each promise, and what it says of the process."""
_is_entered = False


def is_entered() -> bool:
    """Whether this process has entered the sandbox, or was forked from one that had."""
    return _is_entered


class SandboxError(RuntimeError):
    """The sandbox cannot be entered, or this machine does not keep one of its promises. The message is a sentence."""


def enter(
    scratch: str | os.PathLike[str],
    limits: Limits = DEFAULT,
    *,
    promised: Collection[str] = tuple(PROMISES),
    keep: Iterable[int] = (0, 1, 2),
    readable: Sequence[str | os.PathLike[str]] | None = None,
) -> None:
    """Shut this process in for good. Call it before the process has a second thread.

    scratch: the one folder that it may write into; its temporary files go there. limits: see `Limits`. keep: the open
    descriptors that stay open. promised: the promises that must hold (see PROMISES). readable: where given, only these
    files and folders can be read, beside Python's, the system's and what `sys.path` holds; else all files that the user
    may read. Raises SandboxError; the process may then be shut in by halves, and should end.
    """
    unknown = sorted(set(promised) - set(PROMISES))
    if unknown:
        raise SandboxError(f"there is no promise {unknown[0]!r}; the promises are {', '.join(PROMISES)}")
    kept = held(scratch, limits, keep=keep, readable=readable)
    broken = [f"{name} ({why})" for name, why in kept.items() if why and name in promised]
    if broken:
        raise SandboxError(f"the sandbox does not hold on this machine: {'; '.join(broken)}")


def held(
    scratch: str | os.PathLike[str],
    limits: Limits = DEFAULT,
    *,
    keep: Iterable[int] = (0, 1, 2),
    readable: Sequence[str | os.PathLike[str]] | None = None,
) -> dict[str, str]:
    """Enter the sandbox, and say of each promise why it does not hold; nothing, where it does. See `enter`."""
    needs = "the sandbox needs Linux on x86-64 or ARM; without it, foreign code has your rights"
    if sys.platform != "linux":
        raise SandboxError(needs)
    from conformance.sandbox import landlock, privileges, seccomp, trials

    if not seccomp.is_known():
        raise SandboxError(needs)
    if threading.active_count() > 1 or privileges.thread_count() > 1:
        raise SandboxError("the sandbox must be entered before a process has a second thread")
    folder = Path(scratch).resolve()
    if not folder.is_dir():
        raise SandboxError(f"the sandbox's scratch folder {folder} is none")
    global _is_entered
    _is_entered = True
    _close_all_but(keep)
    os.environ["TMPDIR"] = str(folder)
    tempfile.tempdir = None
    reasons = dict.fromkeys(PROMISES, "")
    limit(limits)
    limit_address_space(limits.memory + limits.libraries)
    # The keeper ends who has more than the limit. Where the system refused at the same number, the keeper saw no
    # excess, and a fork bomb tried again on all cores until its time was over.
    privileges.leave(folder, 2 * limits.processes)
    missing = landlock.restrict(folder, readable)
    seccomp.restrict(own_signals_only=not landlock.guards_signals())
    for name in PROMISES:
        reasons[name] = trials.broken(name, folder, limits)
        if reasons[name] and missing and name in ("writes", "others"):
            reasons[name] += f": {missing}"
    return reasons


def _close_all_but(keep: Iterable[int]) -> None:
    first = 0
    for descriptor in sorted({*keep}):
        if first < descriptor:  # of nothing, (0, 0), Python would close everything
            os.closerange(first, descriptor)
        first = descriptor + 1
    if sys.platform != "win32":
        os.closerange(first, max(first, os.sysconf("SC_OPEN_MAX")))
