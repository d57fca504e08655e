"""kill -9 of what writes: a trainer, as its command starts it, and a writer of reports. What was saved stays.

The trainer of `tests/transformer/test_training_resume.py` is killed inside a process that is started for it; here it is
the command, which begins and resumes by itself. A writer of reports is killed as often as the machine starts processes.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conformance.report import read_reports
from minigrad.io import load_file
from minigrad.locks import only_writer
from transformer.training import checkpoint
from transformer.training.report import read_log

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no kill -9")

TINY = ["--d-model", "8", "--n-heads", "2", "--n-layers", "1", "--d-ff", "12", "--batch-size", "4", "--max-len", "32"]
TINY += ["--no-compile", "--log-every", "5", "--save-every", "1", "--steps", "100000"]

WRITER = """
import sys
from pathlib import Path
from conformance.catalogue import load
from conformance.report import Report, write_reports
from conformance.verdict import Result, Verdict
catalogue = load()
slugs = [claim.slug for claim in catalogue.claims.values() if claim.is_tested]
results = {slug: Result(slug, Verdict.PASS) for slug in slugs}
report = Report("model.py:X", None, "default", 0, results, catalogue, [], lambda slug: f"pytest {slug}")
folder = Path(sys.argv[1])
for turn in range(10**9):
    write_reports([report], folder / "report.json")
    write_reports([report], folder / "report.html")
    if not turn:
        print("written", flush=True)
"""


def killed(process: subprocess.Popen, delay: float) -> None:
    time.sleep(delay)
    assert process.poll() is None, process.stderr.read() if process.stderr else "it ended by itself"
    process.kill()
    assert process.wait() == -signal.SIGKILL


def wait_for_a_save(file: Path, process: subprocess.Popen) -> None:
    def written() -> int:
        return file.stat().st_mtime_ns if file.exists() else 0

    before = written()
    while written() == before or not checkpoint.notes(file)["step"]:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.005)


def train_and_kill(run: Path, kills: int, seed: int) -> int:
    """Train, and kill the trainer so many times at random moments; how many steps the run has come to."""
    chance, last = random.Random(seed), -1
    for turn in range(kills):
        begun = (run / checkpoint.FILE).exists()
        words = ["--resume", str(run)] if begun else ["reverse", "--out", str(run), *TINY]
        process = subprocess.Popen(
            [sys.executable, "-m", "transformer", "train", *words], stderr=subprocess.PIPE, text=True
        )
        if turn % 4 < 3:  # else at any moment of its start
            wait_for_a_save(run / checkpoint.FILE, process)
        killed(process, chance.uniform(0.0, 0.2))
        if not (run / checkpoint.FILE).exists():
            continue
        step = checkpoint.notes(run)["step"]
        assert load_file(run / checkpoint.FILE)
        assert step >= last, "a checkpoint was lost"
        assert all(record["step"] > 0 for record in read_log(run))
        last = step
        process.stderr.close()
    with only_writer(run):  # no lock is left
        checkpoint.clean(run)
    assert {path.name for path in run.iterdir()} <= {checkpoint.FILE, "log.jsonl", "loss.svg", "settings.toml"}
    return last


def write_and_kill(folder: Path, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(kills):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(folder)], stdout=subprocess.PIPE, text=True)
        assert process.stdout.readline() == "written\n"
        killed(process, chance.uniform(0.0, 0.1))
        process.stdout.close()
        assert len(read_reports(folder / "report.json")) == 1
        page = (folder / "report.html").read_text("utf-8")
        assert page.startswith("<!doctype html>")
        assert page.rstrip().endswith("</html>")


@pytest.mark.slow
def test_a_trainer_is_killed_and_goes_on(tmp_path):
    assert train_and_kill(tmp_path / "run", 3, seed=0) > 0


@pytest.mark.slow
def test_a_writer_of_reports_is_killed(tmp_path):
    write_and_kill(tmp_path, 7, seed=0)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(10))
def test_a_trainer_is_killed_20_times(tmp_path, seed):
    assert train_and_kill(tmp_path / "run", 20, seed) > 0


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(10))
def test_a_writer_of_reports_is_killed_80_times(tmp_path, seed):
    write_and_kill(tmp_path, 80, seed)
