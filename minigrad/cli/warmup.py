"""`minigrad warmup`: compile every CPU kernel now, so that no first step waits for it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterable

import numpy as np


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Compile every CPU kernel now (about half a minute, once), so that no first step waits for it."


def run(arguments: argparse.Namespace) -> int:
    from rich.progress import Progress

    start = time.perf_counter()
    jobs = list(kernels_to_compile())
    with Progress(transient=True) as progress:
        task = progress.add_task("compiling", total=len(jobs))
        for name, compile_one in jobs:
            progress.update(task, description=f"compiling {name}")
            compile_one()
            progress.advance(task)
    print(f"{len(jobs)} kernels are compiled and cached ({time.perf_counter() - start:.1f} s)")
    return 0


def kernels_to_compile() -> Iterable[tuple[str, Callable[[], None]]]:
    """(op, a call that runs its kernel on the op's own samples in float32)."""
    import minigrad.functional
    import minigrad.optim  # noqa: F401  (both register ops)
    from minigrad import kernels
    from minigrad.ops.registry import OPS

    for name, device, dtype in kernels.FAST:
        if device != "cpu":
            continue

        def compile_one(name: str = name, dtype: str = dtype) -> None:
            op = OPS[name]
            assert op.samples is not None
            for inputs, attrs in op.samples(np.random.default_rng(0)):
                arrays = [np.asarray(x) for x in inputs]
                scalars = 4 if name == "adam" else len(arrays)  # step and rate stay float64
                narrow = [a.astype(dtype) if a.dtype == np.float64 and i < scalars else a for i, a in enumerate(arrays)]
                with kernels.use("always"):
                    kernels.run(op, narrow, attrs)

        yield name, compile_one
