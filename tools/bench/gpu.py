"""minigrad on the GPU beside torch eager on the same GPU: kernels, whole training steps, decoding.

Both sides are timed by CUDA events on their own streams, in turns, and medians are compared as shares of torch's speed
(above 1 minigrad is faster). `aim` is what a row is meant to reach on an H200.

Every row is measured in a process of its own: one that fails, or that the device ends (a fault there is the end of a
process), leaves the others alone, and its error stands in the table. The page keeps the rows of earlier runs on the
same machine, so that the table can be made in several runs.
"""

from __future__ import annotations

import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import minigrad as mg
from minigrad import functional, nn, optim
from minigrad.compiler import compile
from minigrad.kernels.cuda.driver import CudaError
from tools.bench import page as results_page
from tools.bench.models import SIZES, Size, build_decoder, build_gpt
from tools.bench.timing import spread
from tools.bench.train import gpt, weights_of

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "cuda.md"
LIMIT = 900.0  # seconds a row may take
BATCH = 20  # calls between two events: a single short kernel is below their resolution
GPT2_SMALL = Size(50257, 768, 12, 12, 3072, 4, 1024)
Run = Callable[[], Any]


class Clock(Protocol):
    """Measures on the device."""

    def milliseconds(self, run: Run, calls: int) -> float:
        """Device time of `calls` calls; waits for them."""


class OurClock:
    """Events on minigrad's stream."""

    def milliseconds(self, run: Run, calls: int) -> float:
        from minigrad.kernels.cuda.runtime import runtime

        driver = runtime().driver
        start = driver.record()
        for _ in range(calls):
            run()
        return driver.elapsed(start, driver.record())


class TorchClock:
    """Events on torch's stream."""

    def milliseconds(self, run: Run, calls: int) -> float:
        import torch

        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(calls):
            run()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop))


@dataclass(frozen=True)
class Timed:
    """One row: medians of a call in milliseconds; ratio: torch's over ours; gap: the largest relative difference of
    what both computed (None where only times are comparable)."""

    row: str
    aim: float
    ratio: float
    ours_ms: float
    theirs_ms: float
    spread: float
    gap: float | None

    @property
    def verdict(self) -> str:
        return (
            "reached" if self.ratio >= self.aim else "noise" if self.ratio >= self.aim * (1 - self.spread) else "below"
        )


@dataclass(frozen=True)
class Row:
    """What is compared: `prepare()` gives our call and torch's. tolerance: of their results, None for none."""

    aim: float
    prepare: Callable[[], tuple[Run, Run]]
    tolerance: float | None = 1e-3
    calls: int = BATCH


def measure(name: str, row: Row, ours: Clock, theirs: Clock, seconds: float, least: int = 5) -> Timed:
    """Both sides in turns for `seconds`, at least `least` turns, the first of which warms up and is not counted.

    Raises ValueError when they compute different things.
    """
    run_ours, run_theirs = row.prepare()
    gap = None
    if row.tolerance is not None:
        gap = difference(run_ours(), run_theirs())
        if not gap <= row.tolerance:
            raise ValueError(f"{name}: the results differ by {gap:.2g}, at most {row.tolerance:g} was expected")
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) <= least:
        for clock, run, found in ((ours, run_ours, times[0]), (theirs, run_theirs, times[1])):
            found.append(clock.milliseconds(run, row.calls) / row.calls)
    mine, other = times[0][1:], times[1][1:]
    median_ours, median_theirs = statistics.median(mine), statistics.median(other)
    return Timed(
        name, row.aim, median_theirs / median_ours, median_ours, median_theirs, max(spread(mine), spread(other)), gap
    )


def difference(ours: Any, theirs: Any) -> float:
    """The largest difference of two arrays (or tuples of them), relative to the largest element."""
    if isinstance(ours, tuple):
        return max(difference(a, b) for a, b in zip(ours, theirs, strict=True))
    a, b = (np.asarray(_host(x), np.float64) for x in (ours, theirs))
    return float(np.abs(a - b).max() / max(np.abs(b).max(), 1e-30))


def _host(x: Any) -> np.ndarray:
    return x.detach().float().cpu().numpy()


# --- rows -------------------------------------------------------------------------------------------


