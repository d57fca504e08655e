"""Losses of forecasters: the level of what follows is taught."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from wholes import pointed  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402


class Series(nn.Module):
    """Forecasts series (B, 24, 3), with their loss where what follows is given."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(3, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(16, 3)

    def error(self, forecast, future, mean, std):
        return F.mse_loss(forecast, (future - mean) / std)

    def forward(self, series, future=None):
        mean, std = series.mean(1, keepdim=True), series.std(1, keepdim=True) + 1e-5
        forecast = self.head(self.encoder(self.embed((series - mean) / std)))
        if future is None:
            return forecast * std + mean
        return forecast * std + mean, self.error(forecast, future, mean, std)


class InItsOwnUnits(Series):
    def error(self, forecast, future, mean, std):
        own = (future - future.mean(1, keepdim=True)) / (future.std(1, keepdim=True) + 1e-5)
        return F.mse_loss(forecast, own)


class OfSteps(Series):
    """Steps from one point to the next are meant to see no level."""

    def forward(self, series, future=None):
        forecast = self.head(self.encoder(self.embed(series)))
        if future is None:
            return forecast
        return forecast, F.mse_loss(torch.diff(forecast, dim=1), torch.diff(future, dim=1))


class OfAMethod(Series):
    def forward(self, series):
        return super().forward(series)

    def loss(self, series, future):
        return F.l1_loss(self(series), future - future.mean(1, keepdim=True))


class RightInAMethod(OfAMethod):
    def loss(self, series, future):
        return F.l1_loss(self(series), future)


class WithoutALoss(Series):
    def forward(self, series):
        return super().forward(series)


@pytest.mark.parametrize(
    ("cls", "verdict"),
    [
        (Series, "PASS"),
        (InItsOwnUnits, "FAIL"),
        (OfSteps, "NOT_PROVIDED"),
        (OfAMethod, "FAIL"),
        (RightInAMethod, "PASS"),
        (WithoutALoss, "NOT_PROVIDED"),
    ],
)
def test_the_level_of_what_follows_is_taught(cls, verdict):
    found = run_check(CHECKS["forecasts-are-taught-the-level-of-what-follows"], pointed(cls), "quick")
    assert found.verdict.name == verdict, found.message
    if cls is OfAMethod:
        assert "future.mean(1" in found.place
