"""A run of claims that is interrupted ends, leaves no process behind, and the next one works."""

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CLAIMS = "*causal*"
INTERRUPTED = 2  # pytest's exit code
MARK = "MINIGRAD_TEST_RUN"  # in the environment of a run, and of all processes that it starts

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc to find processes")


def start(mark: str, impl: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "pytest", "conformance/", f"--impl={impl}", f"--claims={CLAIMS}",
               "--claims-budget=quick", "-q"]  # fmt: skip
    environment = {**os.environ, MARK: mark}
    return subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )


def alive(mark: str) -> list[int]:
    """The processes of a run."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:  # another user's, or gone
            continue
    return found


def interrupt(times: int, seconds: float, impl: str) -> None:
    choose = random.Random(0)
    for _ in range(times):
        mark = uuid.uuid4().hex
        run = start(mark, impl)
        time.sleep(choose.uniform(0.3, seconds))
        run.send_signal(signal.SIGINT)
        try:
            said, _ = run.communicate(timeout=60)
        finally:
            run.kill()
        assert run.returncode in (0, INTERRUPTED, -signal.SIGINT), said.decode()
        deadline = time.monotonic() + 10
        while alive(mark) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not alive(mark)


@pytest.mark.slow
def test_an_interrupted_run_leaves_no_process_and_the_next_one_works():
    """With two hosts; ours loads and compiles kernels for seconds, which is for the deep test."""
    interrupt(3, 3.0, "reference")
    run = start(uuid.uuid4().hex, "reference")
    said, _ = run.communicate(timeout=100)
    assert run.returncode == 0, said.decode()


@pytest.mark.deep
def test_thirty_interrupted_runs_leave_no_process():
    interrupt(30, 8.0, "minigrad")
