"""System calls that a process in the sandbox cannot make: a filter (seccomp, in the machine code of BPF).

Files are Landlock's; this forbids what Landlock does not know: sockets, tracing, changes of owners, modes and times,
what acts on another process of the same user, shared memory by number, and new name spaces, in which a process would
have all privileges. A call that is newer than this list does not exist for the process.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from conformance.sandbox.system import SET_NO_NEW_PRIVS, SET_SECCOMP, prctl

_MACHINES = {"x86_64": 0, "aarch64": 1}
_ARCHITECTURES = (0xC000003E, 0xC00000B7)  # as the filter sees them: AUDIT_ARCH_X86_64, AUDIT_ARCH_AARCH64
_NEWEST = 450  # set_mempolicy_home_node, of Linux 5.17

_FORBIDDEN = {
    # name: number on x86-64, number on ARM; 0 where there is none
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201), "accept": (43, 202),
    "accept4": (288, 242),
    "chmod": (90, 0), "fchmod": (91, 52), "fchmodat": (268, 53), "chown": (92, 0), "fchown": (93, 55),
    "lchown": (94, 0), "fchownat": (260, 54), "utime": (132, 0), "utimes": (235, 0), "utimensat": (280, 88),
    "futimesat": (261, 0), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16), "truncate": (76, 45),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "kcmp": (312, 272), "pidfd_getfd": (438, 438),
    "perf_event_open": (298, 241), "bpf": (321, 280), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "unshare": (272, 97), "setns": (308, 268), "personality": (135, 92), "quotactl": (179, 60),
    "quotactl_fd": (443, 443), "syslog": (103, 116), "fanotify_init": (300, 262),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "setuid": (105, 146), "setgid": (106, 144), "setreuid": (113, 145), "setregid": (114, 143), "setresuid": (117, 147),
    "setresgid": (119, 149), "setgroups": (116, 159), "setfsuid": (122, 151), "setfsgid": (123, 152),
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "semget": (64, 190), "semop": (65, 193),
    "semctl": (66, 191), "semtimedop": (220, 192), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188),
    "msgctl": (71, 187), "mq_open": (240, 180), "mq_unlink": (241, 181),
}  # fmt: skip
_CLONE3 = (435, 435)  # its flags lie in memory, where no filter sees them: it does not exist, and clone is used

_OTHERS = {
    # calls that name a process, and the argument that does; 0 is the caller itself
    "prlimit64": ((302, 261), 0), "setpriority": ((141, 140), 1), "sched_setscheduler": ((144, 119), 0),
    "sched_setparam": ((142, 118), 0), "sched_setattr": ((314, 274), 0), "sched_setaffinity": ((203, 122), 0),
    "ioprio_set": ((251, 30), 1), "migrate_pages": ((256, 238), 0), "move_pages": ((279, 239), 0),
}  # fmt: skip
_CLONE, _SOCKETPAIR, _FCNTL = (56, 220), (53, 199), (72, 25)
_NEW_NAMESPACES = 0x7E020080
_KILL, _TGKILL = (62, 129), (234, 131)
_OTHER_SIGNALS = ((200, 130), (129, 138), (297, 240), (424, 424))  # tkill, rt_[tg]sigqueueinfo, pidfd_send_signal
_SET_OWNER = (8, 15)  # F_SETOWN, F_SETOWN_EX: who gets the signal when a descriptor is ready

_LOAD, _EQUAL, _GREATER, _ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x54, 0x06
_ALLOW = 0x7FFF0000
_REFUSE = 0x00050000 | errno.EPERM
_UNKNOWN = 0x00050000 | errno.ENOSYS


@dataclass(frozen=True)
class _Step:
    """An instruction: its code and number, and how many to skip when a comparison holds, and when not."""

    code: int
    number: int
    yes: int = 0
    no: int = 0


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]


def is_known() -> bool:
    """Whether this processor's system calls are known here."""
    return platform.machine() in _MACHINES


def restrict(own_signals_only: bool) -> None:
    """Filter this process's system calls from now on, and its children's. own_signals_only: let it signal itself only,
    not its children either; for systems where Landlock does not guard signals. Raises OSError."""
    prctl(SET_NO_NEW_PRIVS, 1)
    steps = b"".join(
        struct.pack("HBBI", step.code, step.yes, step.no, step.number) for step in _filter(own_signals_only)
    )
    program = _Program(len(steps) // 8, steps)
    prctl(SET_SECCOMP, 2, ctypes.addressof(program))


def _filter(own_signals_only: bool) -> list[_Step]:
    machine = _MACHINES[platform.machine()]
    number = _Step(_LOAD, 0)
    steps = [_Step(_LOAD, 4), _Step(_EQUAL, _ARCHITECTURES[machine], yes=1), _Step(_RETURN, _UNKNOWN), number]
    steps += [_Step(_GREATER, _NEWEST, no=1), _Step(_RETURN, _UNKNOWN)]
    steps += [_Step(_EQUAL, _CLONE3[machine], no=1), _Step(_RETURN, _UNKNOWN)]
    for call in _FORBIDDEN.values():
        steps += _of(call[machine], [_Step(_RETURN, _REFUSE)])
    for call, argument in _OTHERS.values():
        steps += _of(call[machine], _unless_equal(argument, 0))
    steps += _of(_CLONE[machine], [_argument(0), _Step(_ANY_BIT, _NEW_NAMESPACES, no=1), _Step(_RETURN, _REFUSE)])
    # Of pairs of sockets only streams: the others can send to an address.
    steps += _of(_SOCKETPAIR[machine], [_argument(1), _Step(_AND, 0xF), *_unless_equal(None, 1)])
    if own_signals_only:
        for call in (_KILL, _TGKILL):
            steps += _of(call[machine], _unless_equal(0, os.getpid()))
        for call in _OTHER_SIGNALS:
            steps += _of(call[machine], [_Step(_RETURN, _REFUSE)])
        for command in _SET_OWNER:
            steps += _of(_FCNTL[machine], [_argument(1), _Step(_EQUAL, command, no=1), _Step(_RETURN, _REFUSE), number])
    return [*steps, _Step(_RETURN, _ALLOW)]


def _of(call: int, steps: Sequence[_Step]) -> list[_Step]:
    """Steps that are taken for one system call; nothing, where this processor does not have it. When they come to no
    end, the number of the call is loaded again."""
    if not call:
        return []
    body = [*steps, _Step(_LOAD, 0)]
    return [_Step(_EQUAL, call, no=len(body)), *body]


def _argument(index: int) -> _Step:
    """Load the lower half of an argument, which holds every number that is looked at here."""
    return _Step(_LOAD, 16 + 8 * index)


def _unless_equal(argument: int | None, value: int) -> list[_Step]:
    """Refuse unless an argument, or what is loaded, is `value`."""
    load = [] if argument is None else [_argument(argument)]
    return [*load, _Step(_EQUAL, value, yes=1), _Step(_RETURN, _REFUSE)]
