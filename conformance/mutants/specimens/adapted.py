"""A language model with adapters of low rank beside frozen weights, which can be merged and taken out again."""

import torch
import torch.nn.functional as F
from torch import nn


class Adapted(nn.Module):
    """A frozen linear map, and an update of it of rank r, times alpha / r."""

    def __init__(self, n_in, n_out, r=2, alpha=4):
        super().__init__()
        self.base = nn.Linear(n_in, n_out).requires_grad_(False)
        self.a, self.b = nn.Parameter(torch.randn(r, n_in) * n_in**-0.5), nn.Parameter(torch.zeros(n_out, r))
        self.scaling, self.is_merged = alpha / r, False

    @torch.no_grad()
    def merge(self):
        if not self.is_merged:
            self.base.weight += self.scaling * self.b @ self.a
            self.is_merged = True

    @torch.no_grad()
    def unmerge(self):
        if self.is_merged:
            self.base.weight -= self.scaling * self.b @ self.a
            self.is_merged = False

    def forward(self, x):
        y = self.base(x)
        return y if self.is_merged else y + self.scaling * F.linear(F.linear(x, self.a), self.b)


class Block(nn.Module):
    def __init__(self, width, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.value = Adapted(width, width), Adapted(width, width)
        self.key, self.out = nn.Linear(width, width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        h = self.norm1(x)
        q, k, v = (
            part(h).unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.relu(self.up(self.norm2(x))))


class AdaptedLM(nn.Module):
    def __init__(self, vocab_size=31, width=16, n_heads=2, n_layers=2, max_len=24):
        super().__init__()
        self.words, self.places = nn.Embedding(vocab_size, width), nn.Embedding(max_len, width)
        self.blocks = nn.ModuleList(Block(width, n_heads) for _ in range(n_layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab_size, bias=False)

    def forward(self, ids):
        """Logits (B, T, V) of the next token."""
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
