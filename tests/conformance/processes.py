"""What the tests of isolation ask of the system."""

from __future__ import annotations

import os
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that ended and that nobody waited for does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


def host_of(keeper: int) -> int:
    """The process that hosts the implementation, of the keeper that the suite started (itself where there is none)."""
    children = Path(f"/proc/{keeper}/task/{keeper}/children")
    return int(children.read_text().split()[0]) if children.exists() else keeper
