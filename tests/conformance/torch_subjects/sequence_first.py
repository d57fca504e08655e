"""A positional encoding for (T, B, d), in a file of its own: attention in the same file would tell its use."""

from __future__ import annotations

import math

import torch
from torch import nn

from torch_subjects import correct


@correct
class SequenceFirstPositions(nn.Module):
    """(T, B, d), x + codes, dropout."""

    role = "sinusoidal_positions"

    def __init__(self, d_model, dropout=0.1, max_len=5000):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        rates = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10000.0) / d_model))
        angles = torch.arange(max_len, dtype=torch.float64)[:, None] * rates
        self.register_buffer("pe", torch.stack([angles.sin(), angles.cos()], -1).flatten(1).float()[:, None])

    def forward(self, x):
        return self.dropout(x + self.pe[: x.shape[0]])
