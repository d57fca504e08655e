"""Causal attention, forward and backward: 8 heads of 64, batch 1, against torch's, eager and compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

import minigrad as mg
from minigrad import functional
from tools.bench.timing import Result, compare, interleaved

LENGTHS = (256, 1024, 4096)
HEADS, WIDTH = 8, 64
MANUAL = 1024  # tokens up to which attention written out is a contender, too


def written_out(query: Any, key: Any, value: Any) -> Any:
    """Causal attention in single torch ops, whose scores ``(1, H, T, T)`` are stored."""
    import torch

    scores = query @ key.transpose(-1, -2) * query.shape[-1] ** -0.5
    hidden = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).triu(1)
    return torch.softmax(scores.masked_fill(hidden, float("-inf")), -1) @ value


def contenders(length: int, against: Sequence[str]) -> dict[str, Callable[[], Any]]:
    """Each contender's forward and backward pass on the same inputs. Raises RuntimeError where outputs differ."""
    import torch

    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((1, HEADS, length, WIDTH)).astype(np.float32) for _ in range(4)]
    fused = partial(torch.nn.functional.scaled_dot_product_attention, is_causal=True)
    forward: dict[str, Callable[..., Any]] = {
        "ours": partial(functional.scaled_dot_product_attention, is_causal=True),
    }
    if "torch" in against:
        forward["torch eager"] = fused
        if length <= MANUAL:
            forward["torch eager, manual attention"] = written_out
    if "torch.compile" in against:
        forward["torch.compile"] = torch.compile(lambda query, key, value: fused(query, key, value))

    found: dict[str, Callable[[], Any]] = {}
    outputs: dict[str, np.ndarray] = {}
    for name, function in forward.items():
        tensor: Callable[[np.ndarray], Any] = mg.from_numpy if name == "ours" else torch.from_numpy
        inputs = [tensor(a.copy()).requires_grad_() for a in arrays[:3]]
        seed = tensor(arrays[3])

        def both(function: Callable[..., Any] = function, inputs: list[Any] = inputs, seed: Any = seed) -> Any:
            result = function(*inputs)
            result.backward(seed)
            return result

        outputs[name] = both().detach().numpy()
        gap = float(np.abs(outputs[name] - outputs["ours"]).max())
        if not gap < 1e-4:
            raise RuntimeError(f"attention T={length}: the output of {name} differs from ours by up to {gap:.2g}")
        found[name] = both
    return found


def run(against: Sequence[str], seconds: float) -> list[Result]:
    """One comparison a length; the notes give GFLOP/s, counting the causal half."""
    results = []
    for length in LENGTHS:
        times = interleaved(contenders(length, against), seconds)
        flops = 14 * HEADS * length * length * WIDTH / 2  # 2 products forward, 5 backward, half of the scores
        notes = f"{flops / min(times['ours']) / 1e6:.0f} GFLOP/s"
        results += compare(f"attention T={length}", times, notes=notes)
    return results
