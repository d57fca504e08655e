"""Files written whole or not at all (`write_whole`)."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from conformance.grading.submissions import GradingError


def write_whole(path: Path, data: bytes) -> None:
    """Write a file such that readers find all of it or what was there before. Raises GradingError."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.absolute().parent, suffix=".tmp")
    except OSError as error:
        raise GradingError(f"{path} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise GradingError(f"{path} cannot be written: {error.strerror}") from error
