"""Who the process is: it loses every privilege, and its processes are counted apart from the user's others.

The system counts processes by user, and never limits the administrator's. So the administrator's process becomes a
user that nobody is; it may still read what the administrator may read. Anybody else's gets a user name space of its
own, where the system allows that; else the limit is what the user has now, and so many more.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path

from conformance.limits import limit_processes
from conformance.sandbox.system import (
    CAP_AMBIENT,
    CAPBSET_DROP,
    SET_DUMPABLE,
    SET_NO_NEW_PRIVS,
    SET_SECUREBITS,
    prctl,
    syscall,
)

_NEW_USER = 0x10000000
_STRANGER = 0x60000000  # users from here on are nobody; where a container lacks them, there is 65534, "nobody"
_NOBODY = 65534
_NUMBERS = {"x86_64": (126, 272), "aarch64": (91, 97)}  # capset, unshare
_CAPABILITIES_3 = 0x20080522
_READ_SEARCH, _OVERRIDE = 2, 1  # privileges over files; a container often has only the second
_BITS, _BITS_LOCKED = 0b000101, 0b101111  # the user 0 has no privileges, and changing the user takes none; for good
_RAISE, _CLEAR = 2, 4


def leave(scratch: Path, most: int) -> None:
    """Give up every privilege, also those that a program which is started would get. This process and what it starts
    may be `most` processes and threads. `scratch` becomes the folder of whom the process is then. Raises OSError."""
    kept, are_counted_apart = 0, True
    if os.geteuid() == 0 and (user := _free_user()) is not None:
        os.chown(scratch, user, user)
        kept = _become(user)
    elif _may_have_own_namespace():
        _enter_own_namespace()
    else:
        are_counted_apart = False
    _keep_only(kept)
    prctl(SET_DUMPABLE, 1)  # a changed user takes a process's own /proc/self from it
    if are_counted_apart:
        hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_NPROC, (value, value))
    else:
        limit_processes(most - 1)


def thread_count() -> int:
    """How many threads this process has; 1 where the system does not tell."""
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 1


def _free_user() -> int | None:
    """A user that nobody is, and that this process can become; tried in a process that ends."""
    for user in (_STRANGER + os.getpid(), _NOBODY):
        if _succeeds(partial(os.setresuid, user, user, user)):
            return user
    return None


def _become(user: int) -> int:
    """Become a user; returns the privilege that lets it read what this one may read."""
    with contextlib.suppress(OSError):
        prctl(SET_SECUREBITS, _BITS)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    for capability in (_READ_SEARCH, _OVERRIDE):
        with contextlib.suppress(OSError):
            _set_capabilities(1 << capability)
            return 1 << capability
    return 0


def _keep_only(kept: int) -> None:
    """Lose every privilege but `kept`, which programs that are started keep, too."""
    prctl(SET_NO_NEW_PRIVS, 1)
    with contextlib.suppress(OSError):  # without privileges there is nothing to lock
        prctl(SET_SECUREBITS, _BITS_LOCKED)
    with contextlib.suppress(OSError):
        prctl(CAP_AMBIENT, _CLEAR)
    with contextlib.suppress(OSError):
        for capability in range(64):
            if not kept >> capability & 1:
                prctl(CAPBSET_DROP, capability)
    _set_capabilities(kept)
    if kept:
        prctl(CAP_AMBIENT, _RAISE, kept.bit_length() - 1)


def _set_capabilities(mask: int) -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_3, 0)
    syscall(_NUMBERS[os.uname().machine][0], header, (ctypes.c_uint32 * 6)(mask, mask, mask))


def _succeeds(step: Callable[[], object]) -> bool:
    """Whether a step can be taken, in a process that ends."""
    child = os.fork()
    if not child:
        try:
            step()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _may_have_own_namespace() -> bool:
    """Tried in a process that ends: one that was made, and cannot be set up, cannot be left again."""
    return _succeeds(_enter_own_namespace)


def _enter_own_namespace() -> None:
    user, group = os.geteuid(), os.getegid()
    syscall(_NUMBERS[os.uname().machine][1], _NEW_USER)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
