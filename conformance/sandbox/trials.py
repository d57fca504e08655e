"""Trials of the sandbox's promises, by a process that has entered it: each does what must not be possible."""

from __future__ import annotations

import mmap
import os
import resource
import secrets
import socket
from collections.abc import Callable
from pathlib import Path

from conformance.limits import Limits
from conformance.sandbox.system import syscall

_SEIZE = 0x4206  # a way to begin tracing that does not stop the other process
_MARGIN = 2**26  # bytes: the stack counts with what the process has already
_PTRACE = {"x86_64": 101, "aarch64": 117}


def broken(promise: str, scratch: Path, limits: Limits) -> str:
    """Why a promise does not hold; nothing, where it does."""
    return _TRIALS[promise](scratch, limits)


def _network(scratch: Path, limits: Limits) -> str:
    for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK):
        try:
            socket.socket(family).close()
        except OSError:
            continue
        return f"a socket of the kind {family.name} could be made"
    return ""


def _writes(scratch: Path, limits: Limits) -> str:
    beside = scratch.parent / f".{secrets.token_hex(8)}"
    try:
        os.close(os.open(beside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError:
        pass
    else:
        beside.unlink(missing_ok=True)
        return f"a file could be made in {scratch.parent}"
    try:
        os.chmod(__file__, os.stat(__file__).st_mode)
    except OSError:
        return ""
    return "the mode of a file could be changed"


def _others(scratch: Path, limits: Limits) -> str:
    for name in ("cmdline", "environ", "maps"):
        try:
            Path(f"/proc/{_other()}/{name}").read_bytes()
        except OSError:
            continue
        return "another process's command line, environment or memory map could be read"
    return ""


def _signals(scratch: Path, limits: Limits) -> str:
    try:
        os.kill(_other(), 0)
    except OSError:
        return ""
    return "a signal could be sent to another process"


def _ptrace(scratch: Path, limits: Limits) -> str:
    try:
        syscall(_PTRACE[os.uname().machine], _SEIZE, _other(), 0, 0)
    except OSError:
        return ""
    return "another process could be traced"


def _memory(scratch: Path, limits: Limits) -> str:
    own, shared = limits.memory, limits.memory + limits.libraries
    for kind, size in ((mmap.MAP_PRIVATE, own), (mmap.MAP_SHARED, shared)):
        try:
            mmap.mmap(-1, size + _MARGIN, kind | mmap.MAP_ANONYMOUS).close()
        except (OSError, MemoryError):
            continue
        return f"{size:,} bytes and more could be allocated"
    return ""


def _processes(scratch: Path, limits: Limits) -> str:
    """With room for no process more, none can be started."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    resource.setrlimit(resource.RLIMIT_NPROC, (0, hard))
    try:
        child = os.fork()
    except OSError:
        return ""
    else:
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
    return "the system does not limit this user's processes"


def _other() -> int:
    """A process that is not ours: the one that started this one, or the system's first."""
    return os.getppid() or 1


_TRIALS: dict[str, Callable[[Path, Limits], str]] = {
    "network": _network,
    "writes": _writes,
    "others": _others,
    "signals": _signals,
    "ptrace": _ptrace,
    "memory": _memory,
    "processes": _processes,
}
