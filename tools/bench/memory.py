"""Peak extra memory of causal attention, forward and backward, as the sequence doubles: 2 heads of 64, batch 1.

Every figure comes from a process of its own: the inputs are made, a short sequence is run, the kernel's record of the
peak is reset, and what one forward and backward pass adds to it is read (Linux only: /proc).
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

from tools.bench.timing import Result

LENGTHS = (4096, 8192)
HEADS, WIDTH, WARM = 2, 64, 256


@dataclass(frozen=True)
class Peak(Result):
    """ratio: their peak over ours at the longer sequence; the milliseconds are of that one pass."""

    @property
    def verdict(self) -> str:
        return "less" if self.ratio > 1 else "more"


def run(against: Sequence[str], seconds: float) -> list[Result]:
    """Ours against torch's written-out and fused attention; the notes say how each grows. One pass each, whatever
    `seconds` and `against` ask for. Raises RuntimeError where /proc does not tell a process's peak."""
    if not Path("/proc/self/clear_refs").exists():
        raise RuntimeError("the memory job reads a process's peak from /proc, which this system does not have")
    found = {who: [_measured(who, length) for length in LENGTHS] for who in ("ours", "manual", "fused")}
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


def _measured(who: str, length: int) -> tuple[float, float]:
    """(bytes, milliseconds) of one pass, from a process of its own."""
    command = [sys.executable, "-m", "tools.bench.memory", who, str(length)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    extra, milliseconds = json.loads(output)
    return extra, milliseconds


def _status(field: str) -> int:
    """A field of /proc/self/status in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(field)).split()[1]) * 1024


def _pass(who: str) -> Callable[[int], Callable[[], Any]]:
    """length -> a forward and backward pass of `who` on inputs of that length."""
    lib: Any = importlib.import_module("minigrad" if who == "ours" else "torch")
    fused = importlib.import_module("minigrad.functional" if who == "ours" else "torch.nn.functional")
    from tools.bench.attention import written_out

    def prepare(length: int) -> Callable[[], Any]:
        rng = np.random.default_rng(0)
        arrays = [rng.standard_normal((1, HEADS, length, WIDTH)).astype(np.float32) for _ in range(4)]
        inputs, seed = [lib.from_numpy(a).requires_grad_() for a in arrays[:3]], lib.from_numpy(arrays[3])

        def both() -> None:
            if who == "manual":
                written_out(*inputs).backward(seed)
            else:
                fused.scaled_dot_product_attention(*inputs, is_causal=True).backward(seed)

        return both

    return prepare


def main(who: str, length: int) -> None:
    """Print [extra bytes, milliseconds] of one pass."""
    prepare = _pass(who)
    prepare(WARM)()
    measured = prepare(length)
    Path("/proc/self/clear_refs").write_text("5")
    before, start = _status("VmRSS"), time.perf_counter()
    measured()
    milliseconds = (time.perf_counter() - start) * 1e3
    print(json.dumps([_status("VmHWM") - before, milliseconds]))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
