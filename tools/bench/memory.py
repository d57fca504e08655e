"""Peak memory: of causal attention as the sequence doubles, of training and of decoding.

Every figure comes from a process of its own that imports both libraries and makes the data; then the kernel's record of
the peak is reset, the work is done, and what it added to the memory in use is read (Linux only: /proc).

    attention   one forward and backward pass, 2 heads of 64, batch 1, after a short one: scores and what they need
    train       model, optimizer and three steps: weights, gradients, moments, activations, and the libraries' own
                buffers and code (kernels come from the cache)
    decode      model, cache and 256 tokens
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tools.bench import decode, train
from tools.bench.attention import written_out
from tools.bench.timing import Result

LENGTHS = (4096, 8192)
HEADS, WIDTH, WARM = 2, 64, 256
STEPS = 3
MODELS = (("train", ("tiny", "small", "nano", "mid", "documents")), ("decode", ("tiny", "nano")))
Work = Callable[[], Any]


@dataclass(frozen=True)
class Peak(Result):
    """ratio: their peak over ours (attention's at the longer sequence); the milliseconds are of that one process."""

    @property
    def verdict(self) -> str:
        return "less" if self.ratio > 1 else "more"


def run(against: Sequence[str], seconds: float) -> list[Result]:
    """Ours against torch eager, once each, whatever `seconds` and `against` ask for. Raises RuntimeError where /proc
    does not tell a process's peak."""
    if not Path("/proc/self/clear_refs").exists():
        raise RuntimeError("the memory job reads a process's peak from /proc, which this system does not have")
    return [*_attention(), *(_model(job, name) for job, names in MODELS for name in names)]


def _attention() -> list[Result]:
    """Ours against torch's written-out and fused attention; the notes say how each grows."""
    found = {who: [_measured("attention", who, str(n)) for n in LENGTHS] for who in ("ours", "manual", "fused")}
    (small, _), (large, ours_ms) = found["ours"]
    results: list[Result] = []
    for who, name in (("manual", "torch eager, manual attention"), ("fused", "torch eager")):
        (their_small, _), (their_large, theirs_ms) = found[who]
        notes = (
            f"{LENGTHS[0]} to {LENGTHS[1]}: ours {small / 1e6:.0f} to {large / 1e6:.0f} MB ({large / small:.2f} x), "
            f"theirs {their_small / 1e6:.0f} to {their_large / 1e6:.0f} MB ({their_large / their_small:.2f} x)"
        )
        results.append(Peak(f"memory T={LENGTHS[1]}", name, their_large / large, ours_ms, theirs_ms, 0.0, notes))
    return results


def _model(job: str, name: str) -> Result:
    """Training or decoding, ours (with its kernels in the cache) against torch eager."""
    _measured(job, "ours", name)
    (ours, ours_ms), (theirs, theirs_ms) = (_measured(job, who, name) for who in ("ours", "theirs"))
    notes = f"ours {ours / 1e6:.0f} MB, theirs {theirs / 1e6:.0f} MB"
    return Peak(f"memory {job} {name}", "torch eager", theirs / ours, ours_ms, theirs_ms, 0.0, notes)


def _measured(job: str, who: str, which: str) -> tuple[float, float]:
    """(bytes, milliseconds) of one process: `job` by `who` for a model or a length."""
    command = [sys.executable, "-m", "tools.bench.memory", job, who, which]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    extra, milliseconds = json.loads(output)
    return extra, milliseconds


def _status(field: str) -> int:
    """A field of /proc/self/status in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024


def _pass(who: str, length: int) -> Work:
    """A forward and backward pass of attention at that length, after a short one."""
    lib: Any = importlib.import_module("minigrad" if who == "ours" else "torch")
    fused = importlib.import_module("minigrad.functional" if who == "ours" else "torch.nn.functional")

    def prepare(length: int) -> Work:
        rng = np.random.default_rng(0)
        arrays = [rng.standard_normal((1, HEADS, length, WIDTH)).astype(np.float32) for _ in range(4)]
        inputs, seed = [lib.from_numpy(a).requires_grad_() for a in arrays[:3]], lib.from_numpy(arrays[3])

        def both() -> None:
            if who == "manual":
                written_out(*inputs).backward(seed)
            else:
                fused.scaled_dot_product_attention(*inputs, is_causal=True).backward(seed)

        return both

    prepare(WARM)()
    return prepare(length)


def _training(who: str, name: str) -> Work:
    job = train.JOBS[name]
    weights, batch = train.weights_of(job), job.batch(np.random.default_rng(1))

    def steps() -> None:
        step = train.ours(job, weights) if who == "ours" else train.theirs(job, weights, False, False)
        for _ in range(STEPS):
            step(*batch)

    return steps


def _decoding(who: str, name: str) -> Work:
    size = decode.size_of(name)
    weights = train.weights_of(train.gpt(size))
    return lambda: (decode.ours(size, weights) if who == "ours" else decode.theirs(size, weights, False))()


def main(job: str, who: str, which: str) -> None:
    """Print [extra bytes, milliseconds] of one piece of work."""
    importlib.import_module("torch")
    make: dict[str, Callable[[], Work]] = {
        "attention": lambda: _pass(who, int(which)),
        "train": lambda: _training(who, which),
        "decode": lambda: _decoding(who, which),
    }
    work = make[job]()
    Path("/proc/self/clear_refs").write_text("5")
    before, start = _status("VmRSS"), time.perf_counter()
    work()
    milliseconds = (time.perf_counter() - start) * 1e3
    print(json.dumps([_status("VmHWM") - before, milliseconds]))


if __name__ == "__main__":
    main(*sys.argv[1:])
