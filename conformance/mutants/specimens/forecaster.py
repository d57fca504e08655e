"""A forecaster of several series: reversible instance norm, patches, channels that are independent, and a roll-out."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        q, k, v = (
            part.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Forecaster(nn.Module):
    """Series (B, context, channels) to forecasts (B, horizon, channels). The channels are independent, and the norm of
    each is reversible."""

    def __init__(self, n_channels=3, context=24, horizon=5, patch=4, width=16, n_heads=2, n_layers=2):
        super().__init__()
        self.context, self.horizon, self.patch = context, horizon, patch
        count = context // patch
        self.gain, self.shift = nn.Parameter(torch.ones(n_channels)), nn.Parameter(torch.zeros(n_channels))
        self.embed = nn.Linear(patch, width)
        self.places = nn.Parameter(torch.randn(count, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, n_heads) for _ in range(n_layers))
        self.head = nn.Linear(count * width, horizon)

    def forward(self, x, observed=None):
        """observed: (B, context, channels), 0 in gaps, which are NaN where it is not told."""
        batch, steps, channels = x.shape
        observed = (~torch.isnan(x)).to(x.dtype) if observed is None else observed
        filled = torch.nan_to_num(x)
        count = observed.sum(1, keepdim=True).clamp(min=1)
        mean = (filled * observed).sum(1, keepdim=True) / count
        std = (((filled - mean).square() * observed).sum(1, keepdim=True) / count + 1e-5).sqrt()
        x = ((filled - mean) / std * self.gain + self.shift) * observed
        x = x.transpose(1, 2).reshape(batch * channels, steps // self.patch, self.patch)
        x = self.embed(x) + self.places
        for block in self.blocks:
            x = block(x)
        y = self.head(x.flatten(1)).reshape(batch, channels, self.horizon).transpose(1, 2)
        return self.denormalized((y - self.shift) / self.gain, mean, std)

    def denormalized(self, y, mean, std):
        return y * std + mean

    def error_loss(self, x, future, observed):
        """The mean squared error over observed points (B, H, C)."""
        return ((self(x) - future).square() * observed).sum() / observed.sum()

    @torch.no_grad()
    def rollout(self, x, steps):
        """As many steps as are asked for, each forecast read by those behind it."""
        made = []
        for _ in range(-(-steps // self.horizon)):
            made.append(self(x[:, -self.context :]))
            x = torch.cat([x, made[-1]], 1)
        return torch.cat(made, 1)[:, :steps]
