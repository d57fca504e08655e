"""A whole training step (forward, backward, clipping, optimizer): minigrad compiled, against torch eager and compiled.

Same weights, same batches; the losses of the first steps must agree, or the comparison is refused. Jobs: GPTs of
several sizes with AdamW, and the documents' encoder-decoder with label smoothing, Adam and clipping ("documents").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import minigrad as mg
from minigrad import functional, nn
from minigrad import optim as our_optim
from minigrad.compiler import Compiled, compile
from minigrad.compiler.plan import Plan
from minigrad.nn.utils import clip_grad_norm_
from tools.bench.models import PADDING, SIZES, EncoderDecoder, Size, build_encoder_decoder, build_gpt
from tools.bench.timing import Result, compare, interleaved, spread

STEPS = 20
GAP = 1e-4  # the losses of the first steps may differ by this much
Batch = tuple[np.ndarray, ...]
Step = Callable[..., float]


@dataclass(frozen=True)
class Job:
    """What is trained: `build(lib, nn, functional, manual_attention=...)` makes a module from a batch to its loss."""

    build: Callable[..., Any]
    batch: Callable[[np.random.Generator], Batch]
    tokens: int
    attention: int  # FLOPs of attention's products in a forward pass, counting the half that is visible
    optimizer: str = "AdamW"
    settings: tuple[tuple[str, Any], ...] = (("lr", 1e-3),)
    clip: float | None = None
    source: int = 0  # of the tokens, those that an encoder sees and the rest of the model does not


def gpt(size: Size) -> Job:
    """Training a GPT of this size with AdamW."""

    def build(lib: Any, nn: Any, functional: Any, manual_attention: bool = False) -> Any:
        return build_gpt(lib, nn, functional, size, manual_attention)

    def batch(rng: np.random.Generator) -> Batch:
        return tuple(rng.integers(0, size.vocab, (2, size.batch, size.length)))

    attention = 2 * size.batch * size.length**2 * size.d_model * size.n_layers
    return Job(build, batch, size.batch * size.length, attention)


def documents(size: EncoderDecoder) -> Job:
    """Training the documents' encoder-decoder with label smoothing, Adam and clipping."""

    def build(lib: Any, nn: Any, functional: Any, manual_attention: bool = False) -> Any:
        return build_encoder_decoder(lib, nn, functional, size, manual_attention)

    def padded(rng: np.random.Generator, length: int) -> np.ndarray:
        ids = rng.integers(1, size.vocab, (size.batch, length))
        lengths = rng.integers(length // 2, length + 1, size.batch)
        lengths[0] = length
        return np.where(np.arange(length) < lengths[:, None], ids, PADDING)

    def batch(rng: np.random.Generator) -> Batch:
        sentence = padded(rng, size.target + 1)
        return padded(rng, size.source), sentence[:, :-1].copy(), sentence[:, 1:].copy()

    settings = (("lr", 1e-4), ("betas", (0.9, 0.98)), ("eps", 1e-9))
    scores = size.source**2 + size.target**2 // 2 + size.source * size.target
    attention = 4 * size.batch * scores * size.d_model * size.n_layers
    return Job(
        build,
        batch,
        size.batch * (size.source + size.target),
        attention,
        "Adam",
        settings,
        1.0,
        size.batch * size.source,
    )


JOBS = {**{name: gpt(size) for name, size in SIZES.items()}, "documents": documents(EncoderDecoder())}


def ours(job: Job, weights: dict[str, np.ndarray]) -> Step:
    """A compiled training step on minigrad: a batch of arrays to the loss."""
    step = our_step(job, weights)
    return lambda *batch: float(step(*map(mg.from_numpy, batch)).item())


def our_step(job: Job, weights: dict[str, np.ndarray]) -> Compiled:
    """The same, of tensors."""
    model = job.build(mg, nn, functional)
    model.load_state_dict({name: mg.tensor(value) for name, value in weights.items()})
    optimizer = getattr(our_optim, job.optimizer)(model.parameters(), **dict(job.settings))

    @compile
    def step(*batch: mg.Tensor) -> mg.Tensor:
        optimizer.zero_grad()
        loss = model(*batch)
        loss.backward()
        if job.clip is not None:
            clip_grad_norm_(model.parameters(), job.clip)
        optimizer.step()
        return loss

    return step


def plan(name: str) -> Plan:
    """The plan of our step, after two replays."""
    job = JOBS[name]
    step = our_step(job, weights_of(job))
    batch = [mg.from_numpy(array) for array in job.batch(np.random.default_rng(1))]
    for _ in range(3):
        step(*batch)
    ((made, _),) = step.plans.values()
    return made


def theirs(job: Job, weights: dict[str, np.ndarray], compiled: bool, manual: bool) -> Step:
    """The same on torch, eager or through torch.compile, with its fused attention or a written-out one."""
    import torch

    model = job.build(torch, torch.nn, torch.nn.functional, manual_attention=manual)
    model.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in weights.items()})
    optimizer = getattr(torch.optim, job.optimizer)(model.parameters(), **dict(job.settings))
    forward = torch.compile(model) if compiled else model

    def step(*batch: np.ndarray) -> float:
        optimizer.zero_grad()
        loss = forward(*map(torch.from_numpy, batch))
        loss.backward()
        if job.clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), job.clip)
        optimizer.step()
        return float(loss.item())

    return step


def weights_of(job: Job) -> dict[str, np.ndarray]:
    """Small random weights, norms at one."""
    mg.manual_seed(0)
    model = job.build(mg, nn, functional)
    rng = np.random.default_rng(0)
    return {
        name: (value.numpy() if value.ndim == 1 else rng.standard_normal(value.shape).astype(np.float32) * 0.02)
        for name, value in ((n, p.detach()) for n, p in model.named_parameters())
    }


def flops(job: Job, weights: dict[str, np.ndarray]) -> float:
    """Model FLOPs of a step: 6 for each weight and token that it meets (tables that are only looked up excepted), and
    attention's."""
    total = 3.0 * job.attention
    for name, value in weights.items():
        if not name.startswith(("tokens", "positions")):
            total += 6.0 * value.size * (job.source if name.startswith("encoder") else job.tokens - job.source)
    return total


def run(names: Sequence[str], against: Sequence[str], seconds: float) -> list[Result]:
    """Compare every job of `names`. Raises RuntimeError when losses differ."""
    results = []
    for name in names:
        job = JOBS[name]
        weights = weights_of(job)
        rng = np.random.default_rng(1)
        batches = [job.batch(rng) for _ in range(STEPS)]
        steps = {"ours": ours(job, weights)}
        if "torch" in against:
            steps["torch eager"] = theirs(job, weights, False, False)
            steps["torch eager, manual attention"] = theirs(job, weights, False, True)
        if "torch.compile" in against:
            steps["torch.compile"] = theirs(job, weights, True, False)
        losses = {key: [step(*batch) for batch in batches] for key, step in steps.items()}
        for key, history in losses.items():
            gap = float(np.max(np.abs(np.array(history) - np.array(losses["ours"]))))
            if not gap < GAP:
                raise RuntimeError(f"train {name}: the losses of {key} differ from ours by up to {gap:.2g}")
        runs = {key: partial(step, *batches[0]) for key, step in steps.items()}
        times = interleaved(runs, seconds)
        best = min(times["ours"])
        notes = f"{job.tokens / best * 1e3:,.0f} tokens/s, spread {spread(times['ours']):.0%}"
        results += compare(f"train {name}", times, notes=notes, flops=flops(job, weights))
    return results
