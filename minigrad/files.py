"""Files that are there whole or not at all: everything that minigrad, its models and its tools write."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path


def write_atomically(path: str | os.PathLike[str], pieces: Iterable[bytes], *, lasting: bool = True) -> None:
    """Write a temporary file in the same folder, and rename it to `path`: a reader finds the old file or the new one.

    lasting: flush it to disk before, so that a power cut, too, leaves the one or the other. A link stays one, and what
    is no file (/dev/stdout, a pipe) is written to as it is. Raises FileNotFoundError without that folder, OSError.
    """
    path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, "there is no such folder", str(path.parent))
    mode = path.stat().st_mode if path.exists() else None
    if mode is not None and not stat.S_ISREG(mode):
        _write(os.open(path, os.O_WRONLY), pieces)
        return
    temporary = path.parent / f".{path.name[:100]}.{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        _write(os.open(temporary, flags, 0o666), pieces, lasting)  # the system applies the umask
        if mode is not None and stat.S_IMODE(mode) != stat.S_IMODE(temporary.stat().st_mode):
            os.chmod(temporary, stat.S_IMODE(mode))
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    if lasting and os.name == "posix":
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _write(descriptor: int, pieces: Iterable[bytes], lasting: bool = False) -> None:
    with os.fdopen(descriptor, "wb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        if lasting:
            os.fsync(file.fileno())
