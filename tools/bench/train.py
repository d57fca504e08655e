"""A GPT's whole training step (forward, backward, AdamW): minigrad compiled, against torch eager and compiled.

Same weights, same batches; the losses of the first steps must agree, or the comparison is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import minigrad as mg
from minigrad import functional, nn
from minigrad.compile import compile
from minigrad.optim import AdamW
from tools.bench.models import SIZES, Size, build_gpt
from tools.bench.timing import Result, compare, interleaved, spread

STEPS = 20


def ours(size: Size, weights: dict[str, np.ndarray]) -> Callable[[np.ndarray, np.ndarray], Any]:
    """A compiled training step on minigrad; it takes ids and targets and returns the loss."""
    model = build_gpt(mg, nn, functional, size)
    model.load_state_dict({name: mg.tensor(value) for name, value in weights.items()})
    optimizer = AdamW(model.parameters(), lr=1e-3)

    @compile
    def step(ids: mg.Tensor, targets: mg.Tensor) -> mg.Tensor:
        optimizer.zero_grad()
        loss = model(ids, targets)
        loss.backward()
        optimizer.step()
        return loss

    return lambda ids, targets: step(mg.from_numpy(ids), mg.from_numpy(targets)).item()


def theirs(
    size: Size, weights: dict[str, np.ndarray], compiled: bool, manual: bool
) -> Callable[[np.ndarray, np.ndarray], Any]:
    """The same on torch, eager or through torch.compile, with its fused attention or a written-out one."""
    import torch

    model = build_gpt(torch, torch.nn, torch.nn.functional, size, manual)
    model.load_state_dict({name: torch.from_numpy(value.copy()) for name, value in weights.items()})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    forward = torch.compile(model) if compiled else model

    def step(ids: np.ndarray, targets: np.ndarray) -> float:
        optimizer.zero_grad()
        loss = forward(torch.from_numpy(ids), torch.from_numpy(targets))
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step


def weights_of(size: Size) -> dict[str, np.ndarray]:
    """Small random weights, norms at one."""
    mg.manual_seed(0)
    model = build_gpt(mg, nn, functional, size)
    rng = np.random.default_rng(0)
    return {
        name: (value.numpy() if value.ndim == 1 else rng.standard_normal(value.shape).astype(np.float32) * 0.02)
        for name, value in ((n, p.detach()) for n, p in model.named_parameters())
    }


def run(names: Sequence[str], against: Sequence[str], seconds: float) -> list[Result]:
    """Compare every size of `names`. Raises RuntimeError when losses differ."""
    results = []
    for name in names:
        size = SIZES[name]
        weights = weights_of(size)
        rng = np.random.default_rng(1)
        batches = [rng.integers(0, size.vocab, (2, size.batch, size.length)) for _ in range(STEPS)]
        steps = {"ours": ours(size, weights)}
        if "torch" in against:
            steps["torch eager"] = theirs(size, weights, False, False)
            steps["torch eager, manual attention"] = theirs(size, weights, False, True)
        if "torch.compile" in against:
            steps["torch.compile"] = theirs(size, weights, True, False)
        losses = {key: [step(*batch) for batch in batches] for key, step in steps.items()}
        for key, history in losses.items():
            gap = float(np.max(np.abs(np.array(history) - np.array(losses["ours"]))))
            if not gap < 1e-3:
                raise RuntimeError(f"train {name}: the losses of {key} differ from ours by up to {gap:.2g}")
        runs = {key: partial(step, *batches[0]) for key, step in steps.items()}
        times = interleaved(runs, seconds)
        tokens = size.batch * size.length
        best = min(times["ours"])
        notes = f"{tokens / best * 1e3:,.0f} tokens/s, spread {spread(times['ours']):.0%}"
        results += compare(f"train {name}", times, notes=notes)
    return results
