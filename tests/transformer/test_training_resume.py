"""Checkpoints: training that stops and goes on, or is killed, ends with the bits of training that never stopped."""

import contextlib
import json
import multiprocessing
import os
import random
import signal
import time

import numpy as np
import pytest

import minigrad as mg
from minigrad import kernels
from minigrad.io import FormatError, load_file, save_file
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


@pytest.mark.parametrize(
    "lost",
    [
        lambda tensors, training: tensors.pop("random"),
        lambda tensors, training: training.pop("scale"),
        lambda tensors, training: training.update(scale=[1]),
        lambda tensors, training: tensors.pop("optimizer.0.exp_avg_sq"),
        lambda tensors, training: [tensors.pop(name) for name in list(tensors) if name.startswith("optimizer.")],
        lambda tensors, training: tensors.update({"optimizer.999.exp_avg": mg.ones(1)}),
        lambda tensors, training: tensors.update({"optimizer.x": mg.ones(1)}),
        lambda tensors, training: training.update(step=-5),
    ],
)
def test_a_checkpoint_that_is_not_whole_is_not_resumed(tmp_path, lost):
    trainer(tmp_path, steps=2).run()
    tensors, training = load_file(tmp_path / checkpoint.FILE), checkpoint.notes(tmp_path)
    lost(tensors, training)
    save_file(tensors, tmp_path / checkpoint.FILE, {"training": json.dumps(training)})
    with pytest.raises(FormatError, match=r"is not whole|is no state of an optimizer|cannot be read"):
        trainer(tmp_path).resume()


def test_a_run_whose_steps_all_overflowed_is_resumed(tmp_path):
    held = trainer(tmp_path, steps=1, precision="float16")
    held.updater.scale.value = 2.0**60
    held.run()
    assert not any(name.startswith("optimizer.") for name in content(tmp_path)[0])
    assert trainer(tmp_path, steps=2, precision="float16").resume() == 1


def test_lines_of_the_log_that_are_no_records_are_passed_over(tmp_path):
    """The last one as a killed process leaves it, the others as nobody but an editor does."""
    trainer(tmp_path, steps=4).run()
    with open(tmp_path / "log.jsonl", "ab") as file:
        file.write(b'5\n[1]\n{"loss": 1.0}\n{"step": "4"}\n{"step": 4, "loss": null}\n\xff\n{"step": 5, "lo')
    held = trainer(tmp_path, steps=6)
    held.resume()
    held.run()
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4, 5, 6]


# --- killed at random moments ---------------------------------------------------------------------

PROCESSES = multiprocessing.get_context("forkserver")  # a child starts in no time, from a parent without threads
PROCESSES.set_forkserver_preload(["transformer.tasks", "transformer.training"])


STEPS = 300


def hunted_trainer(folder):
    """A trainer that goes on where the folder stands."""
    held = trainer(folder, steps=STEPS, compile=False, save_every=1, log_every=20)
    if (folder / checkpoint.FILE).exists():
        held.resume()
    return held


def train_on(folder, told):
    """Train from where the folder stands, telling each step that is saved."""
    held = hunted_trainer(folder)
    save = held._save

    def tell():
        save()
        told.send(held.step)

    held._save = tell
    with kernels.use("reference"):  # a child would spend most of its life importing numba
        held.run()


def killed(folder, saves, delay):
    """Let a child train until it has saved `saves` times and `delay` seconds more, then kill it.

    Returns the last step that it said it had saved.
    """
    ours, theirs = PROCESSES.Pipe(duplex=False)
    child = PROCESSES.Process(target=train_on, args=(folder, theirs))
    child.start()
    theirs.close()
    said = [ours.recv() for _ in range(saves)]
    time.sleep(delay)
    child.kill()
    child.join()
    assert child.exitcode == -signal.SIGKILL  # it had not come to its end
    with contextlib.suppress(EOFError, OSError):
        while True:
            said.append(ours.recv())
    return max(said)


@pytest.fixture(scope="module")
def untouched(tmp_path_factory):
    """The folder of a run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("untouched")
    with kernels.use("reference"):
        hunted_trainer(folder).run()
    return folder


def survive(hunted, untouched, kills, seed=0):
    """Kill a run again and again, at random moments, then let it finish: it must end as one that was never touched."""
    rng, saved = random.Random(seed), 0
    for _ in range(kills):
        saved = max(saved, killed(hunted, rng.randint(1, 4), rng.uniform(0, 0.03)))
        assert content(hunted)[1]["step"] >= saved  # readable, and nothing that was saved is lost
    last = hunted_trainer(hunted)
    assert last.step >= saved
    with kernels.use("reference"):
        last.run()
    assert_equal(untouched, hunted)
    assert not list(hunted.glob(".*"))


@pytest.mark.deep  # tests/attacks/test_kills.py kills a trainer in each run
def test_training_survives_kill_9(tmp_path, untouched):
    survive(tmp_path, untouched, kills=3)


@pytest.mark.deep
@pytest.mark.parametrize("run", range(10))
def test_training_survives_200_kills(tmp_path, untouched, run):
    survive(tmp_path, untouched, kills=20, seed=run)