def _pair(*shapes: tuple[int, ...], half: bool = False, grad: bool = False) -> Iterator[tuple[Any, Any]]:
    """The same random numbers on both sides."""
    import torch

    rng = np.random.default_rng(0)
    for shape in shapes:
        values = rng.standard_normal(shape).astype(np.float32)
        ours, theirs = mg.tensor(values, device="cuda"), torch.tensor(values, device="cuda")
        if half:
            ours, theirs = ours.bfloat16(), theirs.bfloat16()
        yield ours.requires_grad_(grad), theirs.requires_grad_(grad)


def _matmul(n: int, half: bool) -> Callable[[], tuple[Run, Run]]:
    def prepare() -> tuple[Run, Run]:
        (a, ta), (b, tb) = _pair((n, n), (n, n), half=half)
        return lambda: a @ b, lambda: ta @ tb

    return prepare


def _attention(backward: bool) -> Callable[[], tuple[Run, Run]]:
    """Batch 8, 16 heads of 64, 2,048 positions, causal; bfloat16 on both sides."""

    def prepare() -> tuple[Run, Run]:
        import torch

        shape = (8, 16, 2048, 64)
        ours, theirs = zip(*_pair(shape, shape, shape, half=True, grad=backward), strict=True)
        out = functional.scaled_dot_product_attention(*ours, is_causal=True)
        flash = torch.nn.attention.SDPBackend.FLASH_ATTENTION
        with torch.nn.attention.sdpa_kernel(flash):
            their_out = torch.nn.functional.scaled_dot_product_attention(*theirs, is_causal=True)
        if backward:
            ((g, tg),) = _pair(shape, half=True)
            return (
                lambda: mg.grad([out], list(ours), [g], retain_graph=True),
                lambda: torch.autograd.grad([their_out], list(theirs), [tg], retain_graph=True),
            )

        def their_forward() -> Any:
            with torch.nn.attention.sdpa_kernel(flash):
                return torch.nn.functional.scaled_dot_product_attention(*theirs, is_causal=True)

        return lambda: functional.scaled_dot_product_attention(*ours, is_causal=True), their_forward

    return prepare


def _function(name: str, *shapes: tuple[int, ...]) -> Callable[[], tuple[Run, Run]]:
    def prepare() -> tuple[Run, Run]:
        import torch

        ours, theirs = zip(*_pair(*shapes), strict=True)
        calls: dict[str, Callable[[Any, Sequence[Any]], Any]] = {
            "softmax": lambda f, x: f.softmax(x[0], -1),
            "layer_norm": lambda f, x: f.layer_norm(x[0], (x[0].shape[-1],), x[1], x[2]),
        }
        return lambda: calls[name](functional, ours), lambda: calls[name](torch.nn.functional, theirs)

    return prepare


def _cross_entropy() -> tuple[Run, Run]:
    import torch

    ((x, tx),) = _pair((4096, 50257), grad=True)
    ids = np.random.default_rng(1).integers(0, 50257, 4096)
    targets, their_targets = mg.tensor(ids, device="cuda"), torch.tensor(ids, device="cuda")
    return (
        lambda: mg.grad(functional.cross_entropy(x, targets), x),
        lambda: torch.autograd.grad(torch.nn.functional.cross_entropy(tx, their_targets), tx)[0],
    )


def _adam() -> tuple[Run, Run]:
    """124 million parameters in one array against torch's fused Adam over the same."""
    import torch

    (w, tw), (g, tg) = _pair((124_000_000,), (124_000_000,))
    w.requires_grad_().grad, tw.requires_grad_().grad = g, tg
    step = compile(optim.AdamW([w], lr=1e-3).step)
    return step, torch.optim.AdamW([tw], lr=1e-3, fused=True).step


