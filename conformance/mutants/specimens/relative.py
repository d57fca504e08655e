"""A masked language model whose positions are learned biases of buckets of distance, one table for all layers."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class RelativeBias(nn.Module):
    """(1, H, T, T): a number a head for each bucket of key position - query position."""

    def __init__(self, n_heads, n_buckets=12):
        super().__init__()
        self.n_buckets = n_buckets
        self.relative_bias = nn.Embedding(n_buckets, n_heads)

    def forward(self, length):
        places = torch.arange(length)
        distance = places[None, :] - places[:, None]
        side = self.n_buckets // 2
        buckets = distance.abs().clamp(max=side - 1) + side * (distance > 0)
        return self.relative_bias(buckets).permute(2, 0, 1)[None]


class Attention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.q, self.k, self.v, self.out = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x, bias):
        batch, length, width = x.shape
        q, k, v = (f(x).view(batch, length, self.n_heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        weights = (q @ k.transpose(-2, -1) / math.sqrt(width // self.n_heads) + bias).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.attention = Attention(d_model, n_heads)
        self.up, self.down = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x, bias):
        x = x + self.attention(self.norm1(x), bias)
        return x + self.down(F.relu(self.up(self.norm2(x))))


class RelativeForMaskedLM(nn.Module):
    def __init__(self, vocab_size=33, d_model=16, n_heads=2, n_layers=2, d_ff=24, mask_token_id=3):
        super().__init__()
        self.mask_token_id = mask_token_id
        self.tokens, self.bias = nn.Embedding(vocab_size, d_model), RelativeBias(n_heads)
        self.layers = nn.ModuleList(Layer(d_model, n_heads, d_ff) for _ in range(n_layers))
        self.norm, self.mlm_head = nn.LayerNorm(d_model), nn.Linear(d_model, vocab_size)

    def forward(self, input_ids):
        """input_ids (B, T) to logits (B, T, V) of the masked words."""
        x, bias = self.tokens(input_ids), self.bias(input_ids.shape[1])
        for layer in self.layers:
            x = layer(x, bias)
        return self.mlm_head(self.norm(x))
