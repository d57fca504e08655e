"""A forecaster of quantiles: settings in a dataclass, patches of each channel, the loss of the levels."""

from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Settings:
    n_channels: int = 3
    context: int = 24
    horizon: int = 5
    patch: int = 4
    width: int = 16
    n_heads: int = 2
    n_layers: int = 2
    quantiles: tuple[float, ...] = (0.1, 0.5, 0.7, 0.9)


class QuantileForecaster(nn.Module):
    """Series (B, context, channels) to the quantiles of what follows, (B, horizon, channels, levels), of the normalised
    series; `forecast` gives them in its own units."""

    def __init__(self, settings: Settings):
        super().__init__()
        self.settings, width = settings, settings.width
        self.count = count = settings.context // settings.patch
        self.gain = nn.Parameter(torch.ones(settings.n_channels))
        self.embed = nn.Linear(settings.patch, width)
        self.position = nn.Parameter(torch.randn(1, count, width) * 0.02)
        layer = nn.TransformerEncoderLayer(width, settings.n_heads, 2 * width, 0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, settings.n_layers, enable_nested_tensor=False)
        self.head = nn.Linear(count * width, settings.horizon * len(settings.quantiles))
        self.register_buffer("levels", torch.tensor(settings.quantiles), persistent=False)

    def level_and_scale(self, x):
        return x.mean(1, keepdim=True), (x.var(1, keepdim=True, unbiased=False) + 1e-5).sqrt()

    def forward(self, x):
        batch, _, channels = x.shape
        level, scale = self.level_and_scale(x)
        x = ((x - level) / scale * self.gain).transpose(1, 2).reshape(batch * channels, self.count, -1)
        x = self.encoder(self.embed(x) + self.position)
        y = self.head(x.flatten(1)).view(batch, channels, self.settings.horizon, -1)
        return y.transpose(1, 2)

    def loss(self, x, future):
        """The mean loss of the levels; future: (B, horizon, channels)."""
        level, scale = self.level_and_scale(x)
        error = ((future - level) / scale)[..., None] - self(x)
        return torch.maximum(self.levels * error, (self.levels - 1) * error).mean()

    @torch.no_grad()
    def forecast(self, x):
        level, scale = self.level_and_scale(x)
        return self(x) * scale[..., None] + level[..., None]

    def likely(self, x):
        """The forecast of the level that is nearest to the middle."""
        return self.forecast(x)[..., (self.levels - 0.5).abs().argmin()]
