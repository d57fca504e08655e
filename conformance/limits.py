"""What a process that runs foreign code may use of the machine: the system enforces it from the moment it is set.

Every limit is of one process, and its children inherit it. What all of them take together is `conformance.keeper`'s.
"""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

if sys.platform != "win32":  # which has no such limits
    import resource

GIB = 2**30


@dataclass(frozen=True)
class Limits:
    """memory: bytes that a process may allocate beyond what it has already, and bytes in memory that a subject and its
    children may have together. processes: how many it may have, itself included; in the sandbox the system refuses
    beyond twice as many, threads included. files: open descriptors of a process. file_size: bytes of every file that
    it writes, its output among them. libraries: bytes of addresses, beyond `memory`, for what is loaded later (PyTorch
    with CUDA takes 8 GiB)."""

    memory: int = 4 * GIB
    processes: int = 64
    files: int = 1024
    file_size: int = GIB // 4
    libraries: int = 12 * GIB


DEFAULT = Limits()


def limit(limits: Limits = DEFAULT) -> None:
    """Set the limits of this process. A limit that the system lacks is left out: `conformance.sandbox` tries each."""
    if sys.platform == "win32":
        return
    data = _of_this_process(5)
    _set("RLIMIT_CORE", 0)
    _set("RLIMIT_NOFILE", limits.files)
    _set("RLIMIT_FSIZE", limits.file_size)
    if sys.platform == "linux":  # elsewhere memory that is only reserved counts, and processes reserve a lot
        _set("RLIMIT_DATA", data + limits.memory)


def limit_processes(most: int) -> None:
    """Let this process's user have so many processes and threads more than there are now. The administrator's are not
    limited by the system."""
    if sys.platform == "linux":
        _set("RLIMIT_NPROC", _tasks_of_user(os.getuid()) + most)


def limit_address_space(size: int) -> None:
    """Let this process map so many bytes more, memory that several processes share among them. CUDA reserves addresses
    without bound, so this is for processes that do not use it."""
    if sys.platform == "linux":
        _set("RLIMIT_AS", _of_this_process(0) + size)


def limit_processor_time(seconds: float) -> None:
    """End this process when it has used so much processor time, all in all."""
    if sys.platform != "win32":
        _set("RLIMIT_CPU", int(seconds) + 1)


def _set(name: str, value: int) -> None:
    """Lower a limit; what is lower already stays."""
    if sys.platform != "win32":
        kind = getattr(resource, name)
        given = [old for old in resource.getrlimit(kind) if old != resource.RLIM_INFINITY]
        value = min([value, *given])
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (value, value))


def _of_this_process(field: int) -> int:
    """Bytes that this process has mapped (field 0), or has for data (field 5); 0 where the system does not tell."""
    if sys.platform == "win32":
        return 0
    try:
        pages = Path("/proc/self/statm").read_text().split()[field]
    except (OSError, IndexError):
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _tasks_of_user(user: int) -> int:
    """How many processes and threads the user has."""
    count = 0
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_uid == user:
                count += len(os.listdir(folder / "task"))
    return max(count, 1)
