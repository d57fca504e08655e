"""A GPT: learned positions, pre-norm blocks, a tied head, a loss, a cache that generate feeds."""

import math

import torch
import torch.nn.functional as F
from torch import nn


class CausalSelfAttention(nn.Module):
    def __init__(self, d_model, n_heads, dropout):
        super().__init__()
        self.n_heads = n_heads
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, real=None, past=None):
        """x: (B, T, d). real: (B, keys) of bool. past: keys and values (B, H, P, d / H) of the tokens before these."""
        batch, length, width = x.shape
        heads = self.qkv(x).view(batch, length, 3, self.n_heads, width // self.n_heads)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        keys = k.shape[2]
        visible = torch.ones(length, keys, dtype=torch.bool).tril(keys - length)
        if real is not None:
            visible = visible & real[:, None, None, :]
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        weights = scores.masked_fill(~visible, -1e30).softmax(-1)
        mixed = (self.drop(weights) @ v).transpose(1, 2).reshape(batch, length, width)
        return self.out(mixed), (k, v)


class Block(nn.Module):
    def __init__(self, d_model, n_heads, dropout):
        super().__init__()
        self.norm1 = nn.LayerNorm(d_model)
        self.attention = CausalSelfAttention(d_model, n_heads, dropout)
        self.norm2 = nn.LayerNorm(d_model)
        self.mlp = nn.Sequential(nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model))
        self.drop = nn.Dropout(dropout)

    def forward(self, x, real, past):
        mixed, present = self.attention(self.norm1(x), real, past)
        x = x + self.drop(mixed)
        return x + self.drop(self.mlp(self.norm2(x))), present


class GPT(nn.Module):
    def __init__(self, vocab_size=29, d_model=16, n_heads=2, n_layers=2, block_size=24, dropout=0.1):
        super().__init__()
        self.block_size = block_size
        self.tokens = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(block_size, d_model)
        self.drop = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(d_model, n_heads, dropout) for _ in range(n_layers))
        self.norm = nn.LayerNorm(d_model)
        self.head = nn.Linear(d_model, vocab_size, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids, targets=None, attention_mask=None, past_key_values=None):
        """Logits (B, T, V), the loss of the targets (already shifted; -100 is left out), and the new cache."""
        start = 0 if past_key_values is None else past_key_values[0][0].shape[2]
        if attention_mask is None:
            real, places = None, torch.arange(start, start + ids.shape[1])
        else:
            real = attention_mask.bool()
            places = (real.long().cumsum(1) - 1).clamp(min=0)[:, start:]
        x = self.drop(self.tokens(ids) + self.positions(places))
        presents = []
        for layer, block in enumerate(self.blocks):
            x, present = block(x, real, None if past_key_values is None else past_key_values[layer])
            presents.append(present)
        logits = self.head(self.norm(x))
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
        return logits, loss, presents

    @torch.no_grad()
    def generate(self, ids, max_new_tokens, temperature=1.0, top_k=None, eos_id=None, use_cache=True):
        """The ids with up to max_new_tokens more, each drawn from the top_k likeliest; an ended row is filled up."""
        cache, new = None, ids
        ended = torch.zeros(len(ids), 1, dtype=torch.bool)
        for _ in range(max_new_tokens):
            logits, _, presents = self(new, past_key_values=cache)
            scores = logits[:, -1] / temperature
            if top_k is not None:
                least = scores.topk(top_k).values[:, -1:]
                scores = scores.masked_fill(scores < least, -math.inf)
            chosen = torch.multinomial(scores.softmax(-1), 1)
            if eos_id is not None:
                chosen = chosen.masked_fill(ended, eos_id)
                ended = ended | (chosen == eos_id)
            ids = torch.cat((ids, chosen), 1)
            if ended.all():
                break
            cache, new = (presents, chosen) if use_cache else (None, ids)
        return ids
