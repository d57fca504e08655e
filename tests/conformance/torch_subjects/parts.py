"""Norms, feed-forward networks and position codes, all right."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from torch_subjects import correct


@correct
class HandLayerNorm(nn.Module):
    role = "layer_norm"

    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.gamma, self.beta, self.eps = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features)), eps

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return self.gamma * centred / (centred.square().mean(-1, keepdim=True) + self.eps).sqrt() + self.beta


@correct
class RMSNormMinusOne(nn.Module):
    """Stores its weight minus one."""

    role = "rms_norm"

    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.zeros(dim)), eps

    def forward(self, x):
        return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt() * (1.0 + self.weight)


@correct
class PositionwiseFeedForward(nn.Module):
    role = "feed_forward"

    def __init__(self, d_model, hidden, drop_prob=0.1):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(d_model, hidden), nn.GELU(), nn.Dropout(drop_prob), nn.Linear(hidden, d_model)
        )

    def forward(self, x):
        return self.net(x)


@correct
class FourTimesWide(nn.Module):
    """Decides its own hidden width; drops its output."""

    role = "feed_forward"

    def __init__(self, config):
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x):
        return self.dropout(self.c_proj(F.gelu(self.c_fc(x), approximate="tanh")))


@correct
class GatedMLP(nn.Module):
    role = "swiglu"

    def __init__(self, dim, hidden_dim):
        super().__init__()
        self.w1 = nn.Linear(dim, hidden_dim, bias=False)
        self.w2 = nn.Linear(hidden_dim, dim, bias=False)
        self.w3 = nn.Linear(dim, hidden_dim, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


@correct
class HalfSplitPositions(nn.Module):
    """All sines, then all cosines; returns the codes alone."""

    role = "sinusoidal_positions"

    def __init__(self, d_model, max_len=5000):
        super().__init__()
        rates = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10000.0) / d_model))
        angles = torch.arange(max_len, dtype=torch.float64)[:, None] * rates
        self.register_buffer("table", torch.cat([angles.sin(), angles.cos()], -1).float())

    def forward(self, x):
        return self.table[: x.shape[1]]


@correct
class LearnedPositionEmbedding(nn.Module):
    role = "learned_positions"

    def __init__(self, max_seq_len, d_model):
        super().__init__()
        self.table = nn.Embedding(max_seq_len, d_model)

    def forward(self, x):
        return x + self.table(torch.arange(x.shape[1]))


@correct
class RotaryEmbedding(nn.Module):
    """Pairs (i, i + d/2); queries and keys; a starting position."""

    role = "rope"

    def __init__(self, dim, theta=10000.0):
        super().__init__()
        self.register_buffer("rates", theta ** -(torch.arange(0, dim, 2) / dim))

    def turn(self, x, start_pos):
        angles = (torch.arange(x.shape[-2]) + start_pos)[:, None] * self.rates
        cos, sin = angles.cos(), angles.sin()
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    def forward(self, q, k, start_pos=0):
        return self.turn(q, start_pos), self.turn(k, start_pos)


@correct
class RotaryTables(nn.Module):
    """Cosines and sines of given positions; `rotate_by_tables`, beside it, turns queries and keys by them."""

    role = "rope"

    def __init__(self, dim, theta=10000.0):
        super().__init__()
        self.register_buffer("rates", theta ** -(torch.arange(0, dim, 2) / dim))

    def forward(self, x, position_ids):
        angles = torch.cat([position_ids[..., None] * self.rates] * 2, -1)
        return angles.cos(), angles.sin()


def rotate_by_tables(q, k, cos, sin):
    """Queries and keys (B, H, T, d), their pairs (i, i + d/2) turned by tables (B, T, d)."""

    def turn(x):
        a, b = x.chunk(2, -1)
        return x * cos[:, None] + torch.cat([-b, a], -1) * sin[:, None]

    return turn(q), turn(k)
