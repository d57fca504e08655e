"""The executor of one machine: `LocalExecutor`, a warm process a core.

It has the interface of `concurrent.futures`. Threads wait for the warm processes, so that nothing is pickled. As many
submissions run as there are cores; one that sleeps gives its place to another.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from conformance.grading import hosts

SLEEPERS = 8
"""How many submissions may sleep beside those that work."""


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class LocalExecutor(Executor):
    """Runs `conformance.grading.work.graded` for `workers` submissions at a time."""

    def __init__(self, workers: int | None = None) -> None:
        self.workers = workers or cores()
        self._threads = ThreadPoolExecutor(self.workers + SLEEPERS, "conformance-grading")
        self._places = threading.Semaphore(self.workers)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Call `fn(*args, give_way)` when there is a place."""
        return self._threads.submit(self._run, fn, args, kwargs)

    def _run(self, fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self._places.acquire()
        held = True

        def give_way() -> None:
            nonlocal held
            held = False
            self._places.release()

        try:
            return fn(*args, give_way, **kwargs)
        finally:
            if held:
                self._places.release()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        hosts.close_all()
