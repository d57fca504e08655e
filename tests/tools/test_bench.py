"""The benchmark's own arithmetic: verdicts, the picture, the page, and that both libraries run the same models."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from tools import page_speed
from tools.bench import memory, page, plot, revisions, timing
from tools.bench.memory import Peak
from tools.bench.timing import Result

ROOT = Path(__file__).resolve().parents[2]


def result(ratio=2.0, spread=0.1, **more):
    return Result("train tiny", "torch <eager>", ratio, 1.0, ratio, spread, **more)


@pytest.mark.parametrize(
    ("ratio", "spread", "verdict"),
    [(1.2, 0.1, "faster"), (0.8, 0.1, "slower"), (1.2, 0.3, "noise"), (0.9, 0.2, "noise"), (1.0, 0.0, "noise")],
)
def test_a_difference_inside_the_spread_is_noise(ratio, spread, verdict):
    assert result(ratio, spread).verdict == verdict


def test_rounds_are_compared_one_by_one_and_the_ratios_spread_counts():
    times = {"ours": [1.0, 1.0, 1.0, 9.0], "a": [2.0, 2.0, 2.0, 2.0], "b": [2.0, 2.2, 1.8, 18.0]}
    a, b = timing.compare("job", times)
    assert (a.against, a.ratio, a.ours_ms, a.theirs_ms) == ("a", 2.0, 1.0, 2.0)
    assert a.spread == timing.spread([2.0, 2.0, 2.0, 2 / 9])
    assert (b.ratio, b.theirs_ms) == (2.0, 2.1)  # a round that the machine held up held up both
    assert b.spread == timing.spread([2.0, 2.2, 1.8, 2.0])
    with pytest.raises(ValueError, match="longer"):
        timing.compare("job", {"ours": [1.0, 1.0], "a": [1.0]})


@pytest.mark.parametrize(("theirs", "calls"), [(0.05, timing.TURN + 1), (0.5, timing.TURN + 1), (None, 1)])
def test_contenders_take_turns_that_are_alike_and_every_turn_gives_one_figure(theirs, calls, monkeypatch):
    now, order = [0.0], []
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(timing.time, "sleep", lambda seconds: order.append("pause"))

    def call(name, *seconds):
        def run():
            order.append(name)
            now[0] += seconds[order.count(name) % len(seconds)]

        return run

    ours = call("ours", 0.01, 0.02, 0.03) if theirs else call("ours", 0.2)  # one of them is short, or nobody is
    times = timing.interleaved({"ours": ours, "a": call("a", theirs or 0.5)}, seconds=0, least=2)
    assert order == ["ours", "a"] * 2 + (["pause"] + ["ours"] * calls + ["pause"] + ["a"] * calls) * 2
    assert times["ours"] == pytest.approx([20.0, 20.0] if theirs else [200.0, 200.0])  # the median of three
    assert times["a"] == pytest.approx([1e3 * (theirs or 0.5)] * 2)


def test_shares_are_of_what_the_machine_was_measured_to_do(monkeypatch):
    monkeypatch.setattr(timing, "sgemm_peak", lambda: 100.0)
    monkeypatch.setattr(timing, "copy_bandwidth", lambda: 20.0)
    (found,) = timing.compare("job", {"ours": [10.0, 10.0], "a": [10.0, 10.0]}, flops=5e8, moved=1e8)
    assert found.flops_share == pytest.approx(0.5)
    assert found.bandwidth_share == pytest.approx(0.5)


def test_rows_are_json_with_the_promised_keys():
    row = json.loads(json.dumps(result().row()))
    assert {"job", "against", "ratio", "ours_ms", "theirs_ms", "spread", "verdict"} <= set(row)


def test_the_picture_is_svg_with_a_bar_for_each_comparison():
    results = [result(0.25), result(1.0), result(30.0)]
    root = ElementTree.fromstring(plot.svg(results, "2 < 3"))
    bars = [e for e in root.iter() if e.tag.endswith("rect")]
    assert len(bars) == 3
    assert [b.get("fill") for b in bars] == ["#b4482f", "#9a9a9a", "#2f7d4f"]


def test_the_picture_shows_peaks_of_memory_too():
    results = [Peak("memory", "torch", ratio, 1.0, 1.0, 0.0) for ratio in (0.5, 2.0)]
    root = ElementTree.fromstring(plot.svg(results))
    assert [e.get("fill") for e in root.iter() if e.tag.endswith("rect")] == ["#b4482f", "#2f7d4f"]


def test_peaks_of_models_are_compared_with_torchs(monkeypatch):
    measured = []
    monkeypatch.setattr(memory, "MODELS", (("train", ("small",)), ("decode", ("tiny",))))
    monkeypatch.setattr(memory, "_attention", list)
    monkeypatch.setattr(
        memory, "_measured", lambda *what: measured.append(what) or ((10e6, 1.0) if what[1] == "ours" else (25e6, 2.0))
    )
    train, decode = memory.run(["torch"], 1.0)
    assert (train.job, train.ratio, train.verdict, train.notes) == (
        "memory train small", 2.5, "less", "ours 10 MB, theirs 25 MB",
    )  # fmt: skip
    assert decode.job == "memory decode tiny"
    assert measured[:3] == [("train", who, "small") for who in ("ours", "ours", "theirs")]  # once to fill the cache


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="reads a process's peak from /proc")
def test_a_peak_is_what_the_work_added():
    """In a process of its own, as the job does: this one may have memory left that it does not ask the system for."""
    pytest.importorskip("torch")
    code = """
