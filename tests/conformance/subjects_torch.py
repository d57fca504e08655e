"""Small nn.Modules in the layouts and conventions that the field uses: subjects of the inference tests.

The classes of `CORRECT` are right, those of `WRONG` have one planted mistake and name in `breaks` claims that it
breaks; all name the role that they play.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CORRECT: dict[str, type[nn.Module]] = {}
WRONG: dict[str, type[nn.Module]] = {}


def correct(cls: type[nn.Module]) -> type[nn.Module]:
    CORRECT[cls.__name__] = cls
    return cls


def wrong(cls: type[nn.Module]) -> type[nn.Module]:
    WRONG[cls.__name__] = cls
    return cls


def split(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)


# --- multi-head attention -------------------------------------------------------------------------


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


# --- norms, feed-forward, positions ---------------------------------------------------------------


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


# --- layers ---------------------------------------------------------------------------------------


@correct
class EncoderBlock(nn.Module):
    """Post-norm, of the parts above."""

    role = "encoder_layer"

    def __init__(self, d_model, n_heads, d_ff, dropout=0.1):
        super().__init__()
        self.attention = SeparateProjections(d_model, n_heads, dropout)
        self.dropout = nn.Dropout(dropout)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.ff1, self.ff2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x, src_mask=None):
        x = self.norm1(x + self.dropout(self.attention(x, x, x, src_mask)))
        return self.norm2(x + self.dropout(self.ff2(F.relu(self.ff1(x)))))


@correct
class PreNormDecoderBlock(nn.Module):
    """Pre-norm, torch's attention inside."""

    role = "decoder_layer"

    def __init__(self, dim, heads, mlp_dim):
        super().__init__()
        self.self_attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.cross_attn = nn.MultiheadAttention(dim, heads, batch_first=True)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(3))
        self.mlp = nn.Sequential(nn.Linear(dim, mlp_dim), nn.GELU(), nn.Linear(mlp_dim, dim))

    def forward(self, x, memory, tgt_mask=None, memory_key_padding_mask=None):
        y = self.norms[0](x)
        x = x + self.self_attn(y, y, y, attn_mask=tgt_mask)[0]
        y = self.norms[1](x)
        x = x + self.cross_attn(y, memory, memory, key_padding_mask=memory_key_padding_mask)[0]
        return x + self.mlp(self.norms[2](x))


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
class CausalBlock(nn.Module):
    """Pre-norm around attention that is causal by itself."""

    role = "encoder_layer"

    def __init__(self, config: GPTConfig):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(config.n_embd), nn.LayerNorm(config.n_embd)
        self.attn, self.mlp = FusedCausal(config), FourTimesWide(config)
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x):
        x = x + self.drop(self.attn(self.ln_1(x)))
        return x + self.mlp(self.ln_2(x))


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


# --- wrong ----------------------------------------------------------------------------------------


@wrong
class Unscaled(SeparateProjections):
    breaks = ("multi-head-formula", "multi-head-scales-by-the-width-of-one-head")

    def scores(self, q, k):
        return q @ k.transpose(-2, -1)


@wrong
class ScaledByModelWidth(SeparateProjections):
    breaks = ("multi-head-formula", "multi-head-scales-by-the-width-of-one-head")

    def scores(self, q, k):
        return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1] * self.heads)


@wrong
class WeakMask(SeparateProjections):
    """Hidden scores are -10, which a trained layer overcomes."""

    breaks = ("padding-does-not-change-real-words",)

    def masked(self, scores, mask):
        return scores.masked_fill(mask == 0, -10.0)


@wrong
class MaskAfterSoftmax(SeparateProjections):
    """The weights are masked, not the scores, and not renormalised."""

    breaks = ("multi-head-obeys-both-masks",)

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            split(f(x), self.heads) for f, x in ((self.w_query, query), (self.w_key, key), (self.w_value, value))
        )
        weights = self.scores(q, k).softmax(-1)
        if mask is not None:
            weights = weights * mask
        return self.w_out(merge(weights @ v))


@wrong
class MixedPositions(SeparateProjections):
    """Heads are split by a view without the transpose."""

    breaks = ("multi-head-formula", "splitting-heads-does-not-mix-words")

    def forward(self, query, key, value, mask=None):
        b, d = query.shape[0], query.shape[2] // self.heads
        q, k, v = (
            f(x).reshape(b, self.heads, -1, d)
            for f, x in ((self.w_query, query), (self.w_key, key), (self.w_value, value))
        )
        scores = self.scores(q, k)
        if mask is not None:
            scores = self.masked(scores, mask)
        return self.w_out((scores.softmax(-1) @ v).reshape(query.shape))


@wrong
class KeysFromTheQueryProjection(SeparateProjections):
    breaks = ("multi-head-formula",)

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            split(f(x), self.heads) for f, x in ((self.w_query, query), (self.w_query, key), (self.w_value, value))
        )
        scores = self.scores(q, k)
        if mask is not None:
            scores = self.masked(scores, mask)
        return self.w_out(merge(scores.softmax(-1) @ v))


@wrong
class TiledKeyHeads(GroupedQuery):
    """Key and value heads are repeated in turn, not next to each other."""

    breaks = ("grouped-query-attention-formula",)

    def repeated(self, x):
        return x.repeat(1, self.heads // self.kv_heads, 1, 1)


@wrong
class UnbiasedLayerNorm(nn.Module):
    """Divides by the unbiased deviation, eps outside the root."""

    role = "layer_norm"
    breaks = ("layer-norm-formula",)

    def __init__(self, features, eps=1e-6):
        super().__init__()
        self.a_2, self.b_2, self.eps = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features)), eps

    def forward(self, x):
        return self.a_2 * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + self.eps) + self.b_2


