"""An encoder of series with gaps: one vector for a series, and the missing steps filled in."""

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

    def forward(self, x, keys):
        q, k, v = (
            part.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=keys[:, None, None])
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Imputer(nn.Module):
    """Series (B, T, channels), and valid (B, T), True for steps that were recorded."""

    def __init__(self, channels=3, size=7, width=16, n_heads=2, n_layers=2, max_len=64):
        super().__init__()
        self.enter, self.unseen = nn.Linear(channels, width), nn.Parameter(0.02 * torch.randn(width))
        self.places = nn.Parameter(torch.randn(max_len, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, n_heads) for _ in range(n_layers))
        self.norm, self.head, self.rebuild = nn.LayerNorm(width), nn.Linear(width, size), nn.Linear(width, channels)

    def states(self, x, valid, missing=None):
        """The states (B, T, width), and mean and deviation of each channel over the steps that are seen."""
        seen = (valid if missing is None else valid & ~missing)[..., None].to(x)
        count = seen.sum(1, keepdim=True).clamp(min=1)
        mean = (x * seen).sum(1, keepdim=True) / count
        std = (((x - mean).square() * seen).sum(1, keepdim=True) / count + 1e-5).sqrt()
        h = self.enter((x - mean) / std)
        if missing is not None:
            h = torch.where(missing[..., None], self.unseen, h)
        h = h + self.places[: x.shape[1]]
        for block in self.blocks:
            h = block(h, valid)
        return self.norm(h), mean, std

    def forward(self, x, valid=None):
        valid = torch.ones(x.shape[:2], dtype=torch.bool) if valid is None else valid
        states, _, _ = self.states(x, valid)
        real = valid[..., None].to(states)
        return self.head((states * real).sum(1) / real.sum(1).clamp(min=1))

    @torch.no_grad()
    def impute(self, x, valid, missing):
        """The series with its missing steps filled in."""
        states, mean, std = self.states(x, valid, missing)
        guess = self.rebuild(states) * std + mean
        return torch.where(missing[..., None], guess, x)
