"""Cold start: what a new process costs until it can compute, and until the first training step of `tiny` is done.

Every measurement is a process of its own. "cold" has empty caches of compiled kernels, "warm" those that a process
before it has left; torch gets the same treatment (its compiler's cache is emptied and kept likewise).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tools.bench.timing import Result, compare

_ROOT = Path(__file__).resolve().parents[2]

_FIRST_STEP = """
import sys, time
import numpy as np
from tools.bench import train
contender = sys.argv[1]
if contender != "ours":
    import torch
else:
    import minigrad.compiler
job = train.JOBS["tiny"]
weights, batch = train.weights_of(job), job.batch(np.random.default_rng(1))
start = time.perf_counter()
if contender == "ours":
    train.ours(job, weights)(*batch)
else:
    train.theirs(job, weights, contender == "torch.compile", False)(*batch)
print(time.perf_counter() - start)
"""


def _process(code: str, *arguments: str, **environment: str) -> str:
    """What a new Python prints that runs `code` with bytecode caches as users have them."""
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | environment
    command = [sys.executable, "-W", "ignore", "-c", code, *arguments]
    return subprocess.run(command, cwd=_ROOT, env=variables, check=True, capture_output=True, text=True).stdout


def _import_ms(module: str) -> float:
    start = time.perf_counter()
    _process(f"import {module}")
    return (time.perf_counter() - start) * 1e3


def imports(seconds: float) -> list[Result]:
    """A process that imports minigrad, against one that imports numpy alone, in turns."""
    times: dict[str, list[float]] = {"minigrad": [], "numpy": []}
    for module in times:
        _import_ms(module)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times["numpy"]) < 5:
        for module, taken in times.items():
            taken.append(_import_ms(module))
    ratio = statistics.median(times["minigrad"]) / statistics.median(times["numpy"])
    return compare("startup import", times, "minigrad", f"{ratio:.2f} times a process that imports numpy")


def first_steps(against: Sequence[str]) -> list[Result]:
    """The first training step of `tiny` with empty and with filled caches."""
    results = []
    taken: dict[str, dict[str, float]] = {"cold": {}, "warm": {}}
    for contender in ("ours", *("torch eager" if name == "torch" else name for name in against)):
        with tempfile.TemporaryDirectory() as folder:
            places = {
                name: os.path.join(folder, name)
                for name in ("MINIGRAD_CACHE", "NUMBA_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
            }
            for state in taken:
                taken[state][contender] = float(_process(_FIRST_STEP, contender, **places)) * 1e3
    for state, times in taken.items():
        several = {name: [ms, ms] for name, ms in times.items()}
        results += compare(f"startup first step, {state}", several, notes="one process each: no spread")
    return results


def run(against: Sequence[str], seconds: float) -> list[Result]:
    """Imports, then first steps."""
    return [*imports(seconds), *first_steps(against)]
