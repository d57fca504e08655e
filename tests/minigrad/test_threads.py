"""How many threads kernels use: affinity, the quotas of containers, and what the user says."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from minigrad.kernels import threads


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


QUOTAS = {
    "none": ("0::/", {}, math.inf),
    "no such file": (None, {}, math.inf),
    "nonsense": ("what is this", {"cpu.max": "1 2"}, math.inf),
    "version 2, in a container": ("0::/", {"cpu.max": "150000 100000\n"}, 1.5),
    "version 2, without limit": ("0::/", {"cpu.max": "max 100000\n"}, math.inf),
    "version 2, a service": ("0::/user.slice/a.service", {"user.slice/a.service/cpu.max": "200000 100000"}, 2.0),
    "version 2, the parent's": (
        "0::/user.slice/a.service",
        {"user.slice/a.service/cpu.max": "max 100000", "user.slice/cpu.max": "50000 100000"},
        0.5,
    ),
    "version 2, from outside": ("0::/../../other", {"cpu.max": "300000 100000"}, 3.0),
    "version 1, in a container": (
        "4:cpu,cpuacct:/docker/abc\n0::/",
        {"cpu,cpuacct/cpu.cfs_quota_us": "250000", "cpu,cpuacct/cpu.cfs_period_us": "100000"},
        2.5,
    ),
    "version 1, under its short name": (
        "4:cpu,cpuacct:/",
        {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "50000"},
        2.0,
    ),
    "version 1, without limit": (
        "4:cpu:/", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, math.inf
    ),
    "version 1, another controller": ("4:cpuset:/", {"cpuset/cpu.cfs_quota_us": "1"}, math.inf),
    "both, the hybrid": (
        "1:cpu:/\n0::/a",
        {"unified/a/cpu.max": "400000 100000", "cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"},
        3.0,
    ),
    "a broken period": ("0::/", {"cpu.max": "100000 0"}, math.inf),
    "an empty file": ("0::/", {"cpu.max": ""}, math.inf),
}  # fmt: skip


@pytest.mark.parametrize(("process", "files", "cores"), QUOTAS.values(), ids=QUOTAS)
def test_the_quota_of_a_container_is_read(tmp_path, process, files, cores):
    of_process = tmp_path / "cgroup"
    if process is not None:
        of_process.write_text(process)
    assert threads._quota(of_process, written(tmp_path / "groups", {"x": "", **files})) == cores


@pytest.mark.parametrize(("quota", "cores", "count"), [(math.inf, 256, 256), (1.5, 16, 2), (0.2, 8, 1), (3.0, 1, 1)])
def test_the_quota_and_the_affinity_decide(monkeypatch, quota, cores, count):
    monkeypatch.setattr(threads, "_quota", lambda *_: quota)
    threads._allowed.cache_clear()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(cores), raising=False)
    assert threads.available() == count
    threads._allowed.cache_clear()


@pytest.mark.parametrize("text", ["\N{SUPERSCRIPT TWO}", "0", "-1", "", "two", "1.5", "0x2", "\N{ROMAN NUMERAL TWO}"])
def test_what_is_no_number_of_threads_is_as_if_it_were_not_there(monkeypatch, text):
    monkeypatch.setattr(threads, "_threads", 0)
    monkeypatch.setenv("MINIGRAD_NUM_THREADS", text)
    assert threads.get_num_threads() == min(threads.available(), 16)


PLAN = """
import numpy as np, os
{before}
import minigrad as mg
from minigrad import kernels
x = mg.tensor(np.arange(512 * 512, dtype=np.float32).reshape(512, 512) / 2**18)
step = mg.compile(lambda x: (x @ x).softmax(-1).sum(0))
with kernels.use("always"):
    for _ in range(3):
        got = step(x).numpy()
want = x.numpy() @ x.numpy()
want = np.exp(want - want.max(-1, keepdims=True))
np.testing.assert_allclose(got, (want / want.sum(-1, keepdims=True)).sum(0), rtol=1e-4)
{after}
print("done")
"""


def plan(before: str = "", after: str = "", **environment: str) -> str:
    code = PLAN.format(before=before, after=after)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("count", [1, 2, 3, 64, pytest.param(256, marks=pytest.mark.deep)])
def test_a_plan_runs_with_any_number_of_threads(count):
    pretend = f"os.sched_getaffinity = lambda _: range({count})" if hasattr(os, "sched_getaffinity") else ""
    assert plan(pretend, MINIGRAD_NUM_THREADS=str(count)) == "done\n"


def test_numbas_switch_for_users_functions_leaves_kernels_alone():
    after = "import numba; assert numba.njit(plan := lambda: 1) is plan"
    assert plan(after=after, NUMBA_DISABLE_JIT="1") == "done\n"


EXITS = {
    "the end": "",
    "exit": "raise SystemExit(0) if print('done') is None else 0",
    "at once": "print('done', flush=True); os._exit(0)",
    "a thread is left": "import threading; threading.Thread(target=lambda: [step(x) for _ in range(50)]).start()",
    "a daemon is left": "import threading; threading.Thread(target=lambda: [step(x) for _ in range(10**6)], "
    "daemon=True).start()",
    "a handler of the end": "import atexit; atexit.register(lambda: step(x))",
    "a plan that is let go": "del step, got",
}


@pytest.mark.parametrize("after", EXITS.values(), ids=EXITS)
def test_a_process_ends_while_its_threads_work(after):
    assert plan(after=after, MINIGRAD_NUM_THREADS="2").startswith("done")


FORKS = """
import threading
stop = threading.Event()
def work():
    while not stop.is_set():
        step(x)
workers = [threading.Thread(target=work) for _ in range({threads})]
for worker in workers: worker.start()
for _ in range({forks}):
    child = os.fork()
    if not child:
        ok = np.array_equal(step(x).numpy(), got)
        os._exit(0 if ok else 1)
    assert os.waitpid(child, 0)[1] == 0
stop.set()
for worker in workers: worker.join()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize(
    ("count", "forks"),
    [(1, 8), pytest.param(1, 300, marks=pytest.mark.deep), pytest.param(4, 100, marks=pytest.mark.deep)],
)
def test_a_process_forks_while_other_threads_run_its_plan(count, forks):
    after = "import signal; signal.alarm(100)" + FORKS.format(threads=count, forks=forks)
    assert plan(after=after, MINIGRAD_NUM_THREADS="2") == "done\n"
