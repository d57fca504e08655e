"""Attention: layouts, masks and conventions that the field uses, all right."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from torch_subjects import correct, merge, split


@correct
class SeparateProjections(nn.Module):
    """Four Linears; a 0/1 mask; the output alone."""

    role = "multi_head_attention"
    scale_by_model = False

    def __init__(self, d_model, num_heads, dropout=0.1):
        super().__init__()
        self.heads = num_heads
        self.w_query = nn.Linear(d_model, d_model)
        self.w_key = nn.Linear(d_model, d_model)
        self.w_value = nn.Linear(d_model, d_model)
        self.w_out = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)

    def scores(self, q, k):
        return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])

    def masked(self, scores, mask):
        return scores.masked_fill(mask == 0, float("-inf"))

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            split(f(x), self.heads) for f, x in ((self.w_query, query), (self.w_key, key), (self.w_value, value))
        )
        scores = self.scores(q, k)
        if mask is not None:
            scores = self.masked(scores, mask)
        return self.w_out(merge(self.dropout(scores.softmax(-1)) @ v))


@correct
class HiddenMask(SeparateProjections):
    """True hides; heads come first in the constructor, values before keys in the call; (out, weights)."""

    def __init__(self, n_head, hidden_size):
        super().__init__(hidden_size, n_head)

    def forward(self, q, v, k, mask=None):
        q, k, v = (split(f(x), self.heads) for f, x in ((self.w_query, q), (self.w_key, k), (self.w_value, v)))
        scores = self.scores(q, k)
        if mask is not None:
            scores = scores.masked_fill(mask, float("-inf"))
        weights = scores.softmax(-1)
        return self.w_out(merge(weights @ v)), weights


@correct
class AdditiveMask(SeparateProjections):
    """A mask of 0 and -inf that is added, shaped (B, T, T) or (T, T)."""

    def forward(self, query, key, value, attn_mask=None):
        q, k, v = (
            split(f(x), self.heads) for f, x in ((self.w_query, query), (self.w_key, key), (self.w_value, value))
        )
        scores = self.scores(q, k)
        if attn_mask is not None:
            scores = scores + (attn_mask if attn_mask.ndim == 2 else attn_mask.unsqueeze(1))
        return self.w_out(merge(self.dropout(scores.softmax(-1)) @ v))


@correct
class SequenceFirst(nn.Module):
    """torch's own, as it is by default: (T, B, d), True hides, one mask for keys and one for pairs."""

    role = "multi_head_attention"

    def __init__(self, embed_dim, nhead):
        super().__init__()
        self.attn = nn.MultiheadAttention(embed_dim, nhead)

    def forward(self, query, key, value, attn_mask=None, key_padding_mask=None):
        return self.attn(query, key, value, attn_mask=attn_mask, key_padding_mask=key_padding_mask)


@correct
class NumberedLinears(SeparateProjections):
    """A list of four alike layers."""

    def __init__(self, h, d_model):
        nn.Module.__init__(self)
        self.heads = h
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, query, key, value, mask=None):
        q, k, v = (split(f(x), self.heads) for f, x in zip(self.linears, (query, key, value), strict=False))
        scores = self.scores(q, k)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        return self.linears[-1](merge(scores.softmax(-1) @ v))


