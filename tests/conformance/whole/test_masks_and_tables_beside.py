"""A required mask is first filled with as few axes as will do; a table that only a loss reads is not idle."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from wholes import pointed  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402


class SelfAttention(nn.Module):
    """Its mask (B, T) is required. A mask of four axes would give the scores six."""

    swap = (1, 2)

    def __init__(self, d_model=16, n_heads=4):
        super().__init__()
        self.h, self.qkv, self.out = n_heads, nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x, mask):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1) / (d // self.h) ** 0.5).masked_fill(~mask[:, None, None, :], -1e9)
        return self.out(self.merged(scores.softmax(-1) @ v).reshape(b, t, d))

    def merged(self, heads):
        return heads.transpose(1, 2)


class Unmerged(SelfAttention):
    def merged(self, heads):
        return heads


@pytest.mark.parametrize(("cls", "verdict"), [(SelfAttention, "PASS"), (Unmerged, "FAIL")])
def test_a_required_mask_has_as_few_axes_as_will_do(cls, verdict):
    assert run_check(CHECKS["splitting-heads-does-not-mix-words"], pointed(cls), "quick").verdict.name == verdict


class Forecaster(nn.Module):
    """Keeps levels that its loss reads."""

    def __init__(self, d_model=16):
        super().__init__()
        self.register_buffer("levels", torch.tensor([0.1, 0.5, 0.9]))
        self.mix, self.head = nn.GRU(3, d_model, batch_first=True), nn.Linear(d_model, 3)

    def forward(self, series):
        return self.head(self.mix(series)[0])


def pinball(model, series, target):
    error = target - model(series)
    return torch.maximum(model.levels * error, (model.levels - 1) * error).mean()


class Idle(Forecaster):
    def __init__(self, d_model=16):
        super().__init__(d_model)
        self.register_buffer("places", torch.randn(5, 16))


@pytest.mark.parametrize(("cls", "verdict"), [(Forecaster, "NOT_PROVIDED"), (Idle, "FAIL")])
def test_a_table_that_a_loss_reads_is_not_idle(cls, verdict):
    assert run_check(CHECKS["model-what-it-keeps-reaches-the-answer"], pointed(cls), "quick").verdict.name == verdict
