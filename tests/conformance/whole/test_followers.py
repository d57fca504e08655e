"""Slow copies of weights, moved by a model's own method or kept by a class beside it."""

import pytest

torch = pytest.importorskip("torch")

from wholes import Whole  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.whole.model import whole_model  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

CLAIM = "slow-copies-of-weights-follow-slowly"
MODEL = '''
import copy
import torch
from torch import nn

class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.map = nn.Embedding(31, 8), nn.Linear(8, 8)
    def forward(self, ids):
        return self.map(self.words(ids)).mean(1)

class Moco(nn.Module):
    """An encoder with a slow copy."""
    def __init__(self, m=0.99):
        super().__init__()
        self.m = m
        self.encoder_q = Encoder()
        self.encoder_k = copy.deepcopy(self.encoder_q).requires_grad_(False)
    def forward(self, ids):
        return self.encoder_q(ids)
    {method}

{beside}
'''
METHOD = """
    @torch.no_grad()
    def _momentum_update_key_encoder(self):
        for q, k in zip(self.encoder_q.parameters(), self.encoder_k.parameters()):
            {line}
"""
KEEPER = """
class ModelEMA:
    def __init__(self, model, decay=0.999):
        self.ema, self.decay, self.updates = copy.deepcopy(model).eval(), decay, 0
    def update(self, model):
        self.updates += 1
        d = {decay}
        with torch.no_grad():
            for slow, fast in zip(self.ema.parameters(), model.parameters()):
                slow.copy_(d * slow + (1 - d) * fast)
"""


def result(made, method="", beside=""):
    return run_check(
        CHECKS[CLAIM], Whole(whole_model(made("Moco", MODEL.format(method=method, beside=beside)))), "quick"
    )


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        ("k.data = k.data * self.m + q.data * (1.0 - self.m)", "PASS"),
        ("k.lerp_(q, 1 - self.m)", "PASS"),
        ("k.data = k.data * (1.0 - self.m) + q.data * self.m", "FAIL"),
        ("k.copy_(q)", "FAIL"),
        ("k.data = k.data * self.m + q.data", "FAIL"),
        ("q.data = q.data * self.m + k.data * (1.0 - self.m)", "FAIL"),
    ],
)
def test_a_method_that_moves_a_slow_copy(made, line, verdict):
    assert result(made, METHOD.format(line=line)).verdict.name == verdict


@pytest.mark.parametrize(
    ("decay", "verdict"),
    [
        ("self.decay", "PASS"),
        ("min(self.decay, (1 + self.updates) / (10 + self.updates))", "PASS"),
        ("1 - self.decay", "FAIL"),
    ],
)
def test_a_class_that_keeps_an_average(made, decay, verdict):
    assert result(made, beside=KEEPER.format(decay=decay)).verdict.name == verdict


def test_a_model_without_a_slow_copy_is_not_judged(made):
    assert result(made).verdict.name == "NOT_PROVIDED"