def _train(size: Size) -> Callable[[], tuple[Run, Run]]:
    """A whole step (forward, backward, AdamW) from ids that are on the GPU; ours as a replayed graph."""

    def prepare() -> tuple[Run, Run]:
        import torch

        weights = weights_of(gpt(size))
        ids = np.random.default_rng(0).integers(0, size.vocab, (2, size.batch, size.length))
        model = build_gpt(mg, nn, functional, size).to("cuda")
        model.load_state_dict(weights)
        optimizer = optim.AdamW(model.parameters(), lr=1e-3)
        ours = [mg.tensor(part, device="cuda") for part in ids]

        @compile
        def step(x: mg.Tensor, y: mg.Tensor) -> mg.Tensor:
            optimizer.zero_grad()
            loss = model(x, y)
            loss.backward()
            optimizer.step()
            return loss

        other = build_gpt(torch, torch.nn, torch.nn.functional, size).to("cuda")
        other.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in weights.items()})
        their_optimizer = torch.optim.AdamW(other.parameters(), lr=1e-3)
        theirs = [torch.tensor(part, device="cuda") for part in ids]

        def their_step() -> Any:
            their_optimizer.zero_grad()
            loss = other(*theirs)
            loss.backward()
            their_optimizer.step()
            return loss

        return lambda: step(*ours), their_step

    return prepare


def _decode() -> tuple[Run, Run]:
    """256 tokens of `nano`, batch 1, one by one with a static cache; nothing is read on the host in between."""
    import torch

    size = replace(SIZES["nano"], batch=1, length=256)
    weights = weights_of(gpt(size))

    def built(lib: Any, nn: Any, functional: Any, load: Callable[[np.ndarray], Any], whole_cache: bool) -> Any:
        model = build_decoder(lib, nn, functional, size, whole_cache).to("cuda")
        model.load_state_dict({name: load(value) for name, value in weights.items()})
        for block in model.blocks:
            block.key, block.value = block.key.to("cuda"), block.value.to("cuda")
        return model

    step = compile(built(mg, nn, functional, mg.tensor, True))
    other = built(torch, torch.nn, torch.nn.functional, torch.tensor, False)
    positions = [mg.tensor(i, device="cuda") for i in range(size.length)]

    def ours() -> Any:
        ids = mg.zeros(1, 1, dtype=mg.int64, device="cuda")
        found = []
        with mg.no_grad():
            for position in positions:
                ids = step(ids, position)
                found.append(ids)
        return mg.cat(found, 1)

    def theirs() -> Any:
        ids = torch.zeros(1, 1, dtype=torch.int64, device="cuda")
        found = []
        with torch.inference_mode():
            for position in range(size.length):
                ids = other(ids, position)
                found.append(ids)
        return torch.cat(found, 1)

    return ours, theirs


ROWS: dict[str, Row] = {
    **{f"matmul-float32-{n}": Row(1.0, _matmul(n, False), 1e-4) for n in (1024, 2048, 4096, 8192)},
    **{f"matmul-bfloat16-{n}": Row(0.3, _matmul(n, True), 2e-2) for n in (1024, 2048, 4096, 8192)},
    "attention-forward": Row(0.6, _attention(False), 2e-2),
    "attention-backward": Row(0.5, _attention(True), 4e-2),
    "softmax": Row(0.95, _function("softmax", (8192, 4096))),
    "layer-norm": Row(0.95, _function("layer_norm", (8192, 4096), (4096,), (4096,))),
    "cross-entropy-50k": Row(1.5, _cross_entropy),
    "adam-arena": Row(1.0, _adam, None),
    "train-gpt2-small": Row(1.0, _train(GPT2_SMALL), 1e-3, 3),
    **{f"train-{name}": Row(2.0, _train(SIZES[name]), 1e-3, 5) for name in ("tiny", "small", "nano")},
    "decode-nano": Row(3.0, _decode, None, 1),
}


@dataclass(frozen=True)
class Failed:
    """A row without a measurement, and why."""

    row: str
    aim: float
    error: str


def run(name: str, row: Row, seconds: float, ours: Clock, theirs: Clock) -> Timed | Failed:
    """One row in this process; whatever goes wrong becomes its sentence."""
    try:
        return measure(name, row, ours, theirs, seconds)
    except Exception as error:
        return Failed(name, row.aim, f"{type(error).__name__}: {error}")


