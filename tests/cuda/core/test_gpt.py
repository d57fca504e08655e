"""A GPT's training steps through the kernels themselves, simulated: eager and compiled, they learn as on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

import minigrad as mg
import minigrad.functional as F
from minigrad import kernels, nn
from minigrad.compiler import compile
from minigrad.compiler.device_plan import DevicePlan
from minigrad.optim import AdamW


class Block(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, 2, d // 2).permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.dropout(F.gelu(self.up(self.norm2(x))), 0.2, self.training))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions, self.block = nn.Embedding(11, 8), nn.Embedding(4, 8), Block(8)
        self.head = nn.Linear(8, 11, bias=False)

    def forward(self, ids, targets):
        x = self.block(self.tokens(ids) + self.positions(mg.arange(ids.shape[1], device=ids.device)))
        return F.cross_entropy(self.head(x).reshape(-1, 11), targets.reshape(-1))


def losses(device, compiled, steps):
    """Of steps with dropout, clipping and AdamW; and the compiled step, if it is one."""
    mg.manual_seed(0)
    model = GPT().to(device)
    optimizer = AdamW(model.parameters(), lr=mg.tensor(0.01, dtype=mg.float64))

    def step(ids, targets):
        optimizer.zero_grad()
        loss = model(ids, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    run = compile(step) if compiled else step
    ids, targets = (mg.tensor(part, device=device) for part in np.random.default_rng(0).integers(0, 11, (2, 1, 4)))
    return [run(ids, targets).item() for _ in range(steps)], run


@pytest.mark.slow
@pytest.mark.parametrize("compiled", [False, True])
def test_steps_through_the_kernels_are_the_cpus(cuda, compiled):
    steps = 2 if compiled else 1  # a step takes seconds here, and the second replay is the captured one
    with kernels.use("always"):
        expected, _ = losses("cpu", False, steps)
        found, run = losses("cuda", compiled, steps)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert not cuda.host_ops  # nothing was computed on the host
    if compiled:
        ((plan, _),) = run.plans.values()
        assert isinstance(plan, DevicePlan)
        assert len(plan.graphs) == 1  # the whole step is one graph
