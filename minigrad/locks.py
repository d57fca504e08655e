"""A folder with one writer at a time. The system holds the lock, and takes it back however its process ends."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

NAME = ".lock"
_FAR = 2**30  # where Windows locks a byte: what is locked cannot be read there, and the file's start says who has it
_thread = threading.local()


@contextlib.contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Hold the lock of an existing folder during the block: the file `.lock` in it, which goes with the block.

    A block within a block of the same thread holds it already. Raises BlockingIOError, with a sentence for the user,
    while somebody else does; the file that a killed process left is no lock. Where the file system has no locks,
    nothing keeps two writers apart.
    """
    path = Path(os.path.realpath(folder)) / NAME
    if path in _ours():
        yield
        return
    descriptor = _held(path)
    _ours().add(path)
    try:
        yield
    finally:
        _ours().discard(path)
        with contextlib.suppress(OSError):  # Windows removes no open file
            path.unlink()
        os.close(descriptor)


def _ours() -> set[Path]:
    """The locks of this thread."""
    if not hasattr(_thread, "locks"):
        _thread.locks = set()
    return cast("set[Path]", _thread.locks)


def _held(path: Path) -> int:
    """The descriptor of the locked file."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if not _lock(descriptor):
                who = os.read(descriptor, 20).decode("ascii", "replace").strip()
                raise BlockingIOError(
                    f"{path.parent} is in use: process {who or 'of another program'} writes to it; wait until it ends, "
                    "or choose another folder"
                )
            if _is_at(path, descriptor):  # else its last holder removed it meanwhile
                os.truncate(descriptor, 0)
                os.write(descriptor, b"%d\n" % os.getpid())
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _lock(descriptor: int) -> bool:
    """Lock an open file, or say that somebody else has locked it."""
    try:
        if sys.platform == "win32":
            os.lseek(descriptor, _FAR, os.SEEK_SET)
            try:
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            finally:
                os.lseek(descriptor, 0, os.SEEK_SET)
        else:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        taken = error.errno in (errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK)
        return not taken  # of another error a file system without locks is the reason
    return True