def run_apart(
    name: str, seconds: float, limit: float = LIMIT, command: Sequence[str] = (sys.executable, "-m", "tools.bench")
) -> Timed | Failed:
    """One row in a process of its own, which may take `limit` seconds: compiling its kernels is most of a first run."""
    aim = ROWS[name].aim
    arguments = [*command, "gpu", name, "--json", "--seconds", str(seconds)]
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=limit, cwd=ROOT, check=False)
    except subprocess.TimeoutExpired:
        return Failed(name, aim, f"no answer within {limit:g} s")
    try:
        (found,) = json.loads(done.stdout)
    except ValueError:
        said = done.stderr.strip().splitlines() or ["nothing on standard error"]
        return Failed(name, aim, f"the process ended with {done.returncode}: {said[-1]}")
    found.pop("verdict", None)
    return Failed(**found) if "error" in found else Timed(**found)


def why_not() -> str:
    """One sentence that says what the benchmark lacks, "" where nothing."""
    import torch

    from minigrad.kernels import usable

    try:
        usable("cuda")
    except CudaError as error:
        return f"the gpu benchmark needs a GPU: {error}"
    return "" if torch.cuda.is_available() else "the gpu benchmark needs a build of torch with CUDA"


def machine() -> str:
    """What the numbers were measured on, in a line."""
    import torch

    from minigrad.kernels.cuda.runtime import runtime

    driver = runtime().driver
    properties = torch.cuda.get_device_properties(0)
    facts = [
        driver.name,
        f"{properties.multi_processor_count} multiprocessors",
        f"{driver.memory()[1] / 2**30:.0f} GiB",
        f"CUDA of the driver {driver.version // 1000}.{driver.version % 1000 // 10}",
        f"torch {torch.__version__}",
        f"numba-cuda {version('numba-cuda')}",
        f"Python {platform.python_version()}",
        f"minigrad {mg.__version__}",
    ]
    return ", ".join(facts)


def main(names: Sequence[str], seconds: float, as_json: bool, page: Path | None) -> int:
    """Measure, print, and write the page: `page`, or docs/cuda.md when all rows were asked for.

    2 where there is nothing to measure on, 1 when a row failed. as_json: in this process, as a list of objects.
    """
    reason = why_not()
    if reason:
        print(reason, file=sys.stderr)
        return 2
    if as_json:
        found = [run(name, ROWS[name], seconds, OurClock(), TorchClock()) for name in names]
        more = [{"verdict": timed.verdict} if isinstance(timed, Timed) else {} for timed in found]
        print(json.dumps([{**asdict(timed), **verdict} for timed, verdict in zip(found, more, strict=True)], indent=2))
        return int(any(isinstance(timed, Failed) for timed in found))
    described, found = machine(), []
    target = page or (PAGE if set(names) == set(ROWS) else None)
    for name in names:
        found.append(run_apart(name, seconds))
        print(_line(found[-1]), file=sys.stderr)
        if target is not None:  # after each: a run that is ended keeps what it measured
            write(target, found, described)
    print("\n".join([described, "", *HEAD, *map(_line, found)]))
    if target is not None:
        print(f"written to {target}", file=sys.stderr)
    return int(any(isinstance(timed, Failed) for timed in found))


# --- the page -----------------------------------------------------------------------------------------

HEAD = ("| row | share of torch eager | aim | ours ms | torch ms | spread | |", "|" + "---|" * 7)


def _line(t: Timed | Failed) -> str:
    if isinstance(t, Failed):
        said = " ".join(t.error.replace("|", "/").split())
        return f"| {t.row} | | {t.aim:g} | | | | failed: {said} |"
    cells = (f"{t.ratio:.2f}", f"{t.aim:g}", f"{t.ours_ms:.3f}", f"{t.theirs_ms:.3f}", f"{t.spread:.0%}", t.verdict)
    return f"| {t.row} | " + " | ".join(cells) + " |"


def write(target: Path, found: Sequence[Timed | Failed], described: str) -> None:
    """Put the table into the page's section of results; rows that an earlier run on this machine measured stay."""
    before = results_page.read(target)
    lines = dict.fromkeys(ROWS, "")
    if described in before:
        lines.update({line.split("|")[1].strip(): line for line in before.splitlines() if line.startswith("| ")})
    lines.update({timed.row: _line(timed) for timed in found})
    table = [lines[name] for name in ROWS if lines[name]]
    results_page.write(
        target, "\n".join([f"Measured on {described}, by `python -m tools.bench gpu`:", "", *HEAD, *table])
    )
