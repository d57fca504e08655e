"""How many of the processor's cores kernels use, and what they are given: the one place where that is decided.

A kernel is a serial, GIL-free function over a range of rows, `kernel(start, stop, *arrays)`. What is worth it is cut
into ranges, and our own few threads run them (see `minigrad.kernels.team`), a faster one more rows. No OpenMP, no
TBB: numba's parallel pools spin after each region and starve the BLAS library's (and the reverse), abort a process that
forks, and need libraries that macOS does not have; a serial kernel also compiles two to four times faster.

Results do not depend on the number of threads: rows are independent, and kernels that add up over rows do it in
`PARTS` fixed ranges whose sums are added in order.
"""

from __future__ import annotations

import math
import os
from functools import cache
from pathlib import Path

import numpy as np

PARTS = 16  # fixed ranges of a reduction over rows
BLOCK = 512  # elements that are added in float32 before their sum goes to float64, so that errors do not grow
GRAIN = 32_768  # nanoseconds of one thread's work under which a range is not worth handing over

_threads = 0


def available() -> int:
    """Cores this process may use: those that it is bound to, and no more than its container has time for."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    allowed = _allowed()
    return cores if cores < allowed else allowed


@cache
def _allowed() -> int:
    """How many threads this process has time for, as it was when somebody first asked: plans ask at every call."""
    return math.ceil(min(_quota(Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")), 1 << 16))


def _quota(process: Path, groups: Path) -> float:
    """How many cores' worth of time the process's control groups allow it, infinity where they do not say.

    `process` lists the groups, `groups` holds them: of version 2 in `cpu.max`, of version 1 in two files under `cpu`.
    A container often sees its own group as the root, so the root is asked, too, and all between: the least counts.
    """
    try:
        lines = [line.split(":", 2) for line in process.read_text().splitlines()]
        paths = {controllers: path for _, controllers, path in lines}
    except (OSError, ValueError):
        return math.inf
    least = math.inf
    for controllers, path in paths.items():
        if controllers and "cpu" not in controllers.split(","):
            continue
        for root in (groups, groups / "unified") if not controllers else (groups / controllers, groups / "cpu"):
            parts = path.strip("/").split("/") if ".." not in path else []
            for depth in range(len(parts) + 1):
                least = min(least, _quota_of(root.joinpath(*parts[:depth])))
    return least


def _quota_of(group: Path) -> float:
    """The cores' worth of time that one control group allows."""
    try:
        if (group / "cpu.max").exists():
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text()
            period = (group / "cpu.cfs_period_us").read_text()
        allowed = float(quota) / float(period)
    except (OSError, ValueError, ZeroDivisionError):  # "max": no limit
        return math.inf
    return allowed if allowed > 0 else math.inf


def get_num_threads() -> int:
    """Threads that a kernel is cut over: `set_num_threads`, else MINIGRAD_NUM_THREADS, else the cores (at most 16)."""
    global _threads
    if not _threads:
        text = os.environ.get("MINIGRAD_NUM_THREADS", "")
        _threads = int(text) if text.isdecimal() and int(text) else min(available(), 16)
    return _threads


def set_num_threads(count: int) -> None:
    """Cut kernels over `count` threads. Raises ValueError below 1."""
    global _threads
    if count < 1:
        raise ValueError(f"the number of threads must be at least 1, got {count}")
    _threads = int(count)


def worth(rows: int, work: float) -> int:
    """Into how many ranges `rows` may be cut, however many threads there are; work: about how many nanoseconds it takes
    one thread."""
    return min(rows, int(work) // GRAIN)


def parts(rows: int) -> np.ndarray:
    """The fixed bounds ``(PARTS + 1,)`` of a reduction over rows."""
    return np.arange(PARTS + 1, dtype=np.int64) * rows // PARTS