import numpy as np
from tools.bench import memory
memory._decoding = lambda who, which: lambda: np.ones(40_000_000, np.uint8).sum()
memory.main("decode", "ours", "tiny")
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)
    extra, milliseconds = json.loads(done.stdout)
    assert 35e6 < extra < 60e6
    assert milliseconds > 0


def test_the_page_keeps_what_is_around_its_results(tmp_path):
    file = tmp_path / "speed.md"
    file.write_text(f"before\n{page.START}\nold\n{page.END}\nafter\n", encoding="utf-8")
    page.write(file, page.section([result(flops_share=0.5)], {"cores": 2}, "command"))
    text = file.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    assert "old" not in text
    assert "| train tiny | torch <eager> | 2.00 | 1.00 | 2.00 | 10% | faster | 50% |  |" in text
    page.write(file, "new")
    assert "| train tiny" not in file.read_text(encoding="utf-8")
    file.write_text("no marks", encoding="utf-8")
    with pytest.raises(ValueError, match="no section of results"):
        page.write(file, "new")


def test_the_plan_of_a_decoding_step_is_broken_down_by_op(monkeypatch):
    from tools.bench import breakdown, decode

    monkeypatch.setattr(decode, "LENGTH", 8)
    rows = breakdown.by_op(decode.plan("tiny"))
    assert {"matmul", "layer_norm", "flash_attention", "put", "argmax"} <= {op for op, _, _ in rows}
    assert all(ms > 0 for _, _, ms in rows)
    assert [ms for *_, ms in rows] == sorted((ms for *_, ms in rows), reverse=True)


@pytest.mark.slow
def test_both_libraries_decode_and_train_alike(monkeypatch):
    pytest.importorskip("torch")
    from dataclasses import replace

    from tools.bench import decode, train
    from tools.bench.models import EncoderDecoder

    size = replace(decode.size_of("tiny"), length=12)
    weights = train.weights_of(train.gpt(size))
    assert decode.ours(size, weights)() == decode.theirs(size, weights, False)()
    job = train.documents(EncoderDecoder(50, 16, 2, 1, 32, 2, 6, 5))
    weights = train.weights_of(job)
    rng = np.random.default_rng(0)
    ours, theirs = train.ours(job, weights), train.theirs(job, weights, False, True)
    for _ in range(3):
        batch = job.batch(rng)
        assert ours(*batch) == pytest.approx(theirs(*batch), abs=1e-4)


# --- two revisions


def test_a_revision_is_compared_turn_by_turn():
    before = [{"import": 100.0, "step": 8.0}, {"import": 110.0, "step": 8.0}, {"import": 300.0, "step": 8.0}]
    after = [{"import": 50.0, "step": 4.0}, {"import": 55.0, "step": 4.0}, {"import": 150.0, "step": 4.0}]
    rows = revisions.table(before, after).splitlines()
    assert rows[2] == "| import | 110.00 | 55.00 | 0.50 | 0% |"
    assert rows[-1] == "| geometric mean | | | 0.500 | |"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [(["bcdbdb0", "--turns", "1"], "--turns must be 2 or more"), (["no-such-revision"], "git knows no revision")],
)
def test_what_cannot_be_compared_is_one_sentence(arguments, sentence, capsys):
    with pytest.raises(SystemExit) as refused:
        revisions.main(arguments)
    assert refused.value.code == 2
    assert sentence in capsys.readouterr().err


# --- the scripts of a page


def test_of_two_pages_the_slower_frame_counts():
    rows = page_speed.table([{"zoom": 2.4, "drag": 3.0}, {"zoom": 3.6, "drag": 1.0}]).splitlines()
    assert rows[2:] == ["| zoom | 4 |", "| drag | 3 |"]


def test_without_a_browser_nothing_is_measured(monkeypatch, capsys):
    monkeypatch.setattr(page_speed, "missing", lambda: "chromium")
    assert page_speed.main() == 2
    assert "not installed: chromium" in capsys.readouterr().err
