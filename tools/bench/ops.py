"""The overhead of an eager op: 4x4 tensors, forward and backward."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import minigrad as mg
from tools.bench.timing import Result, compare, interleaved

COUNT = 200


def run(against: Sequence[str], seconds: float) -> list[Result]:
    """Forward alone, and forward with backward; milliseconds are for `COUNT` repetitions."""
    import torch

    a = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    x, y = mg.from_numpy(a).requires_grad_(), mg.from_numpy(a)
    tx, ty = torch.from_numpy(a).requires_grad_(), torch.from_numpy(a)

    def forward(x: object, y: object) -> None:
        for _ in range(COUNT):
            x * y  # type: ignore[operator]

    def both(x: object, y: object) -> None:
        for _ in range(COUNT):
            (x * y).backward(y)  # type: ignore[operator]

    results = []
    for job, work in (("op forward, 4x4", forward), ("op forward + backward, 4x4", both)):
        contenders = {"ours": lambda work=work: work(x, y)}
        if "torch" in against:
            contenders["torch eager"] = lambda work=work: work(tx, ty)
        times = interleaved(contenders, seconds / 4)
        micro = min(times["ours"]) / COUNT * 1e3
        results += compare(job, times, notes=f"{micro:.1f} us an op")
    return results
