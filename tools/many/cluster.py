"""The same list over a scheduler of Dask and workers as processes, of which one is killed and one stopped: `there`."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from conformance.grading.cluster import dask_executor
from conformance.grading.progress import shown
from conformance.grading.run import Options, Progress, grade
from conformance.grading.store import Store
from conformance.grading.submissions import found

ROOT = Path(__file__).parents[2]
KILLED, STOPPED = 0.25, 0.5
"""Which share of the subjects is done when a worker is killed (SIGKILL), and when another is stopped (SIGSTOP)."""

START_SECONDS = 300.0


@contextmanager
def workers(folder: Path, count: int) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A scheduler and so many workers, each a process with a session of its own: the address, and the processes, the
    scheduler's first.

    Raises TimeoutError when the scheduler does not begin.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    where = folder / "scheduler.json"

    def start(*words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", *words, "--scheduler-file", str(where), "--no-dashboard"],
            env=environment,
            cwd=folder,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    processes = [start("distributed.cli.dask_scheduler", "--port", "0", "--host", "127.0.0.1")]
    try:
        deadline = time.monotonic() + START_SECONDS
        while not where.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"the scheduler has not begun within {START_SECONDS:g} s")
            time.sleep(0.1)
        one = ("distributed.cli.dask_worker", "--nthreads", "1", "--nworkers", "1", "--no-nanny")
        processes += [start(*one) for _ in range(count)]
        yield json.loads(where.read_text(encoding="utf-8"))["address"], processes
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def there(path: Path, database: Path, count: int, options: Options | None = None) -> float:
    """Grade a list by so many workers, kill one and stop one meanwhile; seconds by the clock."""
    submissions = found(str(path))
    done, store, began = 0, Store(database), time.monotonic()
    with workers(database.parent.resolve(), count) as (address, processes), dask_executor(address) as executor:
        with shown(len(submissions), Console(stderr=True)) as told:

            def notice(progress: Progress) -> None:
                nonlocal done
                done += 1
                if done == round(KILLED * len(submissions)):
                    os.kill(processes[1].pid, signal.SIGKILL)
                if done == round(STOPPED * len(submissions)):
                    os.kill(processes[2].pid, signal.SIGSTOP)
                told(progress)

            grade(submissions, store, options, executor=executor, fresh=True, notice=notice)
        if processes[1].poll() != -signal.SIGKILL or processes[2].poll() is not None:
            raise RuntimeError("one worker should be killed now and one stopped, and they are not")
    store.close()
    return time.monotonic() - began
