"""A language model that puts the start before its input and leaves the last token out answers for each token itself."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from wholes import pointed  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402


class ShiftedGPT(nn.Module):
    hides = True

    def __init__(self, vocab_size=23, width=16):
        super().__init__()
        self.words, self.start = nn.Embedding(vocab_size, width), nn.Parameter(torch.randn(width))
        self.layer = nn.TransformerEncoderLayer(width, 2, 32, 0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(width, vocab_size)

    def forward(self, ids):
        start = self.start.expand(len(ids), 1, -1)
        x = torch.cat([start, self.words(ids)[:, :-1]], 1)
        later = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype) if self.hides else None
        return self.head(self.layer(x, src_mask=later))


class ShiftedGPTThatSeesAll(ShiftedGPT):
    hides = False


class SeesLittleGPT(ShiftedGPT):
    """It is not shifted, and the second token reaches nothing."""

    def forward(self, ids):
        x = self.words(ids) * (torch.arange(ids.shape[1]) != 1)[:, None]
        later = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype)
        return self.head(self.layer(x, src_mask=later))


@pytest.mark.parametrize(
    ("cls", "claim", "verdict"),
    [
        (ShiftedGPT, "language-model-sees-every-earlier-token", "NOTE"),
        (ShiftedGPT, "language-model-is-causal", "PASS"),
        (ShiftedGPTThatSeesAll, "language-model-is-causal", "FAIL"),
        (SeesLittleGPT, "language-model-sees-every-earlier-token", "FAIL"),
    ],
)
def test_a_shifted_input_is_no_mistake(cls, claim, verdict):
    assert run_check(CHECKS[claim], pointed(cls), "quick").verdict.name == verdict