@correct
class EinsumKernels(nn.Module):
    """Kernels with a head axis, (d, h, d_head) in and (h, d_head, d) out; no bias."""

    role = "multi_head_attention"

    def __init__(self, dim, heads):
        super().__init__()
        assert dim % heads == 0
        self.query = nn.Parameter(torch.randn(dim, heads, dim // heads) * 0.1)
        self.key = nn.Parameter(torch.randn(dim, heads, dim // heads) * 0.1)
        self.value = nn.Parameter(torch.randn(dim, heads, dim // heads) * 0.1)
        self.out = nn.Parameter(torch.randn(heads, dim // heads, dim) * 0.1)

    def forward(self, x, context, mask=None):
        q = torch.einsum("btd,dhk->bhtk", x, self.query)
        k, v = (torch.einsum("btd,dhk->bhtk", context, w) for w in (self.key, self.value))
        return torch.einsum("bhtk,hkd->btd", F.scaled_dot_product_attention(q, k, v, mask), self.out)


@correct
class PlainMatrices(nn.Module):
    """Parameters used as x @ W: stored (in, out); bias on the output only; one context for keys and values."""

    role = "multi_head_attention"

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.heads = n_heads
        self.W_Q, self.W_K, self.W_V, self.W_O = (nn.Parameter(torch.randn(d_model, d_model)) for _ in range(4))
        self.b_O = nn.Parameter(torch.zeros(d_model))

    def forward(self, hidden_states, encoder_hidden_states, mask=None):
        q, k, v = (
            split(x @ w, self.heads)
            for x, w in (
                (hidden_states, self.W_Q),
                (encoder_hidden_states, self.W_K),
                (encoder_hidden_states, self.W_V),
            )
        )
        return merge(F.scaled_dot_product_attention(q, k, v, mask)) @ self.W_O + self.b_O


@correct
class PostNormInside(SeparateProjections):
    """Dropout, residual and norm inside the attention module."""

    def __init__(self, n_head, d_model):
        super().__init__(d_model, n_head)
        self.layer_norm = nn.LayerNorm(d_model)

    def forward(self, q, k, v, mask=None):
        return self.layer_norm(q + super().forward(q, k, v, mask))


@dataclass
class GPTConfig:
    block_size: int = 64
    n_embd: int = 16
    n_head: int = 4
    dropout: float = 0.1


class Conv1D(nn.Module):
    """A linear layer whose weight is stored (in, out)."""

    def __init__(self, n_out, n_in):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_in, n_out) * 0.1)
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, x):
        return x @ self.weight + self.bias


@correct
class FusedCausal(nn.Module):
    """One [q | k | v] Conv1D, causal by itself, from a config object."""

    role = "multi_head_attention"

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.n_head = config.n_head
        self.dropout = config.dropout
        self.c_attn = Conv1D(3 * config.n_embd, config.n_embd)
        self.c_proj = Conv1D(config.n_embd, config.n_embd)
        self.register_buffer("visible", torch.tril(torch.ones(config.block_size, config.block_size)).bool())

    def forward(self, x):
        q, k, v = (split(part, self.n_head) for part in self.c_attn(x).chunk(3, -1))
        mask = self.visible[: x.shape[1], : x.shape[1]]
        rate = self.dropout if self.training else 0.0
        return self.c_proj(merge(F.scaled_dot_product_attention(q, k, v, mask, rate)))


@correct
class FusedPerHead(nn.Module):
    """Each head's own [q | k | v] in one Linear; the weights averaged over heads come with the output."""

    role = "multi_head_attention"

    def __init__(self, hidden_size, num_attention_heads):
        super().__init__()
        self.heads = num_attention_heads
        self.query_key_value = nn.Linear(hidden_size, 3 * hidden_size)
        self.dense = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden_states, attention_mask=None):
        q, k, v = self.query_key_value(hidden_states).unflatten(-1, (self.heads, -1)).transpose(1, 2).chunk(3, -1)
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        if attention_mask is not None:
            scores = scores + (1.0 - attention_mask[:, None, None, :]) * -1e9
        weights = scores.softmax(-1)
        return self.dense(merge(weights @ v)), weights.mean(1)


@correct
class HeadByHead(nn.Module):
    """A module for each head, their outputs concatenated; no bias in the heads."""

    role = "multi_head_attention"

    class Head(nn.Module):
        def __init__(self, d_model, head_size):
            super().__init__()
            self.query = nn.Linear(d_model, head_size, bias=False)
            self.key = nn.Linear(d_model, head_size, bias=False)
            self.value = nn.Linear(d_model, head_size, bias=False)

    def __init__(self, d_model, n_heads):
        super().__init__()
        self.heads = nn.ModuleList(self.Head(d_model, d_model // n_heads) for _ in range(n_heads))
        self.proj = nn.Linear(d_model, d_model)

    def forward(self, x, mask=None):
        outs = [F.scaled_dot_product_attention(h.query(x), h.key(x), h.value(x), mask) for h in self.heads]
        return self.proj(torch.cat(outs, -1))


@correct
class GroupedQuery(nn.Module):
    """Fewer key and value heads than query heads."""

    role = "grouped_query_attention"

    def __init__(self, dim, n_heads, n_kv_heads):
        super().__init__()
        self.heads, self.kv_heads, head = n_heads, n_kv_heads, dim // n_heads
        self.wq = nn.Linear(dim, n_heads * head, bias=False)
        self.wk = nn.Linear(dim, n_kv_heads * head, bias=False)
        self.wv = nn.Linear(dim, n_kv_heads * head, bias=False)
        self.wo = nn.Linear(n_heads * head, dim, bias=False)

    def repeated(self, x):
        return x.repeat_interleave(self.heads // self.kv_heads, 1)

    def forward(self, x, mask=None):
        q, k, v = split(self.wq(x), self.heads), split(self.wk(x), self.kv_heads), split(self.wv(x), self.kv_heads)
        return self.wo(merge(F.scaled_dot_product_attention(q, self.repeated(k), self.repeated(v), mask)))


@correct
class SelfAttention(nn.Module):
    """One head, no output projection, a mask (B, 1, T)."""

    role = "self_attention"

    def __init__(self, d_in, d_k):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(d_in, d_k, bias=False) for _ in range(3))

    def forward(self, x, mask=None):
        scores = self.q(x) @ self.k(x).transpose(1, 2) / self.q.out_features**0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        weights = scores.softmax(-1)
        return weights @ self.v(x), weights


@correct
class ListOfFused(SeparateProjections):
    """Three alike layers in a list whose name says qkv, and one for the output."""

    def __init__(self, model_dim, heads, dropout_rate=0.1):
        nn.Module.__init__(self)
        self.heads = heads
        self.qkv_layers = nn.ModuleList(nn.Linear(model_dim, model_dim) for _ in range(3))
        self.projection = nn.Linear(model_dim, model_dim)
        self.dropout = nn.Dropout(dropout_rate)

    def forward(self, query, key, value, mask):
        q, k, v = (split(f(x), self.heads) for f, x in zip(self.qkv_layers, (query, key, value), strict=True))
        scores = self.scores(q, k)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, float("-inf"))
        return self.projection(merge(self.dropout(scores.softmax(-1)) @ v))


@correct
class AddedMask(ListOfFused):
    """Cannot do without a mask, which it adds to its scores."""

    def forward(self, query, key, value, mask):
        q, k, v = (split(f(x), self.heads) for f, x in zip(self.qkv_layers, (query, key, value), strict=True))
        scores = self.scores(q, k) + mask
        return self.projection(merge(self.dropout(scores.softmax(-1)) @ v))


@correct
class NormedInput(nn.Module):
    """Normalises its input, adds no residual; the width of a head is an option of its own; no mask."""

    role = "multi_head_attention"

    def __init__(self, dim, heads=8, dim_head=64):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(dim)
        self.to_qkv = nn.Linear(dim, 3 * heads * dim_head, bias=False)
        self.to_out = nn.Linear(heads * dim_head, dim)

    def forward(self, x):
        q, k, v = (split(part, self.heads) for part in self.to_qkv(self.norm(x)).chunk(3, -1))
        return self.to_out(merge(F.scaled_dot_product_attention(q, k, v)))


@correct
class SharedKeyHeads(nn.Module):
    """From a config without annotation, with fewer key and value heads; an additive mask."""

    role = "grouped_query_attention"

    def __init__(self, args):
        super().__init__()
        assert args.n_heads % args.n_kv_heads == 0
        self.heads, self.shared = args.n_heads, args.n_heads // args.n_kv_heads
        self.wq = nn.Linear(args.dim, args.dim, bias=False)
        self.wk, self.wv = (nn.Linear(args.dim, args.dim // self.shared, bias=False) for _ in range(2))
        self.wo = nn.Linear(args.dim, args.dim, bias=False)

    def forward(self, x, mask=None):
        q, k, v = (
            split(self.wq(x), self.heads),
            *(split(f(x), self.heads // self.shared).repeat_interleave(self.shared, 1) for f in (self.wk, self.wv)),
        )
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        return self.wo(merge((scores if mask is None else scores + mask).softmax(-1) @ v))


@correct
class CachedHeads(FusedPerHead):
    """Keeps keys and values between calls; a call with several positions is masked behind the cache."""

    role = "cached_attention"

    def forward(self, x, past_kv=None):
        q, k, v = self.query_key_value(x).unflatten(-1, (self.heads, -1)).transpose(1, 2).chunk(3, -1)
        if past_kv is not None:
            k, v = (torch.cat([old, new], 2) for old, new in zip(past_kv, (k, v), strict=True))
        visible = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(k.shape[2] - q.shape[2])
        return self.dense(merge(F.scaled_dot_product_attention(q, k, v, visible))), (k, v)
