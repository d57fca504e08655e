"""A prefix language model: the first words of a row see each other, those behind them are written one by one.

A row may hold several documents."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, d_model, n_heads, d_ff):
        super().__init__()
        self.n_heads = n_heads
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.feed_forward = nn.Sequential(nn.Linear(d_model, d_ff), nn.GELU(), nn.Linear(d_ff, d_model))

    def attend(self, x, visible):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.n_heads, width // self.n_heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.n_heads)
        weights = scores.masked_fill(~visible, -1e9).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))

    def forward(self, x, visible):
        x = x + self.attend(self.norm1(x), visible)
        return x + self.feed_forward(self.norm2(x))


class PrefixLM(nn.Module):
    """Options: max_len; tokens 0 are padding behind a text."""

    def __init__(self, vocab_size=31, d_model=16, n_heads=2, n_layers=2, d_ff=24, max_len=24):
        super().__init__()
        self.max_len = max_len
        self.tokens, self.positions = nn.Embedding(vocab_size, d_model), nn.Embedding(max_len, d_model)
        self.blocks = nn.ModuleList(Block(d_model, n_heads, d_ff) for _ in range(n_layers))
        self.norm, self.head = nn.LayerNorm(d_model), nn.Linear(d_model, vocab_size)

    def forward(self, ids, prefix_len=None, document_ids=None):
        """Logits (B, T, V). prefix_len (B): so many words at the start see each other; causal without it. document_ids
        (B, T): a word sees those of its own document only."""
        places = torch.arange(ids.shape[1])
        visible = places[None, :] <= places[:, None]
        if prefix_len is not None:
            visible = visible | (places[None, None, :] < prefix_len[:, None, None])
            visible = visible.unsqueeze(1)
        if document_ids is not None:
            visible = visible & (document_ids[:, None, :, None] == document_ids[:, None, None, :])
        x = self.tokens(ids) + self.positions(places)
        for block in self.blocks:
            x = block(x, visible)
        return self.head(self.norm(x))

    def loss(self, ids, prefix_len):
        """The mean cross-entropy of the words behind the prefix, each from those before it."""
        logits = self(ids[:, :-1], prefix_len)
        each = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        counts = torch.arange(1, ids.shape[1]) >= prefix_len[:, None]
        return (each * counts).sum() / counts.sum()

    @torch.no_grad()
    def complete(self, prompt, n):
        """The prompt (B, T), which is read as a prefix, and n words behind it."""
        prefix_len = torch.full((len(prompt),), prompt.shape[1])
        ids = prompt
        for _ in range(n):
            best = self(ids[:, -self.max_len :], prefix_len)[:, -1].argmax(-1, keepdim=True)
            ids = torch.cat((ids, best), 1)
        return ids
