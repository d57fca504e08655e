"""A dropout that acts in evaluation mode is told once; all else is judged as if it dropped nothing."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from wholes import pointed  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.undropped import NoDropouts  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402


class GPT(nn.Module):
    hides = True

    def __init__(self, vocab_size=30, d_model=16):
        super().__init__()
        self.table, self.places = nn.Embedding(vocab_size, d_model), nn.Embedding(64, d_model)
        self.mix, self.head = nn.MultiheadAttention(d_model, 2, batch_first=True), nn.Linear(d_model, vocab_size)

    def dropped(self, x):
        return F.dropout(x, 0.2)

    def forward(self, ids):
        x = self.dropped(self.table(ids) + self.places(torch.arange(ids.shape[1])))
        mask = torch.ones(ids.shape[1], ids.shape[1]).triu(1).bool() if self.hides else None
        return self.head(x + self.mix(x, x, x, attn_mask=mask, need_weights=False)[0])


class Sees(GPT):
    hides = False


class Noisy(Sees):
    def dropped(self, x):
        return x + torch.randn_like(x)


@pytest.mark.parametrize(
    ("cls", "claim", "verdict"),
    [
        (GPT, "model-evaluation-repeats-itself", "FAIL"),
        (GPT, "language-model-is-causal", "PASS"),
        (GPT, "language-model-prefix-has-the-same-logits", "PASS"),
        (Sees, "language-model-is-causal", "FAIL"),
        (Noisy, "language-model-is-causal", "NOT_PROVIDED"),
        (Noisy, "model-evaluation-repeats-itself", "NOTE"),
    ],
)
def test_what_drops_in_evaluation_is_told_once(cls, claim, verdict):
    assert run_check(CHECKS[claim], pointed(cls), "quick").verdict.name == verdict
    assert not NoDropouts.active
