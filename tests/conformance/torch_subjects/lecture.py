"""Models as lectures and books write them: sizes as constants of the file, and sizes from a dict."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from torch_subjects import merge, split

block_size = 32
n_embd = 48
n_head = 6
n_layer = 3
dropout = 0.2
vocab_size = 65
batch_size = 16


class Head(nn.Module):
    """One causal head."""

    def __init__(self, head_size):
        super().__init__()
        self.key, self.query, self.value = (nn.Linear(n_embd, head_size, bias=False) for _ in range(3))
        self.register_buffer("tril", torch.ones(block_size, block_size).tril())
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        scores = self.query(x) @ self.key(x).mT * self.key.out_features**-0.5
        weights = scores.masked_fill(self.tril[: x.shape[1], : x.shape[1]] == 0, float("-inf")).softmax(-1)
        return self.dropout(weights) @ self.value(x)


class ListedHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList(Head(n_embd // n_head) for _ in range(n_head))
        self.proj, self.dropout = nn.Linear(n_embd, n_embd), nn.Dropout(dropout)

    def forward(self, x):
        return self.dropout(self.proj(torch.cat([head(x) for head in self.heads], -1)))


class FusedHeads(nn.Module):
    """The constants are read when it runs, too."""

    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (n_head, n_embd // n_head)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        scores = q @ k.mT / (n_embd // n_head) ** 0.5
        weights = scores.masked_fill(torch.ones_like(scores[0, 0]).triu(1) == 1, -1e9).softmax(-1)
        return F.dropout(self.proj(merge(weights @ v)), dropout, self.training)


class Block(nn.Module):
    def __init__(self, attention):
        super().__init__()
        self.sa, self.ln1, self.ln2 = attention, nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        first, second = nn.Linear(n_embd, 4 * n_embd), nn.Linear(4 * n_embd, n_embd)
        self.ffwd = nn.Sequential(first, nn.ReLU(), second, nn.Dropout(dropout))

    def forward(self, x):
        x = x + self.sa(self.ln1(x))
        return x + self.ffwd(self.ln2(x))


class Lecture(nn.Module):
    """Takes nothing: every size is a constant of the file."""

    attention = ListedHeads

    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab_size, n_embd), nn.Embedding(block_size, n_embd)
        self.blocks = nn.Sequential(*[Block(self.attention()) for _ in range(n_layer)])
        self.ln_f, self.lm_head = nn.LayerNorm(n_embd), nn.Linear(n_embd, vocab_size)

    def forward(self, idx, targets=None):
        x = self.tokens(idx) + self.positions(torch.arange(idx.shape[1]))
        return self.lm_head(self.ln_f(self.blocks(x))), None


class FusedLecture(Lecture):
    attention = FusedHeads


class HeadsOfBook(nn.Module):
    def __init__(self, d_in, d_out, context_length, num_heads, dropout, qkv_bias=False):
        super().__init__()
        self.heads = num_heads
        self.W_query, self.W_key, self.W_value = (nn.Linear(d_in, d_out, bias=qkv_bias) for _ in range(3))
        self.out_proj, self.dropout = nn.Linear(d_out, d_out), nn.Dropout(dropout)
        self.register_buffer("mask", torch.ones(context_length, context_length).triu(1))

    def forward(self, x):
        q, k, v = (split(project(x), self.heads) for project in (self.W_query, self.W_key, self.W_value))
        scores = (q @ k.mT).masked_fill(self.mask.bool()[: x.shape[1], : x.shape[1]], -torch.inf)
        return self.out_proj(merge(self.dropout((scores / k.shape[-1] ** 0.5).softmax(-1)) @ v))


class NetworkOfBook(nn.Module):
    """Drops nothing."""

    def __init__(self, cfg):
        super().__init__()
        width = cfg["emb_dim"]
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))

    def forward(self, x):
        return self.layers(x)


class BlockOfBook(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        width = cfg["emb_dim"]
        sizes = (width, width, cfg["context_length"], cfg["n_heads"])
        self.att, self.ff = HeadsOfBook(*sizes, cfg["drop_rate"], cfg.get("qkv_bias", False)), NetworkOfBook(cfg)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.drop_shortcut = nn.Dropout(cfg["drop_rate"])

    def forward(self, x):
        x = x + self.drop_shortcut(self.att(self.norm1(x)))
        return x + self.drop_shortcut(self.ff(self.norm2(x)))


class Book(nn.Module):
    """Every size is in a dict."""

    def __init__(self, cfg):
        super().__init__()
        self.tok_emb = nn.Embedding(cfg["vocab_size"], cfg["emb_dim"])
        self.pos_emb = nn.Embedding(cfg["context_length"], cfg["emb_dim"])
        self.blocks = nn.Sequential(*[BlockOfBook(cfg) for _ in range(cfg["n_layers"])])
        self.final_norm = nn.LayerNorm(cfg["emb_dim"])
        self.out_head = nn.Linear(cfg["emb_dim"], cfg["vocab_size"], bias=False)

    def forward(self, in_idx):
        x = self.tok_emb(in_idx) + self.pos_emb(torch.arange(in_idx.shape[1]))
        return self.out_head(self.final_norm(self.blocks(x)))


class SixHeads(BlockOfBook):
    def __init__(self, d_model):
        super().__init__({"emb_dim": d_model, "context_length": 32, "n_heads": 6, "drop_rate": 0.0})


class GeneratingBook(Book):
    """Continues a text; `visible` says what its attention leaves to see."""

    def __init__(self, cfg):
        super().__init__(cfg)
        for block in self.blocks:
            self.visible(block.att.mask)

    def visible(self, mask):
        pass

    def generate(self, in_idx):
        return torch.cat([in_idx, self(in_idx)[:, -1:].argmax(-1)], 1)


class LooksAhead(GeneratingBook):
    def visible(self, mask):
        mask.zero_()


class HidesItself(GeneratingBook):
    """The first token sees nothing."""

    def visible(self, mask):
        mask.fill_(1.0).triu_()
