"""What a million subjects cost on a hundred machines: a model, whose numbers are measured here (`measured`, `table`).

Measured are the parts of which there is one: what gives out, stores, and answers for each subject. An outcome that was
graded once is given back at once by an executor that runs nothing, so that only these parts take time.
"""

from __future__ import annotations

import json
import os
import pickle
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from conformance.grading.archive import packed
from conformance.grading.cluster import dask_executor
from conformance.grading.hosts import close_all, used_by
from conformance.grading.run import Options, grade, in_order
from conformance.grading.store import Store
from conformance.grading.submissions import found
from conformance.grading.work import graded
from tools.many import subjects
from tools.many.cluster import workers

MANY, MACHINES, CORES = 1_000_000, 100, (2, 16, 64)
NETWORK = 0.125e9
"""Bytes a second of 1 Gbit/s."""


@dataclass(frozen=True)
class Parts:
    """Of one subject. giver: processor seconds of the process that packs, gives out and stores. client, scheduler: of
    the same process for Dask, and of Dask's scheduler. stored: bytes of the database. sent, received: bytes of a task
    and of its answer."""

    giver: float
    client: float
    scheduler: float
    stored: float
    sent: int
    received: int


class _Answers(Executor):
    """Has the same answer for everything."""

    workers = 16

    def __init__(self, outcome: Mapping[str, Any]) -> None:
        self._outcome = outcome

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result({**self._outcome})
        return future


def answered(_: Mapping[str, Any], outcome: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a worker does where only the scheduler is measured."""
    return outcome


def giver(folder: Path, count: int, outcome: Mapping[str, Any], options: Options) -> tuple[float, float]:
    """Processor seconds and bytes of the database that a subject takes where each is answered at once."""
    submissions, path = found(str(subjects.write(folder / "given", count))), folder / "given.sqlite"
    store, before = Store(path), time.process_time()
    grade(submissions, store, options, executor=_Answers(outcome), fresh=True)
    took = time.process_time() - before
    store.close()  # which takes the log of what was written into the file
    return took / count, os.path.getsize(path) / count


def measured(folder: Path, options: Options, count: int = 300) -> Parts:
    """Measure with so many subjects. Raises GradingError when Dask is missing, OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    one = next(subjects.made(1))
    (folder / "one.py").write_text(one.source, encoding="utf-8")
    claims = in_order(options.slugs(), {})
    task = {
        **asdict(options),
        "claims": claims,
        "archive": packed(found(str(folder / "one.py"), name=f":{one.name}")[0]),
    }
    outcome = graded(task)
    close_all()
    by_giver, stored = giver(folder, count, outcome, options)
    with workers(folder.resolve(), 1) as (address, processes), dask_executor(address) as executor:
        executor.submit(answered, task, outcome).result()
        before, own = used_by(processes[0].pid), time.process_time()
        waiting = [executor.submit(answered, {**task, "number": at}, outcome) for at in range(count)]
        for future in waiting:
            future.result()
        client, scheduler = time.process_time() - own, used_by(processes[0].pid) - before
    sent, received = len(pickle.dumps(task)), len(pickle.dumps(outcome))
    return Parts(by_giver, client / count, scheduler / count, stored, sent, received)


def rows(parts: Parts, each: float) -> list[tuple[str, str, float]]:
    """(part, what bounds it, hours) for a million subjects, of which each takes a worker `each` processor seconds."""
    found = [("workers", f"{MACHINES} machines with {cores} cores", each / MACHINES / cores) for cores in CORES]
    found += [
        ("the process that gives out and stores", "one core", parts.giver + parts.client),
        ("Dask's scheduler", "one core", parts.scheduler),
        ("its network", "1 Gbit/s, each way", max(parts.sent, parts.received) / NETWORK),
    ]
    return [(name, bound, seconds * MANY / 3600) for name, bound, seconds in found]


def table(parts: Parts, each: float) -> str:
    """The table of docs/grading-figures.md."""
    lines = ["| part | bounded by | a million take |", "|---|---|---:|"]
    lines += [f"| {name} | {bound} | {hours:.1f} h |" for name, bound, hours in rows(parts, each)]
    lines.append(f"| database | {parts.stored / 1000:.0f} kB a subject | {parts.stored * MANY / 1e9:.0f} GB |")
    enough = each / (parts.giver + parts.client)
    lines.append(f"\nThe process that gives out feeds {enough:.0f} cores: more of them wait for it.")
    lines.append(f"Measured: {json.dumps({name: round(value, 6) for name, value in asdict(parts).items()})}")
    return "\n".join(lines)
