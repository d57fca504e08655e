"""Commands that are asked for what cannot be, or whose output cannot be written: one sentence and exit code 2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import minigrad as mg
from minigrad.cli import main as minigrad
from minigrad.kernels import threads, use
from tools import pictures
from transformer.cli import main as transformer

FUNCTION = "def f(x):\n    return x.exp().sum()\n"


@pytest.mark.parametrize(
    ("shape", "complaint"),
    [
        ("2x-3", "is no shape"),
        ("-1", "is no shape"),
        ("", ""),
        ("x", "is no shape"),
        ("2x", "is no shape"),
        ("2.5", "is no shape"),
        ("nan", "is no shape"),
        ("f31:2", "is no shape"),
        ("2x3x", "is no shape"),
        ("1000000x1000000", "may have 134,217,728"),
        ("99999999999999999999", "may have 134,217,728"),
        ("x".join(["2"] * 64), "may have 134,217,728"),
    ],
)
def test_an_input_that_cannot_be_drawn_is_one_sentence(tmp_path, capsys, shape, complaint):
    (tmp_path / "s.py").write_text(FUNCTION)
    code = minigrad(["render", f"{tmp_path / 's.py'}:f", f"--input={shape}", "-o", str(tmp_path / "o.dot")])
    said = capsys.readouterr().err
    assert (code, said.count("\n")) == ((2, 1) if complaint else (0, 0))
    assert complaint in said


@pytest.mark.parametrize(
    "source", [b"def f(:\n", b"x = 1\0\n", b"\xff\xfe", b"  indented\n", b"'" * 3, b"(" * 1000], ids=range(6)
)
def test_a_program_that_is_none_is_one_sentence(tmp_path, capsys, source):
    (tmp_path / "p.py").write_bytes(source)
    assert minigrad(["step", str(tmp_path / "p.py")]) == 2
    said = capsys.readouterr().err
    assert "is no program of Python" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("option", ["--batch-size", "--size"])
@pytest.mark.parametrize("number", ["99999999999999", "1000001", "0", "-1"])
def test_a_batch_that_would_never_come_is_one_sentence(tmp_path, capsys, option, number):
    assert transformer(["train", "reverse", "--out", str(tmp_path / "run"), option, number]) == 2
    said = capsys.readouterr().err
    assert "must be at most 1,000,000" in said or "must be at least 1" in said
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("command", [["minigrad", "explain", "softmax"], ["conformance", "list"]])
def test_an_output_that_is_full_is_one_sentence(command):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", *command], stdout=full, stderr=subprocess.PIPE, text=True, timeout=120
        )
    assert (done.returncode, done.stderr) == (2, f"{command[0]} {command[1]}: No space left on device\n")


@pytest.mark.parametrize("command", [["minigrad", "explain", "softmax"], ["conformance", "list"]])
def test_a_reader_that_leaves_is_no_mistake(command):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-m", *command], stdout=writing, stderr=subprocess.PIPE, timeout=120)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_the_pictures_take_no_argument(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(pictures, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", ["pictures", "ANYTHING"])
    with pytest.raises(SystemExit):
        pictures.main()
    assert "unrecognized arguments: ANYTHING" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("dimensions", [32, 33, 40, 64])
def test_as_many_dimensions_as_arrays_have(dimensions):
    x = np.arange(6, dtype=np.float32).reshape((1,) * (dimensions - 2) + (2, 3))

    def f(x):
        return x * 2 + x.exp()

    with use("always"):
        compiled = mg.compile(f)(mg.tensor(x))
    np.testing.assert_allclose(compiled.numpy(), x * 2 + np.exp(x), rtol=1e-6)
    leaf = mg.tensor(x, requires_grad=True)
    f(leaf).sum().backward()
    np.testing.assert_allclose(leaf.grad.numpy(), 2 + np.exp(x), rtol=1e-6)


def test_shapes_of_many_dimensions_that_do_not_fit_are_one_sentence():
    left, right = mg.ones(*(1,) * 38, 2, 3), mg.ones(*(1,) * 38, 3, 3)
    with pytest.raises(ValueError, match="do not broadcast"):
        mg.compile(lambda a, b: a + b)(left, right)


@pytest.mark.parametrize("text", ["²", "٣", "1_0", "0x4", " ", "1e3"])
def test_what_is_no_number_of_threads_is_passed_over(monkeypatch, text):
    monkeypatch.setenv("MINIGRAD_NUM_THREADS", text)
    monkeypatch.setattr(threads, "_threads", 0)
    assert 1 <= threads.get_num_threads() <= 16
