"""What the tests of isolation ask of the system."""

from __future__ import annotations

import os
import subprocess
import sys
import time
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


def outlives(code: str, seconds: float = 20.0) -> bool:
    """Whether the process whose number a Python program prints still runs so long after that program was killed."""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and is_alive(pid):
        time.sleep(0.05)
    return is_alive(pid)
