"""`train --data`: a model of one's own text in one command, and what is no text; training that ends by itself."""

import json

import numpy as np
import pytest

from transformer import data
from transformer.cli import main
from transformer.cli.settings import collect, read_toml, to_toml
from transformer.training import checkpoint

TINY = [
    "--d-model",
    "16",
    "--n-heads",
    "2",
    "--n-kv-heads",
    "1",
    "--n-layers",
    "1",
    "--d-ff",
    "24",
    "--batch-size",
    "8",
]
TINY += ["--max-len", "16", "--warmup", "5", "--no-compile"]
RHYME = "the cat sat on the mat, the rat sat on the cat. \n" * 60


def said(capsys, *arguments):
    """(exit code, standard output, standard error) of a command."""
    code = main([str(argument) for argument in arguments])
    return code, *capsys.readouterr()


def log(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_one_command_learns_a_file_and_continues_it(tmp_path, capsys, monkeypatch):
    (tmp_path / "rhyme.txt").write_text(RHYME)
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    command = ["train", "text", "--data", "rhyme.txt", "--out", run, *TINY, "--lr", "2e-2", "--steps", 150]
    assert said(capsys, *command, "--evaluate-every", 150)[0] == 0
    last = log(run)[-1]
    assert last["perplexity"] == pytest.approx(np.exp(last["held_out_loss"]))
    assert last["perplexity"] < 4
    code, text, _ = said(capsys, "generate", run, "--prompt", "the c", "--temperature", 0, "--max-new-tokens", 2)
    assert (code, text) == (0, "the cat\n")
    monkeypatch.chdir("/")
    assert said(capsys, "train", "--resume", run, "--steps", 152)[0] == 0
    assert checkpoint.notes(run)["step"] == 152
    (tmp_path / "rhyme.txt").write_text(RHYME.replace("cat", "dog"))
    code, _, shown = said(capsys, "train", "--resume", run, "--steps", 160)
    assert code == 2
    assert f"is not the text that {run} began to learn" in shown
    (tmp_path / "rhyme.txt").unlink()
    assert said(capsys, "generate", run, "--max-new-tokens", 2)[0] == 0  # the text is not asked for
    code, _, shown = said(capsys, "train", "--resume", run, "--steps", 160)
    assert (code, "there is no file or folder" in shown) == (2, True)


def test_a_folder_is_read_in_the_order_of_names(tmp_path):
    (tmp_path / "b").mkdir()
    for name, text in (("b/z.txt", "last"), ("a.txt", "first"), ("notes.md", "not this"), ("b.txt", "second")):
        (tmp_path / name).write_text(text)
    assert data.own_text(tmp_path) == "first\nlast\nsecond"
    assert data.own_text(tmp_path / "notes.md") == "not this"


@pytest.mark.parametrize(
    ("task", "name", "content", "message"),
    [
        ("text", "none.txt", None, "there is no file or folder"),
        ("text", "folder", "", "a folder of data has files that end with .txt"),
        ("text", "latin.txt", b"caf\xe9 au lait", "is not UTF-8 text: byte 3 begins no character"),
        ("text", "empty.txt", b"", "the last tenth of the text, which is held out, has 0 tokens: max_len, 16, must be"),
        ("text", "short.txt", b"x" * 150, "held out, has 15 tokens: max_len, 16, must be smaller"),
        ("reverse", "fine.txt", RHYME.encode(), "is learned by text, masked, mixture, and not by reverse"),
    ],
)
def test_what_cannot_be_learned_is_one_sentence(task, name, content, message, tmp_path, capsys):
    path = tmp_path / name
    if content == "":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    code, _, shown = said(capsys, "train", task, "--data", path, "--out", tmp_path / "run", *TINY, "--steps", 2)
    assert (code, shown.count("\n")) == (2, 1)
    assert message in shown
    assert not (tmp_path / "run").exists()


def test_training_ends_when_patience_does_and_stays_ended(tmp_path, capsys):
    (tmp_path / "noise.txt").write_text("".join(np.random.default_rng(0).choice([*"abcdefgh"], 3000)))
    run = tmp_path / "run"
    command = ["train", "text", "--data", tmp_path / "noise.txt", "--out", run, *TINY, "--lr", "3e-2", "--steps", 1000]
    command += ["--evaluate-every", 10, "--log-every", 10, "--save-every", 1000, "--patience", 3]
    code, _, shown = said(capsys, *command)
    losses = [record["held_out_loss"] for record in log(run) if "held_out_loss" in record]
    assert code == 0
    assert len(losses) - 1 - int(np.argmin(losses)) == 3
    step = 10 * len(losses)
    assert step < 1000
    assert f"stopped after {step} of 1000 steps: 3 evaluations without a better held-out loss" in shown
    assert checkpoint.notes(run)["step"] == step
    assert said(capsys, "train", "--resume", run)[0] == 0
    assert checkpoint.notes(run)["step"] == step


def test_settings_with_any_path_are_read_back(tmp_path):
    settings = collect("text", {}, {"data": 'C:\\books\\"é".txt'})
    (tmp_path / "settings.toml").write_text(to_toml(settings), encoding="utf-8")
    assert collect(None, read_toml(tmp_path / "settings.toml"), {}) == settings