@wrong
class CentredRMSNorm(RMSNormMinusOne):
    breaks = ("rms-norm-formula",)

    def forward(self, x):
        return super().forward(x - x.mean(-1, keepdim=True))


@wrong
class GatedByGELU(GatedMLP):
    breaks = ("swiglu-formula",)

    def forward(self, x):
        return self.w2(F.gelu(self.w1(x)) * self.w3(x))


@wrong
class ActivationLast(PositionwiseFeedForward):
    """The activation comes after the second map."""

    breaks = ("feed-forward-formula",)

    def forward(self, x):
        return F.relu(self.net[3](self.net[0](x)))


@wrong
class NextFrequencyPositions(nn.Module):
    """The cosines use the next frequency."""

    role = "sinusoidal_positions"
    breaks = ("sinusoid-formula",)

    def __init__(self, d_model, max_len=5000):
        super().__init__()
        even = torch.arange(0, d_model, 2)
        position = torch.arange(max_len)[:, None]
        rates, next_rates = 10000.0 ** (-even / d_model), 10000.0 ** (-(even + 2) / d_model)
        table = torch.stack([(position * rates).sin(), (position * next_rates).cos()], -1)
        self.register_buffer("pe", table.flatten(1)[None])

    def forward(self, x):
        return x + self.pe[:, : x.shape[1]]


@wrong
class RotaryWithMixedPairs(RotaryEmbedding):
    """The angles of adjacent pairs, turned as halves."""

    breaks = ("rope-rotates-pairs-by-position-times-frequency",)

    def turn(self, x, start_pos):
        angles = ((torch.arange(x.shape[-2]) + start_pos)[:, None] * self.rates).repeat_interleave(2, -1)
        a, b = x.chunk(2, -1)
        return x * angles.cos() + torch.cat([-b, a], -1) * angles.sin()


@wrong
class NoResidualBlock(EncoderBlock):
    breaks = ("post-norm-encoder-layer-formula",)

    def forward(self, x, src_mask=None):
        x = self.norm1(self.attention(x, x, x, src_mask))
        return self.norm2(x + self.ff2(F.relu(self.ff1(x))))


@wrong
class ResidualOfTheNormalised(EncoderBlock):
    """Pre-norm, but the residual is taken after the norm."""

    breaks = ("pre-norm-encoder-layer-formula", "pre-norm-layer-without-sublayers-is-the-identity")

    def forward(self, x, src_mask=None):
        x = self.norm1(x)
        x = x + self.attention(x, x, x, src_mask)
        y = self.norm2(x)
        return x + self.ff2(F.relu(self.ff1(y)))


@wrong
class KeysFromTheDecoder(PreNormDecoderBlock):
    """Cross-attention takes keys and values from the decoder."""

    breaks = ("every-target-token-sees-the-whole-source",)

    def forward(self, x, memory, tgt_mask=None, memory_key_padding_mask=None):
        y = self.norms[0](x)
        x = x + self.self_attn(y, y, y, attn_mask=tgt_mask)[0]
        y = self.norms[1](x)
        x = x + self.cross_attn(y, y, y)[0]
        return x + self.mlp(self.norms[2](x))


@wrong
class CachedWithoutMask(CachedHeads):
    """No causal mask when a call has several positions."""

    breaks = ("a-prefill-needs-a-causal-mask", "an-appended-chunk-needs-a-causal-mask")

    def forward(self, x, past_kv=None):
        q, k, v = self.query_key_value(x).unflatten(-1, (self.heads, -1)).transpose(1, 2).chunk(3, -1)
        if past_kv is not None:
            k, v = (torch.cat([old, new], 2) for old, new in zip(past_kv, (k, v), strict=True))
        return self.dense(merge(F.scaled_dot_product_attention(q, k, v))), (k, v)


@wrong
class DropoutInEvaluation(SeparateProjections):
    """Drops weights in evaluation, too."""

    breaks = ("multi-head-dropout-thins-the-weights",)

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            split(f(x), self.heads) for f, x in ((self.w_query, query), (self.w_key, key), (self.w_value, value))
        )
        scores = self.scores(q, k)
        if mask is not None:
            scores = self.masked(scores, mask)
        return self.w_out(merge(F.dropout(scores.softmax(-1), self.dropout.p) @ v))


@wrong
class WeightsAppliedToKeys(SeparateProjections):
    breaks = ("multi-head-formula",)

    def forward(self, query, key, value, mask=None):
        q, k, _ = (
            split(f(x), self.heads) for f, x in ((self.w_query, query), (self.w_key, key), (self.w_value, value))
        )
        scores = self.scores(q, k)
        if mask is not None:
            scores = self.masked(scores, mask)
        return self.w_out(merge(self.dropout(scores.softmax(-1)) @ k))


@wrong
class InvertedAttentionMask(FusedPerHead):
    """Hides what an `attention_mask` of 1 shows: the name fixes the convention, so probing does not adopt it."""

    breaks = ("padding-does-not-change-real-words",)

    def forward(self, hidden_states, attention_mask=None):
        return super().forward(hidden_states, None if attention_mask is None else 1.0 - attention_mask.float())
