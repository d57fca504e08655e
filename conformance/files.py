"""Files that are there whole or not at all: everything that the suite writes.

The process that reports imports nothing but Python's own modules, so this is not `minigrad.files`, which does the same
for weights and pictures.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """`write_bytes` of a text in UTF-8; half characters are written as escapes. Raises OSError."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write a temporary file in the same folder, and rename it to `path`: a reader finds the old file or the new one.
    What is no file (/dev/stdout) is written to as it is. Raises OSError."""
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException as error:
        if isinstance(error, OSError):
            error.filename = str(path)  # the name that the caller knows
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
