"""A model whose forward asks for what nothing shows: the functions beside it are tested all the same."""

import pytest

pytest.importorskip("torch")

from conformance.adapters import resolve

FORECASTER = '''
import torch
from torch import nn

class Forecaster(nn.Module):
    """Forecasts from lags of a series, which must be as long as all of them together."""
    def __init__(self, series=5, d_model=8):
        super().__init__()
        self.series, self.inner = nn.Embedding(series, 8), nn.Linear(3, d_model)
        self.encoder = nn.TransformerEncoderLayer(d_model, 2, 16, 0.0, batch_first=True)

    def forward(self, past, marks, series_id, scale):
        if past.shape[1] != 17 or marks.shape[1:] != (12, 2):
            raise ValueError("the past has 17 steps, and 12 have marks")
        x = torch.stack([past[:, 17 - 12 - lag : 17 - lag] for lag in (1, 2, 5)], -1) * scale[:, None, None]
        return self.encoder(self.inner(x) + self.series(series_id)[:, None])

def quantile_loss(pred, target, quantiles):
    error = target[:, None] - pred
    return torch.maximum((1 - quantiles) * error, -quantiles * error).mean()
'''


def test_functions_beside_a_model_that_cannot_be_called_are_tested(tmp_path):
    (tmp_path / "forecaster_of_lags.py").write_text(FORECASTER)
    found = resolve(f"{tmp_path / 'forecaster_of_lags.py'}:Forecaster")
    (untested,) = found.untested
    assert untested.startswith("only functions beside Forecaster were tested")
    (wrong,) = found.build("helpers", {}).wrong
    assert wrong.claim == "quantile-losses-are-lowest-at-the-quantile"
