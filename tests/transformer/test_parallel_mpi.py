"""Processes that train together by MPI: the gradients of one, one sentence when one is killed, another number later."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import parallel_program
import pytest

pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install mpich 'minigrad-conformance[mpi]'")
MPIEXEC = shutil.which("mpiexec", path=str(Path(sys.executable).parent)) or shutil.which("mpiexec")
if MPIEXEC is None:
    pytest.skip("there is no mpiexec: pip install mpich", allow_module_level=True)

TINY = ["--d-model", "16", "--n-heads", "2", "--n-kv-heads", "1", "--n-layers", "1", "--d-ff", "24", "--max-len", "12",
        "--batch-size", "8", "--dropout", "0", "--no-compile", "--log-every", "1", "--warmup", "2"]  # fmt: skip


@pytest.fixture(scope="module")
def alone():
    return {key: value for name in parallel_program.CASES for key, value in parallel_program.learn(name).items()}


@pytest.mark.parametrize("count", [2, 4])
def test_processes_equal_one_with_all_their_rows(alone, count, tmp_path):
    program = Path(parallel_program.__file__)
    subprocess.run([MPIEXEC, "-n", str(count), sys.executable, program, tmp_path / "all.npz"], check=True, timeout=100)
    together = np.load(tmp_path / "all.npz")
    for key, expected in alone.items():
        got = together[key]
        assert got.shape == expected.shape, key  # a parameter that nobody used has no gradient there either
        if expected.size:
            largest = np.abs(expected).max() + 1e-3  # biases of keys have no gradient but rounding
            assert np.abs(got - expected).max() <= 2e-5 * largest, key
    for name in parallel_program.CASES:
        sent, early, buckets = together[f"{name} traffic"]
        weights = [value for key, value in alone.items() if key.startswith(f"{name} weight")]
        per_step = 4 * sum(value.size + 1 for value in weights)
        assert sent == per_step * parallel_program.STEPS
        assert buckets >= 4
        assert early == parallel_program.STEPS * buckets  # each was on its way before the pass had ended


def run(*arguments, expect=0):
    """The standard error of `train`, which ends with the code that is expected."""
    command = [sys.executable, "-m", "transformer", "train", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == expect, done.stderr
    assert done.stdout == ""
    return done.stderr


def losses(folder):
    records = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return {record["step"]: record["loss"] for record in records if "loss" in record}


def ranks(folder):
    """{rank: process id} of the processes that train in a folder, by what Linux says of them."""
    found = {}
    for process in Path("/proc").iterdir():
        try:
            command, environment = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
        except OSError:
            continue
        variables = dict(pair.split(b"=", 1) for pair in environment.split(b"\0") if b"=" in pair)
        if str(folder).encode() in command and b"PMI_RANK" in variables:
            found[int(variables[b"PMI_RANK"])] = int(process.name)
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds processes in /proc")
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_process_ends_all_with_one_sentence(victim, tmp_path):
    out = tmp_path / "run"
    command = [sys.executable, "-m", "transformer", "train", "text", *TINY, "--steps", "100000", "--save-every", "5",
               "--evaluate-every", "100000", "--out", str(out), "--processes", "3"]  # fmt: skip
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as started:
        try:
            deadline = time.monotonic() + 60
            while not ((out / "log.jsonl").exists() and len(losses(out)) > 6):
                assert time.monotonic() < deadline
                assert started.poll() is None
                time.sleep(0.05)
            os.kill(ranks(out)[victim], signal.SIGKILL)
            _, said = started.communicate(timeout=60)
        finally:
            started.kill()
    assert started.returncode == 2
    last = [line for line in said.splitlines() if not line.startswith("step ")]
    assert len(last) == 2  # the size of the model, and this
    assert last[1].startswith("transformer train: one of the 3 processes was killed or broke down")
    assert f"continue with --resume {out}" in last[1]
    assert not ranks(out)
    # what it has saved is continued by another number of processes, and by one
    stood = json.loads((out / "log.jsonl").read_text().splitlines()[4])["step"]
    assert stood == 5
    assert "resuming after" in run("--resume", out, "--steps", max(losses(out)) + 2, "--processes", 2)
    assert "resuming after" in run("--resume", out, "--steps", max(losses(out)) + 2)
    seen = losses(out)
    assert sorted(seen) == list(range(1, len(seen) + 1))


def test_a_checkpoint_goes_on_with_another_number_of_processes(tmp_path):
    run("text", *TINY, "--schedule", "constant", "--steps", 9, "--out", tmp_path / "one")
    mixed = tmp_path / "mixed"
    run("text", *TINY, "--schedule", "constant", "--steps", 3, "--out", mixed, "--processes", 4)
    run("--resume", mixed, "--steps", 6)
    assert "by 2 processes" in run("--resume", mixed, "--steps", 9, "--processes", 2)
    expected, got = losses(tmp_path / "one"), losses(mixed)
    assert got.keys() == expected.keys()
    np.testing.assert_allclose([*got.values()], [*expected.values()], rtol=1e-5)


BAD = [
    (["text", *TINY, "--batch-size", 1, "--processes", 2], "a batch of 1 rows cannot be shared by 2 processes"),
    (["text", *TINY, "--precision", "float16", "--processes", 2], "several processes train in float32 only"),
    (["text", *TINY, "--processes", 0], "--processes must be from 1 to 64, got 0"),
    (["text", *TINY, "--processes", 65], "--processes must be from 1 to 64, got 65"),
    (["nothing", "--processes", 2], "there is no task 'nothing'"),
    (["text", *TINY, "--lr", "1e30", "--steps", 50, "--processes", 2], "train with a smaller lr"),
    (["--resume", "/nowhere/at/all", "--processes", 2], "there is no checkpoint /nowhere/at/all"),
]


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=range(len(BAD)))
def test_what_is_wrong_with_all_processes_is_said_once(arguments, message, tmp_path):
    out = [] if "--resume" in arguments else ["--out", tmp_path / "run"]
    said = [line for line in run(*arguments, *out, expect=2).splitlines() if not line.startswith(("step ", "text:"))]
    assert len(said) == 1
    assert said[0].startswith("transformer train: ")
    assert message in said[0]
