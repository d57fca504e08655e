"""Fair timing: contenders take turns, each round is compared, and a difference inside the noise is called that."""

from __future__ import annotations

import gc
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Result:
    """One comparison. ratio: theirs over ours (above 1 we are faster), the median of all rounds; spread: the distance
    between the ratios' quartiles over their median; ours_ms, theirs_ms: medians of milliseconds.

    flops_share: our FLOP/s over the machine's sgemm peak; bandwidth_share: our bytes/s over its copy bandwidth.
    """

    job: str
    against: str
    ratio: float
    ours_ms: float
    theirs_ms: float
    spread: float
    notes: str = ""
    flops_share: float | None = None
    bandwidth_share: float | None = None

    @property
    def verdict(self) -> str:
        """ "faster", "slower", or "noise" where the difference is smaller than the spread."""
        if abs(self.ratio - 1) <= self.spread:
            return "noise"
        return "faster" if self.ratio > 1 else "slower"

    def row(self) -> dict[str, Any]:
        return {**asdict(self), "verdict": self.verdict}


TURN = 3  # timed calls of a contender in a row
LONG = 100.0  # milliseconds from which calls, if everyone's take as long, are turns of their own
SETTLE = 0.01  # seconds after which a library's idle threads have gone to sleep (measured: 5 to 10 ms)


def interleaved(contenders: Mapping[str, Callable[[], Any]], seconds: float, least: int = 5) -> dict[str, list[float]]:
    """Milliseconds of each contender's calls, one figure for each of its turns: a round is a turn of everyone.

    A library's idle threads spin for some milliseconds after its work and slow down whoever comes next (measured: a
    small step took up to twice as long right after torch's, and 4 ms later still 1.6 times). So every turn begins with
    a pause and, where calls are short, one that is not timed; the figure is the median of those that are. Everyone's
    turns are alike.
    """
    for run in contenders.values():
        run()
    short = min(_milliseconds(run) for run in contenders.values()) < LONG
    times: dict[str, list[float]] = {name: [] for name in contenders}
    end = time.perf_counter() + seconds
    gc.disable()
    try:
        while time.perf_counter() < end or min(len(t) for t in times.values()) < least:
            for name, run in contenders.items():
                time.sleep(SETTLE)
                if short:
                    run()
                times[name].append(statistics.median(_milliseconds(run) for _ in range(TURN if short else 1)))
    finally:
        gc.enable()
    return times


def _milliseconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3


def spread(values: Sequence[float]) -> float:
    """Quartile distance over the median."""
    low, middle, high = statistics.quantiles(values, n=4)
    return (high - low) / middle


def compare(
    job: str,
    times: Mapping[str, list[float]],
    ours: str = "ours",
    notes: str = "",
    flops: float | None = None,
    moved: float | None = None,
) -> list[Result]:
    """`ours` against every other contender, round by round: what else the machine does in a round holds up both.

    times: as `interleaved` gives them; flops and moved: operations and bytes of one call.
    """
    mine = statistics.median(times[ours])
    flops_share = None if flops is None else flops / mine / 1e6 / sgemm_peak()
    bandwidth_share = None if moved is None else moved / mine / 1e6 / copy_bandwidth()
    results = []
    for name, theirs in times.items():
        if name != ours:
            ratios = [other / own for other, own in zip(theirs, times[ours], strict=True)]
            results.append(
                Result(
                    job,
                    name,
                    statistics.median(ratios),
                    mine,
                    statistics.median(theirs),
                    spread(ratios),
                    notes,
                    flops_share,
                    bandwidth_share,
                )
            )
    return results


def use_threads(count: int) -> None:
    """The same number of threads for minigrad, for the BLAS library behind numpy, and for torch."""
    import torch

    from minigrad.kernels.blas import libraries
    from minigrad.kernels.threads import set_num_threads

    set_num_threads(count)
    torch.set_num_threads(count)
    for library in libraries():
        library.set_num_threads(count)


@cache
def sgemm_peak() -> float:
    """GFLOP/s of this machine's large single-precision products, the best of ten."""
    n = 1536
    a, b, c = (np.random.default_rng(0).standard_normal((n, n)).astype(np.float32) for _ in range(3))
    best = float("inf")
    for _ in range(10):
        start = time.perf_counter()
        np.matmul(a, b, c)
        best = min(best, time.perf_counter() - start)
    return 2 * n**3 / best / 1e9


@cache
def copy_bandwidth() -> float:
    """GB/s of a large copy (read and written bytes both counted), the best of ten."""
    source = np.ones(1 << 25, np.float32)
    target = np.empty_like(source)
    best = float("inf")
    for _ in range(10):
        start = time.perf_counter()
        np.copyto(target, source)
        best = min(best, time.perf_counter() - start)
    return 2 * source.nbytes / best / 1e9


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    import numba

    from minigrad.kernels.threads import available

    described = {
        "processor": _processor(),
        "cores": available(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "sgemm_gflops": round(sgemm_peak(), 1),
        "copy_gb_s": round(copy_bandwidth(), 1),
    }
    try:
        import torch

        described["torch"] = torch.__version__
        described["torch_threads"] = torch.get_num_threads()
    except ImportError:
        pass
    return described


def _processor() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
