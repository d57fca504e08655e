"""Calls of Linux that Python has no function for."""

from __future__ import annotations

import ctypes
import os

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long

SET_NO_NEW_PRIVS, SET_SECCOMP, CAPBSET_DROP, SET_SECUREBITS, CAP_AMBIENT = 38, 22, 24, 28, 47
SET_CHILD_SUBREAPER, SET_DUMPABLE = 36, 4


def prctl(option: int, *arguments: int) -> int:
    """Operations on this process. Raises OSError."""
    words = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    return _checked(_libc.prctl(option, *words))


def syscall(number: int, *arguments: object) -> int:
    """A system call by its number; Python's integers are passed as 64 bits. Raises OSError."""
    words = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return _checked(_libc.syscall(ctypes.c_long(number), *words))


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result
