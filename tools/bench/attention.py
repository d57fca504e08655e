"""Causal attention, forward and backward: 8 heads of 64, batch 1, against torch's fused attention."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import minigrad as mg
from minigrad import functional
from tools.bench.timing import Result, compare, interleaved

LENGTHS = (256, 1024, 4096)


def run(against: Sequence[str], seconds: float) -> list[Result]:
    """One comparison a length; the notes give GFLOP/s, counting the causal half."""
    import torch

    results = []
    for length in LENGTHS:
        rng = np.random.default_rng(0)
        arrays = [rng.standard_normal((1, 8, length, 64)).astype(np.float32) for _ in range(4)]
        mine = [mg.from_numpy(a.copy()).requires_grad_() for a in arrays[:3]]
        theirs = [torch.from_numpy(a.copy()).requires_grad_() for a in arrays[:3]]
        seed, torch_seed = mg.from_numpy(arrays[3]), torch.from_numpy(arrays[3])

        def ours(mine: list[mg.Tensor] = mine, seed: mg.Tensor = seed) -> None:
            functional.scaled_dot_product_attention(*mine, is_causal=True).backward(seed)

        def eager(theirs: list[torch.Tensor] = theirs, seed: torch.Tensor = torch_seed) -> None:
            torch.nn.functional.scaled_dot_product_attention(*theirs, is_causal=True).backward(seed)

        contenders = {"ours": ours}
        if "torch" in against:
            contenders["torch eager"] = eager
        times = interleaved(contenders, seconds)
        flops = 14 * 8 * length * length * 64 / 2  # 2 products forward, 5 backward, half of the scores
        notes = f"{flops / min(times['ours']) / 1e6:.0f} GFLOP/s"
        results += compare(f"attention T={length}", times, notes=notes)
    return results
