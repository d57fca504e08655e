"""`python -m tools.bench.revisions REVISION`: how fast minigrad was at another commit of this repository, and is now.

Both take turns, each in a process of its own: before and after, after and before, and so on. In a turn every row is
timed for a second, with two threads. A row is a job of `tools.bench` without its rival. Printed is a Markdown table:
the median of the turns' ratios (the time now divided by the time before), how far its quartiles lie apart, and the
geometric mean of all rows.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

ROOT = Path(__file__).parents[2]
SECONDS = 1.0
"""Time for a row in a turn."""
TRAINED = ("tiny", "small", "mid", "nano", "documents")
DECODED = ("tiny", "nano")
LENGTHS = (256, 1024, 4096)
COUNT = 200
"""Ops in a row of ops."""


def rows() -> dict[str, float]:
    """The milliseconds of every row, with the minigrad that is on the path. It uses only what both revisions have."""
    start = time.perf_counter()
    import minigrad as mg

    found = {"import": 1e3 * (time.perf_counter() - start)}
    import numpy as np

    from tools.bench import attention, decode, train
    from tools.bench.timing import interleaved, use_threads

    use_threads(2)

    def timed(name: str, run: Callable[[], Any]) -> None:
        found[name] = statistics.median(interleaved({"ours": run}, SECONDS)["ours"])

    for name in TRAINED:
        job = train.JOBS[name]
        weights, batch = train.weights_of(job), job.batch(np.random.default_rng(1))
        start = time.perf_counter()
        step = train.ours(job, weights)
        step(*batch)
        if name == TRAINED[0]:
            found["first step"] = 1e3 * (time.perf_counter() - start)
        timed(f"train {name}", lambda step=step, batch=batch: step(*batch))  # type: ignore[misc]
    for name in DECODED:
        size = decode.size_of(name)
        next_id = decode.our_step(size, train.weights_of(train.gpt(size)))
        positions = [mg.tensor(i) for i in range(size.length)]

        def decoded(next_id: Any = next_id, positions: Any = positions) -> None:
            ids = mg.zeros(1, 1, dtype=mg.int64)
            with mg.no_grad():
                for position in positions:
                    ids = next_id(ids, position)

        timed(f"decode {name}", decoded)
    for length in LENGTHS:
        timed(f"attention T={length}", attention.contenders(length, ())["ours"])
    a = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    x, y = mg.from_numpy(a).requires_grad_(), mg.from_numpy(a)

    def forward() -> None:
        for _ in range(COUNT):
            x * y

    def both() -> None:
        for _ in range(COUNT):
            (x * y).backward(y)

    timed("op forward", forward)
    timed("op forward and backward", both)
    return found


def turn(folder: Path) -> dict[str, float]:
    """`rows` of the minigrad in this folder, in a new process. Raises subprocess.CalledProcessError."""
    code = f"import json, runpy; print(json.dumps(runpy.run_path({__file__!r})['rows']()))"
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def table(before: Sequence[dict[str, float]], after: Sequence[dict[str, float]]) -> str:
    lines = ["| row | before, ms | now, ms | now / before | spread |", "|---|---:|---:|---:|---:|"]
    middles = []
    for name in before[0]:
        ratios = [new[name] / old[name] for old, new in zip(before, after, strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        middles.append(middle)
        old, new = (statistics.median(found[name] for found in side) for side in (before, after))
        lines.append(f"| {name} | {old:.2f} | {new:.2f} | {middle:.2f} | {(high - low) / middle:.0%} |")
    return "\n".join([*lines, f"| geometric mean | | | {statistics.geometric_mean(middles):.3f} | |"])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench.revisions", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("revision", help="the commit to compare with")
    parser.add_argument("--turns", type=int, default=10, help="of each side (10)")
    options = parser.parse_args(arguments)
    if options.turns < 2:
        parser.error("--turns must be 2 or more: one says nothing of the spread")
    if shutil.which("git") is None:
        parser.error("git is not installed, which brings the other revision")
    with tempfile.TemporaryDirectory() as name:
        other = Path(name) / "before"
        git = ["git", "-C", str(ROOT), "worktree"]
        made = subprocess.run(
            [*git, "add", "--detach", str(other), options.revision], capture_output=True, text=True, check=False
        )
        if made.returncode:
            parser.error(f"git knows no revision {options.revision}: {made.stderr.strip().splitlines()[-1]}")
        try:
            sides = _sides(other, options.turns)
        except subprocess.CalledProcessError as error:
            last = (error.stderr or "").strip().splitlines()[-1:]
            print(f"A turn of {options.revision} or of this revision failed: {' '.join(last)}", file=sys.stderr)
            return 1
        finally:
            subprocess.run([*git, "remove", "--force", str(other)], check=False)
    print(table(*sides))
    return 0


def _sides(other: Path, turns: int) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """The turns of the revision in another folder, and of this one. Raises subprocess.CalledProcessError."""
    sides = {other: list[dict[str, float]](), ROOT: list[dict[str, float]]()}
    with Progress(console=Console(stderr=True)) as progress:
        bar = progress.add_task("filling caches", total=turns + 1)
        for folder in sides:
            turn(folder)  # compiles, and is not counted
        for number in range(turns):
            progress.update(bar, advance=1, description=f"turn {number + 1}")
            for folder in list(sides)[:: 1 if number % 2 else -1]:
                sides[folder].append(turn(folder))
    return sides[other], sides[ROOT]


if __name__ == "__main__":
    sys.exit(main())
