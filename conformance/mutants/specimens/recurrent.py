"""A language model with a memory, as Transformer-XL: each layer attends to the hidden states of the last segments."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, width, n_heads):
        super().__init__()
        self.n_heads = n_heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.register_buffer("slopes", 2.0 ** (-4 * torch.arange(1, n_heads + 1) / n_heads), persistent=False)

    def forward(self, x, memory=None):
        """x (B, T, d); memory (B, M, d): the states of the layer below for the tokens before these."""
        whole = self.norm1(x if memory is None else torch.cat((memory, x), 1))
        length, seen = x.shape[1], whole.shape[1]
        heads = (
            part.unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for part in (self.query(whole[:, -length:]), self.key(whole), self.value(whole))
        )
        q, k, v = heads
        distance = torch.arange(seen - length, seen)[:, None] - torch.arange(seen)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) - self.slopes[:, None, None] * distance
        visible = torch.ones(length, seen, dtype=torch.bool).tril(seen - length)
        mixed = scores.masked_fill(~visible, -math.inf).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.relu(self.up(self.norm2(x))))


class MemoryLM(nn.Module):
    def __init__(self, vocab_size=31, width=16, n_heads=2, n_layers=2, memory_length=12):
        super().__init__()
        self.memory_length = memory_length
        self.words = nn.Embedding(vocab_size, width)
        self.layers = nn.ModuleList(Layer(width, n_heads) for _ in range(n_layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab_size)

    def forward(self, ids, mems=None):
        """Logits (B, T, V) of the next token, and the memory for the next segment: a tensor a layer."""
        x, kept = self.words(ids), []
        for at, layer in enumerate(self.layers):
            before = None if mems is None else mems[at]
            kept.append(self.remembered(before, x))
            x = layer(x, before)
        return self.head(self.norm(x)), kept

    def remembered(self, before, x):
        whole = x if before is None else torch.cat((before, x), 1)
        return whole[:, -self.memory_length :].detach()

    @torch.no_grad()
    def perplexity(self, text, segment=8):
        """The perplexity of a text (B, T) that is read in segments, each with the memory of those before."""
        mems, total, count = None, 0.0, text.shape[1] - 1
        for start in range(0, count, segment):
            read, taught = text[:, start : min(start + segment, count)], text[:, start + 1 : start + segment + 1]
            logits, mems = self(read, mems)
            total += F.cross_entropy(logits.flatten(0, 1), taught.flatten()).item() * read.shape[1]
        return math.exp(total / count)
