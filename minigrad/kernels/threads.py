"""How kernels use the processor's cores: the one place where threads are decided.

A kernel is a serial, GIL-free function over a range of rows, `kernel(start, stop, *arrays)`. Work worth more than about
100 us is cut into as many ranges as there are threads, and our own few Python threads run them. No OpenMP, no TBB:
numba's parallel pools spin after each region and starve the BLAS library's (and the reverse), abort a process that
forks, and need libraries that macOS does not have; a serial kernel also compiles two to four times faster. Threads
here sleep on a queue (a hand-over costs 10 to 40 us), are started on first use, and started anew in a forked child.

Results do not depend on the number of threads: rows are independent, and kernels that add up over rows do it in
`PARTS` fixed ranges whose sums are added in order.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from itertools import pairwise
from queue import SimpleQueue
from typing import Any

import numpy as np

PARTS = 16  # fixed ranges of a reduction over rows
GRAIN = 32_768  # nanoseconds of one thread's work under which a range is not worth handing over

_threads = 0
_queue: SimpleQueue[Any] | None = None
_lock = threading.Lock()


def available() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def get_num_threads() -> int:
    """Threads that a kernel is cut over: `set_num_threads`, else MINIGRAD_NUM_THREADS, else the cores (at most 16)."""
    global _threads
    if not _threads:
        text = os.environ.get("MINIGRAD_NUM_THREADS", "")
        _threads = int(text) if text.isdigit() and int(text) else min(available(), 16)
    return _threads


def set_num_threads(count: int) -> None:
    """Cut kernels over `count` threads. Raises ValueError below 1."""
    global _threads
    if count < 1:
        raise ValueError(f"the number of threads must be at least 1, got {count}")
    _threads = int(count)


def _forget() -> None:
    """In a forked child the parent's threads do not exist: start anew."""
    global _queue, _lock
    _queue, _lock = None, threading.Lock()
    _workers.clear()


_workers: list[threading.Thread] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _work(queue: SimpleQueue[Any]) -> None:
    while True:
        kernel, start, stop, arrays, done = queue.get()
        try:
            kernel(start, stop, *arrays)
            done.put(None)
        except BaseException as error:
            done.put(error)


def _pool(count: int) -> SimpleQueue[Any]:
    """The queue, with at least `count` workers on it."""
    global _queue
    with _lock:
        if _queue is None:
            _queue = SimpleQueue()
        while len(_workers) < count:
            worker = threading.Thread(target=_work, args=(_queue,), name=f"minigrad-{len(_workers)}", daemon=True)
            worker.start()
            _workers.append(worker)
        return _queue


def worth(rows: int, work: float) -> int:
    """Into how many ranges `rows` may be cut, however many threads there are; work: about how many nanoseconds it takes
    one thread."""
    return min(rows, int(work) // GRAIN)


def over_rows(kernel: Callable[..., Any], rows: int, work: float, *arrays: Any) -> None:
    """Run `kernel(start, stop, *arrays)` over all rows: here, or cut over several threads if `work` (ns) pays."""
    count = min(get_num_threads(), worth(rows, work))
    if count < 2:
        kernel(0, rows, *arrays)
        return
    queue, done = _pool(count - 1), SimpleQueue[Any]()
    bounds = [rows * i // count for i in range(count + 1)]
    for start, stop in pairwise(bounds[1:]):
        queue.put((kernel, start, stop, arrays, done))
    try:
        kernel(0, bounds[1], *arrays)
    finally:
        errors = [done.get() for _ in range(count - 1)]
    for error in errors:
        if error is not None:
            raise error


def parts(rows: int) -> np.ndarray:
    """The fixed bounds ``(PARTS + 1,)`` of a reduction over rows."""
    return np.arange(PARTS + 1, dtype=np.int64) * rows // PARTS
