"""A language model whose only positions are ALiBi's linear biases; its feed-forward networks are gated by one map."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.register_buffer("slopes", 2.0 ** (-8 * torch.arange(1, n_heads + 1) / n_heads), persistent=False)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.n_heads, width // self.n_heads).permute(2, 0, 3, 1, 4)
        places = torch.arange(length)
        distance = places[:, None] - places
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.n_heads)
        scores = scores - self.slopes[:, None, None] * distance
        past = torch.ones(length, length, dtype=torch.bool).tril()
        weights = scores.masked_fill(~past, -math.inf).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class FeedForward(nn.Module):
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.up, self.down = nn.Linear(d_model, 2 * d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x):
        value, gate = self.up(x).chunk(2, -1)
        return self.down(value * F.gelu(gate))


class Block(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.attention = Attention(d_model, n_heads)
        self.feed_forward = FeedForward(d_model, d_ff)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.feed_forward(self.norm2(x))


class ALiBi(nn.Module):
    def __init__(self, vocab_size=29, d_model=16, n_heads=4, n_layers=2, d_ff=24):
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.blocks = nn.ModuleList(Block(d_model, n_heads, d_ff) for _ in range(n_layers))
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, vocab_size, bias=False)
        for name, weight in self.named_parameters():
            if name.endswith(("attention.out.weight", "down.weight")):  # what writes into the stream starts smaller
                nn.init.normal_(weight, std=(2 * n_layers * d_model) ** -0.5)

    def forward(self, tokens):
        """Logits (B, T, V) of the token after each."""
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

    def teach(self, tokens, loss_mask=None):
        """The mean cross-entropy of the tokens that loss_mask (B, T) marks, each as the one behind those before it."""
        logits = self(tokens[:, :-1])
        each = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
        counted = torch.ones_like(each) if loss_mask is None else loss_mask[:, 1:].flatten().to(each.dtype)
        return (each * counted).sum() / counted.sum()
