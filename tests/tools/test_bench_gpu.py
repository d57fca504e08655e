"""The GPU benchmark's own logic, with clocks that are told the time; and one sentence where there is no GPU."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import numpy as np
import pytest

import minigrad as mg
from tools.bench import __main__ as bench
from tools.bench import gpu, page

torch = pytest.importorskip("torch")


class FakeClock:
    """A device on which every call takes `ms`, and the first turn twice as long."""

    def __init__(self, ms):
        self.ms, self.turns = ms, 0

    def milliseconds(self, run, calls):
        self.turns += 1
        for _ in range(calls):
            run()
        return self.ms * calls * (2 if self.turns == 1 else 1)


def row(aim=1.0, off=0.0, **more):
    x = np.array([1.0, 2.0], np.float32)
    return gpu.Row(aim, lambda: (lambda: mg.tensor(x * (1 + off)), lambda: torch.tensor(x)), **more)


def test_the_ratio_is_of_medians_without_the_warm_up():
    timed = gpu.measure("r", row(aim=1.5), FakeClock(2.0), FakeClock(4.0), 0.0)
    assert (timed.ratio, timed.ours_ms, timed.theirs_ms, timed.spread, timed.gap) == (2.0, 2.0, 4.0, 0.0, 0.0)
    assert timed.verdict == "reached"
    assert gpu.measure("r", row(aim=2.5), FakeClock(2.0), FakeClock(4.0), 0.0).verdict == "below"


def test_different_results_are_refused():
    with pytest.raises(ValueError, match=r"r: the results differ by 0\.05, at most 0\.001 was expected"):
        gpu.measure("r", row(off=0.05), FakeClock(1.0), FakeClock(1.0), 0.0)
    assert gpu.measure("r", row(off=0.05, tolerance=None), FakeClock(1.0), FakeClock(1.0), 0.0).gap is None


def broken():
    raise RuntimeError("a | fault\nof the device")


def test_a_row_that_fails_has_its_sentence_and_a_page_keeps_the_others(tmp_path, monkeypatch):
    rows = {"a": row(), "b": row(aim=4.0), "c": gpu.Row(1.0, broken)}
    monkeypatch.setattr(gpu, "ROWS", rows)
    found = [gpu.run(name, row, 0.0, FakeClock(1.0), FakeClock(3.0)) for name, row in rows.items()]
    target = tmp_path / "cuda.md"
    target.write_text("before\n<!-- results: begin -->\nopen\n<!-- results: end -->\nafter\n")
    gpu.write(target, found[1:], "an H200")
    gpu.write(target, found[:1], "an H200")
    text = target.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    table = [line for line in text.splitlines() if line.startswith("| ")]
    assert table[1:] == [
        "| a | 3.00 | 1 | 1.000 | 3.000 | 0% | reached |",
        "| b | 3.00 | 4 | 1.000 | 3.000 | 0% | below |",
        "| c | | 1 | | | | failed: RuntimeError: a / fault of the device |",
    ]
    gpu.write(target, found[:1], "another machine")
    assert "| b |" not in target.read_text()


@pytest.mark.parametrize(
    ("program", "seconds", "error"),
    [
        ("import os; os.kill(os.getpid(), 9)", 60.0, "the process ended with -9: nothing on standard error"),
        ("import sys; sys.exit('no memory left')", 60.0, "the process ended with 1: no memory left"),
        ("import time; time.sleep(60)", 0.5, "no answer within 0.5 s"),
    ],
)
def test_a_process_that_is_ended_leaves_the_others_alone(program, seconds, error):
    found = gpu.run_apart("softmax", 0.0, seconds, [sys.executable, "-c", program])
    assert found == gpu.Failed("softmax", 0.95, error)


def test_what_a_process_measured_is_read():
    timed = gpu.measure("softmax", row(), FakeClock(1.0), FakeClock(3.0), 0.0)
    said = json.dumps([{**asdict(timed), "verdict": timed.verdict}])
    assert gpu.run_apart("softmax", 0.0, 30.0, [sys.executable, "-c", f"print({said!r})"]) == timed


def test_the_docs_page_has_a_place_for_the_table():
    assert page.read(gpu.PAGE)


def test_the_rows_that_are_promised():
    aims = {"matmul-float32-8192": 1.0, "matmul-bfloat16-1024": 0.3, "cross-entropy-50k": 1.5, "decode-nano": 3.0}
    assert {name: gpu.ROWS[name].aim for name in aims} == aims
    assert {f"train-{name}" for name in ("tiny", "small", "nano", "gpt2-small")} <= set(gpu.ROWS)


def test_without_a_gpu_one_sentence_says_so(monkeypatch, capsys):
    from minigrad.kernels.cuda import driver, runtime

    def none():
        raise driver.CudaError("there is no CUDA driver on this machine")

    monkeypatch.setattr(runtime, "_runtime", None)
    monkeypatch.setattr(driver, "_bindings", none)
    monkeypatch.delenv("MINIGRAD_CUDA", raising=False)
    assert bench.main(["gpu", "softmax"]) == 2
    assert capsys.readouterr().err == "the gpu benchmark needs a GPU: there is no CUDA driver on this machine\n"
