"""Losses that say that they teach masked places: what they teach is read from gradients."""

import pytest

torch = pytest.importorskip("torch")

from wholes import Whole  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.whole.model import whole_model  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

CLAIM = "losses-of-masked-places-teach-no-others"
MODEL = '''
import torch
from torch import nn

class Frames(nn.Module):
    """An encoder of frames."""
    def __init__(self, width=8):
        super().__init__()
        self.place = nn.Parameter(torch.randn(64, width))
        self.block = nn.TransformerEncoderLayer(width, 2, 16, 0.0, batch_first=True)
        self.head = nn.Linear(width, width)
    def forward(self, x):
        """x (B, T, 8)"""
        return self.block(x + self.place[: x.shape[1]])
    def pretrain_loss(self, x):
        """{says}"""
        mask = torch.rand(x.shape[:2]) < 0.3
        error = (self.head(self(x.masked_fill(mask[..., None], 0.0))) - x).square().mean(-1)
        return {loss}
'''
ALL, SOME = "error.mean()", "(error * mask).sum() / mask.sum()"


TOLD = "hidden & valid"


@pytest.mark.parametrize(
    ("counted", "verdict"), [(TOLD, "PASS"), ("~hidden & valid", "FAIL"), ("valid", "FAIL"), ("hidden", "PASS")]
)
def test_a_loss_that_is_told_what_is_hidden_teaches_that(made, counted, verdict):
    text = MODEL.replace("pretrain_loss(self, x)", "pretrain_loss(self, x, valid, hidden)")
    text = text.replace("torch.rand(x.shape[:2]) < 0.3", counted).replace("mask[..., None]", "hidden[..., None]")
    text = text.replace("{says}", "Squared error at hidden and valid steps.").replace("{loss}", SOME)
    assert run_check(CHECKS[CLAIM], Whole(whole_model(made("Frames", text))), "quick").verdict.name == verdict


@pytest.mark.parametrize(
    ("says", "loss", "verdict"),
    [
        ("Mean error on masked frames.", SOME, "PASS"),
        ("Mean error on masked frames.", ALL, "FAIL"),
        ("L2 over the masked positions only.", ALL, "FAIL"),
        ("Restores all frames from masked ones.", ALL, "NOT_PROVIDED"),
        ("The mean error of a masked input.", ALL, "NOT_PROVIDED"),
    ],
)
def test_a_loss_keeps_to_what_it_says(made, says, loss, verdict):
    text = MODEL.replace("{says}", says).replace("{loss}", loss)
    assert run_check(CHECKS[CLAIM], Whole(whole_model(made("Frames", text))), "quick").verdict.name == verdict
