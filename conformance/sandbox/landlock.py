"""Files and signals: Linux's Landlock (https://docs.kernel.org/userspace-api/landlock.html), from Linux 5.13 on.

A process gives itself a list of what it may do below which folders; everything else that Landlock knows is refused.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from conformance.sandbox.system import syscall

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # system calls, the same on every processor
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL  # what can be allowed of what is no folder
_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # version -> how many rights over files it knows
_TCP, _SCOPES = 0b11, 0b11  # binding and connecting; abstract sockets and signals
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/sys", "/opt", "/nix", "/run/current-system")


class _Ruleset(ctypes.Structure):
    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64)]


class _Rule(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def version() -> int:
    """Landlock's version; 0 where the system has none, or does not let us use it."""
    try:
        return syscall(_CREATE, None, 0, 1)
    except OSError:
        return 0


def guards_signals() -> bool:
    """Whether `restrict` keeps signals in: from version 6 on, Linux 6.12."""
    return version() >= 6


def restrict(scratch: Path, readable: Sequence[str | os.PathLike[str]] | None) -> str:
    """Allow this process to write below `scratch`, and to read below `readable` (None: everything but what other
    processes are). Returns why that is not possible, where it is not."""
    known = version()
    if not known:
        return "this system has no Landlock (Linux has it from 5.13 on, unless it is switched off)"
    handled = (1 << _RIGHTS.get(known, 16)) - 1
    attributes = _Ruleset(handled, _TCP if known >= 4 else 0, _SCOPES if known >= 6 else 0)
    size = 24 if known >= 6 else 16 if known >= 4 else 8
    ruleset = syscall(_CREATE, ctypes.byref(attributes), size, 0)
    try:
        for path in _to_read(readable):
            _allow(ruleset, path, _READ & handled)
        for name in _DEVICES:
            _allow(ruleset, f"/dev/{name}", (_READ_FILE | _WRITE_FILE | _IOCTL) & handled)
        _allow(ruleset, scratch, handled)
        syscall(_RESTRICT, ruleset, 0)
    finally:
        os.close(ruleset)
    return ""


def _allow(ruleset: int, path: str | os.PathLike[str], rights: int) -> None:
    """Allow some rights at `path` and below; what is not there, or cannot be opened, needs none."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        try:
            rule = _Rule(rights if os.path.isdir(path) else rights & _OF_FILES, descriptor)
            syscall(_ADD, ruleset, 1, ctypes.byref(rule), 0)
        finally:
            os.close(descriptor)


def _to_read(readable: Sequence[str | os.PathLike[str]] | None) -> Iterator[str | os.PathLike[str]]:
    """What may be read. Landlock allows what is below a folder, and forbids nothing in it again: of the folder with
    the processes, everything is named but the other processes."""
    yield from (entry.path for entry in _entries("/proc") if not entry.name.isdigit())
    yield "/proc/self"
    if readable is None:
        yield from (entry.path for entry in _entries("/") if entry.name != "proc")
        return
    yield from _SYSTEM
    yield from (f"/dev/{name}" for name in _DEVICES)
    yield from (folder for folder in (sys.prefix, sys.base_prefix, sys.exec_prefix, *sys.path) if folder)
    yield from readable


def _entries(folder: str) -> Iterable[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []
