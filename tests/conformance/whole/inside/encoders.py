"""Encoders in many styles, each correct: how attention is written differs, what it computes does not."""

import math

import torch
from torch import nn
from torch.nn import functional as F


class Einsum(nn.Module):
    """(B, T, h, d) throughout, einsum, BERT's additive mask of -10000."""

    def __init__(self, width=24, heads=4):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.dense = nn.Linear(width, width)

    def forward(self, x, keep):
        B, T, _ = x.shape
        q, k, v = (f(x).reshape(B, T, self.heads, -1) for f in (self.query, self.key, self.value))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(q.shape[-1])
        scores = scores + (1.0 - keep[:, None, None, :].float()) * -10000.0
        probs = scores.softmax(-1)
        return self.dense(torch.einsum("bhqk,bkhd->bqhd", probs, v).flatten(2))


class KeysFirst(nn.Module):
    """Scores as (keys, queries): the softmax runs over the first of the two, and values come on the left."""

    def __init__(self, width=24, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, keep):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 4, 1)
        scores = k.transpose(-1, -2) @ q * q.shape[-2] ** -0.5
        scores = scores.masked_fill(~keep[:, None, :, None], -torch.inf)
        return self.out((v @ scores.softmax(-2)).reshape(B, C, T).transpose(1, 2))


class SequenceFirst(nn.Module):
    """(T, B, C), bmm over B * h, queries scaled before the product."""

    def __init__(self, width=24, heads=4):
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x, keep):
        x = x.transpose(0, 1)
        T, B, C = x.shape
        q = self.q_proj(x) * (C // self.heads) ** -0.5
        q = q.contiguous().view(T, B * self.heads, -1).transpose(0, 1)
        k = self.k_proj(x).view(T, B * self.heads, -1).transpose(0, 1)
        v = self.v_proj(x).view(T, B * self.heads, -1).transpose(0, 1)
        scores = torch.bmm(q, k.transpose(1, 2)).view(B, self.heads, T, T)
        scores = scores.masked_fill(~keep[:, None, None], float("-inf")).view(B * self.heads, T, T)
        out = torch.bmm(F.softmax(scores, -1), v).transpose(0, 1).reshape(T, B, C)
        return self.out_proj(out).transpose(0, 1)


class Fused(nn.Module):
    """F.scaled_dot_product_attention."""

    def __init__(self, width=24, heads=4):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, keep):
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None])
        return self.out(out.transpose(1, 2).flatten(2))


class Grouped(nn.Module):
    """F.scaled_dot_product_attention with fewer key heads."""

    def __init__(self, width=24, heads=4, groups=2):
        super().__init__()
        self.heads, self.groups, self.d = heads, groups, width // heads
        self.q, self.kv = nn.Linear(width, width), nn.Linear(width, 2 * groups * self.d)
        self.out = nn.Linear(width, width)

    def forward(self, x, keep):
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.kv(x).unflatten(-1, (2, self.groups, self.d)).permute(2, 0, 3, 1, 4)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None], enable_gqa=True)
        return self.out(out.transpose(1, 2).flatten(2))


class ByHand(nn.Module):
    """A softmax of exp and sum, a mask between the two, one matrix a head."""

    def __init__(self, width=24, heads=4):
        super().__init__()
        self.w_q, self.w_k, self.w_v = (nn.Parameter(torch.randn(heads, width, width // heads) / 5) for _ in range(3))
        self.w_o = nn.Parameter(torch.randn(heads, width // heads, width) / 5)

    def forward(self, x, keep):
        q, k, v = (torch.einsum("btc,hcd->bhtd", x, w) for w in (self.w_q, self.w_k, self.w_v))
        scores = q @ k.mT / math.sqrt(q.size(-1))
        e = torch.exp(scores - scores.amax(-1, keepdim=True)) * keep[:, None, None]
        weights = e / e.sum(-1, keepdim=True)
        return torch.einsum("bhqd,hdc->bqc", weights @ v, self.w_o)


class Relative(nn.Module):
    """T5: no scale, a learned bias for each distance."""

    def __init__(self, width=24, heads=4):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.relative_attention_bias = nn.Embedding(40, heads)

    def forward(self, x, keep):
        B, T, C = x.shape
        q, k, v = (f(x).view(B, T, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = torch.matmul(q, k.transpose(3, 2))
        distance = torch.arange(T)[None] - torch.arange(T)[:, None] + 20
        bias = self.relative_attention_bias(distance).permute(2, 0, 1)[None]
        scores += bias + torch.where(keep, 0.0, torch.finfo(x.dtype).min)[:, None, None]
        weights = F.softmax(scores.float(), dim=-1).type_as(scores)
        return self.o(torch.matmul(weights, v).transpose(1, 2).contiguous().view(B, T, C))


class Alibi(nn.Module):
    """Distances as a fixed bias, one key head for all (multi-query), baddbmm."""

    def __init__(self, width=24, heads=4):
        super().__init__()
        self.heads = heads
        self.q, self.kv, self.o = nn.Linear(width, width), nn.Linear(width, 2 * width // heads), nn.Linear(width, width)

    def forward(self, x, keep):
        B, T, C = x.shape
        q = self.q(x).view(B, T, self.heads, -1).transpose(1, 2).reshape(B * self.heads, T, -1)
        k, v = self.kv(x).chunk(2, -1)
        k, v = (t[:, None].expand(-1, self.heads, -1, -1).reshape(B * self.heads, T, -1) for t in (k, v))
        slopes = 2.0 ** -torch.arange(1, self.heads + 1)
        bias = -slopes[:, None, None] * (torch.arange(T)[None] - torch.arange(T)[:, None]).abs()
        bias = bias + torch.where(keep, 0.0, -torch.inf)[:, None, None]
        scores = torch.baddbmm(bias.reshape(-1, T, T), q, k.mT, alpha=q.size(-1) ** -0.5)
        out = torch.bmm(scores.softmax(-1), v).view(B, self.heads, T, -1)
        return self.o(out.transpose(1, 2).reshape(B, T, C))


class MultiQuery(nn.Module):
    """One key head: a single product has the queries of all heads as its rows."""

    def __init__(self, width=24, heads=4):
        super().__init__()
        self.heads, self.sizes = heads, (width, width // heads, width // heads)
        self.fused, self.o = nn.Linear(width, sum(self.sizes)), nn.Linear(width, width)
        self.register_buffer("slopes", 2.0 ** -torch.arange(1, heads + 1))

    def forward(self, x, keep):
        B, T, C = x.shape
        q, k, v = self.fused(x).split(self.sizes, -1)
        q = q.view(B, T, self.heads, -1)
        scores = torch.einsum("bthd,bsd->bhts", q, k) * q.size(-1) ** -0.5
        distance = (torch.arange(T)[:, None] - torch.arange(T)).abs()
        scores = scores - self.slopes[:, None, None] * distance
        probs = scores.masked_fill(~keep[:, None, None, :], torch.finfo(scores.dtype).min).softmax(-1)
        return self.o(torch.einsum("bhts,bsd->bthd", probs, v).reshape(B, T, C))


class Head(nn.Module):
    def __init__(self, width, d):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(width, d), nn.Linear(width, d), nn.Linear(width, d)

    def forward(self, x, keep):
        scores = self.q(x).bmm(self.k(x).mT) / self.q.out_features**0.5
        return scores.masked_fill(~keep[:, None], -torch.inf).softmax(-1).bmm(self.v(x))


class Apart(nn.Module):
    """A module for each head."""

    def __init__(self, width=24, heads=3):
        super().__init__()
        self.heads = nn.ModuleList(Head(width, width // heads) for _ in range(heads))
        self.linear = nn.Linear(width, width)

    def forward(self, x, keep):
        return self.linear(torch.cat([head(x, keep) for head in self.heads], -1))


class Rotary(nn.Module):
    """Rotation by halves, norms of queries and keys, no batch in the mask."""

    def __init__(self, width=24, heads=3):
        super().__init__()
        self.heads, self.d = heads, width // heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
        self.q_norm, self.k_norm = nn.LayerNorm(self.d), nn.RMSNorm(self.d)

    def turn(self, x):
        angles = torch.arange(x.shape[-2])[:, None] / 100 ** (torch.arange(self.d // 2) / (self.d // 2))
        cos, sin = (torch.cat([f(angles)] * 2, -1) for f in (torch.cos, torch.sin))
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat((-second, first), -1) * sin

    def forward(self, x, keep):
        B, T, C = x.shape
        q, k, v = self.qkv(x).view(B, T, 3, self.heads, self.d).permute(2, 0, 3, 1, 4).unbind(0)
        q, k = self.turn(self.q_norm(q)), self.turn(self.k_norm(k))
        scores = (q / self.d**0.25) @ (k / self.d**0.25).mT
        scores = torch.where(keep[:, None, None], scores, torch.tensor(-torch.inf))
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C))


class Torch(nn.Module):
    """nn.MultiheadAttention, batch first."""

    def __init__(self, width=24, heads=4):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x, keep):
        return self.attention(x, x, x, key_padding_mask=~keep, need_weights=True)[0]


class Disentangled(nn.Module):
    """DeBERTa: two more products, with distances, are added to the scores, so the scale is 1 / sqrt(3 d)."""

    def __init__(self, width=24, heads=4):
        super().__init__()
        self.heads, self.scale = heads, 1 / math.sqrt(3 * width // heads)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.distances = nn.Embedding(41, width)

    def forward(self, x, keep):
        B, T, C = x.shape
        q, k, v = (f(x).view(B, T, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        far = self.k(self.distances.weight).view(-1, self.heads, C // self.heads).permute(1, 2, 0)
        near = self.q(self.distances.weight).view(-1, self.heads, C // self.heads).permute(1, 2, 0)
        apart = (torch.arange(T)[:, None] - torch.arange(T) + 20).expand(B, self.heads, T, T)
        scores = q @ k.mT * self.scale
        scores = scores + (q @ far * self.scale).gather(-1, apart)
        scores = scores + (k @ near * self.scale).gather(-1, apart.mT).mT
        scores = scores.masked_fill(~keep[:, None, None], -torch.inf)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, C))


class Latent(nn.Module):
    """Keys and values from one small vector a token, and one rotated part of the key for all heads."""

    def __init__(self, width=24, heads=4, latent=10, d=6, turned=2):
        super().__init__()
        self.heads, self.d, self.turned = heads, d, turned
        self.q, self.down = nn.Linear(width, heads * (d + turned)), nn.Linear(width, latent + turned)
        self.up, self.norm, self.o = nn.Linear(latent, heads * 2 * d), nn.LayerNorm(latent), nn.Linear(heads * d, width)

    def forward(self, x, keep):
        B, T, _ = x.shape
        q = self.q(x).view(B, T, self.heads, -1).transpose(1, 2)
        small, one = self.down(x).split([self.up.in_features, self.turned], -1)
        k, v = self.up(self.norm(small)).view(B, T, self.heads, -1).transpose(1, 2).split(self.d, -1)
        k = torch.cat([k, one[:, None].expand(-1, self.heads, -1, -1)], -1)
        scores = (q @ k.mT / math.sqrt(self.d + self.turned)).masked_fill(~keep[:, None, None], -torch.inf)
        return self.o((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, T, -1))


STYLES = [
    Einsum,
    KeysFirst,
    SequenceFirst,
    Fused,
    Grouped,
    ByHand,
    Relative,
    Alibi,
    Rotary,
    Torch,
    Disentangled,
    Latent,
]


class Layer(nn.Module):
    def __init__(self, style, width=24):
        super().__init__()
        self.attention = style(width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.net = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(2 * width, width))

    def forward(self, x, keep):
        x = self.norm1(x + self.attention(x, keep))
        return self.norm2(x + self.net(x))


class Encoder(nn.Module):
    def __init__(self, style, layers=2, vocab=13, width=24):
        super().__init__()
        self.words, self.positions = nn.Embedding(vocab, width), nn.Embedding(30, width)
        self.layers = nn.ModuleList(Layer(style, width) for _ in range(layers))
        self.head = nn.Linear(width, vocab)

    def forward(self, ids):
        keep = ids != 0
        x = self.words(ids) + self.positions(torch.arange(ids.shape[1]))
        for layer in self.layers:
            x = layer(x, keep)
        return self.head(x)


def subject(style):
    ids = torch.randint(1, 13, (3, 7))
    ids[1, 5:] = 0
    return Encoder(style), (ids,)
