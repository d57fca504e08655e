"""A scheduler of Dask and three workers as processes, of which one is killed: the same table as on one machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hand_ins_of_class import RIGHT, UNSCALED

from conformance.grading.cluster import dask_executor
from conformance.grading.local import LocalExecutor
from conformance.grading.run import Options, grade
from conformance.grading.store import Store
from conformance.grading.submissions import GradingError, found

distributed = pytest.importorskip("distributed")
pytest.importorskip("torch")
pytestmark = [pytest.mark.deep, pytest.mark.skipif(os.name != "posix", reason="workers are killed by a signal")]

ROOT = Path(__file__).parents[3]
OPTIONS = Options(claims="attention-scale-is-one-over-sqrt-d-head,multi-head-scales-by-the-width-of-one-head")


@pytest.fixture
def cluster(tmp_path):
    """(address, the workers' processes)"""
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    where = tmp_path / "scheduler.json"

    def start(*words):
        return subprocess.Popen(
            [sys.executable, "-m", *words, "--scheduler-file", str(where), "--no-dashboard"],
            env=env,
            cwd=tmp_path,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    processes = [start("distributed.cli.dask_scheduler", "--port", "0", "--host", "127.0.0.1")]
    deadline = time.monotonic() + 60
    while not where.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    address = json.loads(where.read_text())["address"]
    worker = ("distributed.cli.dask_worker", "--nthreads", "1", "--nworkers", "1", "--no-nanny")
    processes += [start(*worker) for _ in range(3)]
    yield address, processes[1:]
    for process in processes:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def table(path, run):
    store = Store(path)
    names = "id, part, kind, claim, verdict, root, diagnosis, what, expected, got, error, bound, place, mend, message"
    rows = store.query(f"SELECT {names} FROM claims WHERE run = {run} ORDER BY id, part, claim")[1]
    store.close()
    return rows


def test_a_worker_that_is_killed_changes_nothing(cluster, tmp_path):
    address, workers = cluster
    folder = tmp_path / "class"
    folder.mkdir()
    for number in range(9):
        (folder / f"s{number}.py").write_text(f"# {number}\n{UNSCALED if number % 3 else RIGHT}")
    submissions = found(str(folder), name=":MultiHeadAttention")
    done = []

    def notice(progress):
        done.append(progress)
        if len(done) == 1:
            os.killpg(workers[0].pid, signal.SIGKILL)

    there = Store(tmp_path / "there.sqlite")
    with dask_executor(address) as executor:
        run = grade(submissions, there, OPTIONS, executor=executor, notice=notice)
    there.close()
    assert workers[0].wait(10) == -signal.SIGKILL
    here = Store(tmp_path / "here.sqlite")
    with LocalExecutor(1) as executor:
        grade(submissions, here, OPTIONS, executor=executor)
    here.close()
    assert len(done) == 9
    rows = table(tmp_path / "there.sqlite", run)
    assert rows == table(tmp_path / "here.sqlite", 1)
    assert len(rows) == 9 * len(OPTIONS.slugs())


def test_a_scheduler_that_does_not_answer_is_told(monkeypatch):
    with pytest.raises(GradingError, match="no scheduler of Dask answers there"), dask_executor("tcp://127.0.0.1:9"):
        pass
