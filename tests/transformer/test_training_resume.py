"""Checkpoints: training that stops and goes on, or is killed, ends with the bits of training that never stopped."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import minigrad as mg
from minigrad.io import FormatError, load_file
from transformer import tasks
from transformer.training import Trainer, TrainSettings, checkpoint
from transformer.training.report import read_log

SIZES = tasks.ModelSettings(
    d_model=8, n_heads=2, n_kv_heads=1, n_layers=1, d_ff=12, dropout=0.2, max_len=12, batch_size=4, size=3
)


def trainer(folder, steps=8, task="reverse", **settings):
    made = tasks.make(task, SIZES, seed=5)
    plan = TrainSettings(**{"steps": steps, "warmup": 2, "log_every": 1, "save_every": 2, **settings})
    return Trainer(made.model, made.batch, plan, folder, pad_id=made.pad_id, notes={"title": task})


def content(folder):
    """Everything of a checkpoint that the next step depends on."""
    return {name: tensor.numpy() for name, tensor in load_file(folder / checkpoint.FILE).items()}, checkpoint.notes(
        folder
    )


def assert_equal(left, right):
    (tensors, notes), (others, other_notes) = content(left), content(right)
    assert notes == other_notes
    assert tensors.keys() == others.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(tensor, others[name], err_msg=name)


@pytest.mark.parametrize(
    "settings",
    [{"task": "text"}, {"compile": False, "accumulate": 2}, {"precision": "float16"}],
    ids=["compiled", "accumulated", "float16"],
)
def test_a_continued_run_ends_with_the_same_bits(tmp_path, settings):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    trainer(whole, **settings).run()

    class Stop(Exception):
        pass

    def interrupted(stop):
        held = trainer(parts, **settings)
        batch = held.batch

        def stopping(step):
            if step == stop:
                raise Stop
            return batch(step)

        held.batch = stopping
        return held

    with pytest.raises(Stop):  # after 5 steps; the last checkpoint is that of step 4
        interrupted(5).run()
    mg.rand(7)  # whatever else draws from the default generator
    again = interrupted(7)
    assert again.resume() == 4
    with pytest.raises(Stop):
        again.run()
    last = trainer(parts, **settings)
    assert last.resume() == 6
    last.run()
    assert_equal(whole, parts)
    logs = [[{k: v for k, v in r.items() if k != "tokens_per_s"} for r in read_log(f)] for f in (whole, parts)]
    assert logs[0] == logs[1]
    assert [record["step"] for record in logs[0]] == list(range(1, 9))
    assert "<svg" in (parts / "loss.svg").read_text()


def test_the_random_state_is_part_of_a_checkpoint(tmp_path):
    held = trainer(tmp_path, steps=2)
    held.run()
    state = content(tmp_path)[0]["random"]
    mg.manual_seed(99)
    trainer(tmp_path, steps=4).resume()
    np.testing.assert_array_equal(mg.random.default_generator.get_state(), state)


def test_a_failed_write_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    trainer(tmp_path, steps=2).run()
    before = (tmp_path / checkpoint.FILE).read_bytes()

    def full(*_):
        raise OSError("no space left on device")

    held = trainer(tmp_path, steps=6)
    held.resume()
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="no space left"):
            checkpoint.save(tmp_path, held.updater, 6, {})
    assert (tmp_path / checkpoint.FILE).read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == [checkpoint.FILE, "log.jsonl", "loss.svg"]


def test_what_cannot_be_resumed_is_said_in_one_sentence(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no checkpoint .* train one with"):
        trainer(tmp_path).resume()
    trainer(tmp_path, steps=2).run()
    other = tasks.make("reverse", tasks.ModelSettings(d_model=16, n_layers=1, batch_size=2), 0)
    with pytest.raises(ValueError, match="does not fit EncoderDecoder"):
        Trainer(other.model, other.batch, TrainSettings(steps=2), tmp_path).resume()
    whole = (tmp_path / checkpoint.FILE).read_bytes()
    (tmp_path / checkpoint.FILE).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(FormatError, match="truncated"):
        trainer(tmp_path).resume()


def test_an_unfinished_last_line_of_the_log_is_passed_over(tmp_path):
    trainer(tmp_path, steps=4).run()
    with open(tmp_path / "log.jsonl", "a") as file:
        file.write('{"step": 5, "lo')
    held = trainer(tmp_path, steps=6)
    held.resume()
    held.run()
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4, 5, 6]


# --- killed at random moments ---------------------------------------------------------------------

CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, {here!r})
import test_training_resume as tests
folder = Path(sys.argv[1])
held = tests.trainer(folder, steps={steps}, compile=False, save_every=1)
if (folder / tests.checkpoint.FILE).exists():
    held.resume()
save = held._save
def told():
    save()
    print(held.step, flush=True)
held._save = told
print("ready", flush=True)
held.run()
print("finished", flush=True)
"""


def killed(folder, steps, saves, delay):
    """Run a child until it has saved `saves` times and `delay` seconds more, then kill it.

    Returns the last step that it said it had saved, and whether it had come to its end.
    """
    code = CHILD.format(here=os.path.dirname(__file__), steps=steps)
    child = subprocess.Popen([sys.executable, "-c", code, str(folder)], stdout=subprocess.PIPE, text=True)
    said = [child.stdout.readline() for _ in range(1 + saves)]
    time.sleep(delay)
    child.send_signal(signal.SIGKILL)
    said = [line.strip() for line in [*said, *child.stdout]]
    child.wait()
    assert said[0] == "ready"
    return max((int(word) for word in said if word.isdigit()), default=0), "finished" in said


def survive(tmp_path, kills, steps, longest):
    """Kill a run again and again, at random moments, then let it finish: it must end as one that was never touched.

    Returns the step that it had reached by the last kill.
    """
    whole, hunted = tmp_path / "whole", tmp_path / "hunted"
    trainer(whole, steps=steps, compile=False, save_every=1).run()
    hunted.mkdir()
    rng, saved = random.Random(0), 0
    for _ in range(kills):
        told, finished = killed(hunted, steps, rng.randint(1, 4), rng.uniform(0, longest))
        saved = max(saved, told)
        assert content(hunted)[1]["step"] >= saved  # readable, and nothing that was saved is lost
        if finished:
            break
    last = trainer(hunted, steps=steps, compile=False, save_every=1)
    assert last.resume() >= saved
    last.run()
    assert_equal(whole, hunted)
    assert not list(hunted.glob(".*"))
    return saved


def test_training_survives_kill_9(tmp_path):
    assert survive(tmp_path, kills=2, steps=12, longest=0.05) >= 2


@pytest.mark.deep
def test_training_survives_many_kills(tmp_path):
    for run in range(10):
        (tmp_path / str(run)).mkdir()
        assert survive(tmp_path / str(run), kills=20, steps=120, longest=0.05) >= 20
