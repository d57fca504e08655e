"""`python -m transformer ... --device cuda`: every task trains, resumes and answers as on the CPU."""

from __future__ import annotations

import json

import numpy as np
import pytest

from minigrad import kernels
from transformer import tasks
from transformer.cli import main

pytestmark = pytest.mark.slow

TINY = ["--d-model", "8", "--n-heads", "2", "--n-kv-heads", "1", "--n-layers", "1", "--d-ff", "12", "--batch-size", "2"]
TINY += ["--max-len", "32", "--size", "3", "--steps", "3", "--log-every", "1", "--vocab", "259"]
USES = [
    ("text", ["generate", "--prompt", "ab", "--max-new-tokens", "3", "--temperature", "0"]),
    ("text", ["generate", "--prompt", "ab", "--max-new-tokens", "3", "--top-k", "40", "--stop", "e"]),
    ("reverse", ["translate", "abc", "xy"]),
    ("reverse", ["attention", "abc", "--numbers"]),
    ("masked", ["attention", "abc"]),
]


@pytest.fixture(autouse=True)
def _ops_by_reference():
    """What is tested here is who computes where, not the kernels."""
    with kernels.use("reference"):
        yield


@pytest.fixture(autouse=True)
def _little_is_held_out(monkeypatch):
    """Evaluations would take longer than all else here."""
    monkeypatch.setattr(tasks.Windows, "side_by_side", lambda self, length: iter([self.held_out[None, :length]]))
    answers = tasks.PairsTask.answers
    monkeypatch.setattr(
        tasks.PairsTask, "evaluate", lambda self: {"exact": len(answers(self, [self.test[0][0]], longest=4))}
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with runs of three tasks, trained on the CPU."""
    folder = tmp_path_factory.mktemp("runs")
    for task in ("reverse", "text", "masked"):
        assert main(["train", task, "--out", str(folder / task), "--no-compile", *TINY]) == 0
    return folder


def losses(folder):
    """The losses of a run's 3 steps."""
    return [json.loads(line)["loss"] for line in (folder / "log.jsonl").read_text().splitlines()[:3]]


def train(folder, *arguments):
    assert main(["train", "--out", str(folder), *arguments, *TINY]) == 0
    return losses(folder)


@pytest.mark.parametrize(
    ("task", "how"),
    [(task, "--no-compile") for task in ("reverse", "long-copy", "masked", "mixture")] + [("mixture", "--compile")],
)
def test_a_task_trains_as_on_the_cpu(cuda, tmp_path, task, how):
    here, there = (train(tmp_path / device, task, how, "--device", device) for device in ("cpu", "cuda"))
    assert cuda.driver.counts["allocate"]  # it did compute there
    np.testing.assert_allclose(there, here, rtol=1e-5)


def test_a_run_goes_on_where_it_did_not_begin(cuda, tmp_path, monkeypatch):
    settings = ["text", "--dropout", "0.2", "--save-every", "1", "--no-compile"]
    whole, batch = train(tmp_path / "whole", *settings), tasks.TextTask.batch

    def stopped(self, step):
        if step == 2:
            raise KeyboardInterrupt
        return batch(self, step)

    with monkeypatch.context() as patched:
        patched.setattr(tasks.TextTask, "batch", stopped)
        assert main(["train", "--out", str(tmp_path / "parts"), *settings, *TINY]) == 130
    assert main(["train", "--resume", str(tmp_path / "parts"), "--device", "cuda"]) == 0
    assert cuda.driver.counts["allocate"]
    np.testing.assert_allclose(losses(tmp_path / "parts"), whole, rtol=1e-5)


@pytest.mark.parametrize(("task", "command"), USES)
def test_what_was_trained_answers_as_on_the_cpu(cuda, runs, capsys, task, command):
    name, *more = command
    said = []
    for device in ("cpu", "cuda"):
        assert main([name, str(runs / task), *more, "--device", device]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert cuda.driver.counts["allocate"]
