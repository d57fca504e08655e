"""A list graded on this machine while somebody watches the workers: `here`; and the table of a run (`table_of`)."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console

from conformance.grading.hosts import close_all, used_by
from conformance.grading.local import LocalExecutor
from conformance.grading.progress import shown
from conformance.grading.run import Options, Progress, grade
from conformance.grading.store import Store
from conformance.grading.submissions import found

TIMES = {"seconds", "run", "key"}
"""Columns that differ from run to run: how long it took, and what names the run."""

EVERY = 2.0
"""Seconds between two looks at the workers."""


@dataclass(frozen=True)
class Figures:
    """What a run took. wall: seconds by the clock. processor: of the workers and all below them. own: of the process
    that gives out and stores. first, last: bytes of the largest worker in memory, after the first tenth and at the end.
    """

    subjects: int
    workers: int
    wall: float
    processor: float
    own: float
    first: int
    last: int
    broken: int
    refused: int
    load: float

    def row(self) -> str:
        """A line of the table in docs/grading-figures.md."""
        busy = self.processor / self.wall / self.workers
        cells = (
            f"{self.subjects:,}",
            f"{self.subjects / self.wall * 60:.0f}",
            f"{busy:.0%}",
            f"{self.processor / self.subjects:.2f} s",
            f"{self.own / self.subjects * 1000:.0f} ms",
            f"{self.first / 2**20:.0f} MB, {self.last / 2**20:.0f} MB",
            f"{self.broken:,}",
            f"{self.refused:,}",
            f"{self.load:.0f}",
        )
        return "| " + " | ".join(cells) + " |"


HEADING = (
    "| subjects | a minute | workers busy | processor time each | of the giver | a worker's memory, first and last | "
    "break a claim | refused | load |\n|---:|---:|---:|---:|---:|---|---:|---:|---:|"
)


class _Watch(threading.Thread):
    """Looks at the processes below this one: their processor time, and the largest of them in memory."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.memory: list[tuple[int, int]] = []  # how many were done, and bytes
        self.loads: list[float] = []
        self.done = 0
        self.processor: dict[int, float] = {}

    def run(self) -> None:
        while not self.over.wait(EVERY):
            self.look()

    def look(self) -> None:
        below = children(os.getpid())
        self.processor |= {pid: used_by(pid) for pid in below}
        self.memory.append((self.done, max(map(resident, below), default=0)))
        self.loads.append(os.getloadavg()[0])


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    texts = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for text in texts for child in text.split()]


def resident(pid: int) -> int:
    """Bytes that a process has in memory; 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def here(path: Path, database: Path, workers: int, options: Options | None = None) -> Figures:
    """Grade a list with so many workers, and say what it took."""
    submissions = found(str(path))
    store, watch = Store(database), _Watch()
    before, began = os.times(), time.monotonic()
    watch.start()
    console = Console(stderr=True)
    with LocalExecutor(workers) as executor, shown(len(submissions), console) as told:

        def notice(progress: Progress) -> None:
            watch.done += 1
            told(progress)

        run = grade(submissions, store, options, executor=executor, fresh=True, notice=notice)
        watch.over.set()
        watch.join()
        watch.look()
    wall, after = time.monotonic() - began, os.times()
    close_all()
    tenth = len(submissions) / 10
    grades = store.grades(run)
    store.close()
    return Figures(
        len(submissions),
        workers,
        wall,
        sum(watch.processor.values()),
        after.user + after.system - before.user - before.system,
        max((size for done, size in watch.memory if done <= tenth), default=0),
        max((size for done, size in watch.memory if done >= 9 * tenth), default=0),
        sum(bool(row["broken"]) for row in grades),
        sum(bool(row["refused"]) for row in grades),
        sum(watch.loads) / len(watch.loads),
    )


def table_of(database: Path) -> bytes:
    """The claims of a store's last run as CSV, sorted, without the columns of time."""
    store = Store(database)
    names, rows = store.query(f"SELECT * FROM claims WHERE run = {store.last_run()}")
    store.close()
    kept = [at for at, name in enumerate(names) if name not in TIMES]
    text = io.StringIO(newline="")
    csv.writer(text).writerow([names[at] for at in kept])
    csv.writer(text).writerows(sorted([str(row[at]) for at in kept] for row in rows))
    return text.getvalue().encode()


def digest(table: bytes) -> str:
    return hashlib.sha256(table).hexdigest()


def values(figures: Figures) -> dict[str, float]:
    return asdict(figures)
