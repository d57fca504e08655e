"""A LLaMA: grouped heads, rotary positions as complex numbers, RMS norms by hand, a gated network, a cache."""

import torch
from torch import nn
from torch.nn import functional as F


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        return self._norm(x.float()).type_as(x) * self.weight


def rotations(width, end, theta=10000.0):
    freqs = 1.0 / (theta ** (torch.arange(0, width, 2).float() / width))
    freqs = torch.outer(torch.arange(end).float(), freqs)
    return torch.polar(torch.ones_like(freqs), freqs)


def rotate(x, turns):
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns[None, :, None]).flatten(3).type_as(x)


def repeat_kv(x, times):
    B, T, G, d = x.shape
    return x[:, :, :, None, :].expand(B, T, G, times, d).reshape(B, T, G * times, d)


class Attention(nn.Module):
    def __init__(self, width, heads, groups):
        super().__init__()
        self.heads, self.groups, self.d = heads, groups, width // heads
        self.wq = nn.Linear(width, heads * self.d, bias=False)
        self.wk = nn.Linear(width, groups * self.d, bias=False)
        self.wv = nn.Linear(width, groups * self.d, bias=False)
        self.wo = nn.Linear(heads * self.d, width, bias=False)
        self.register_buffer("cache_k", torch.zeros(4, 32, groups, self.d), persistent=False)
        self.register_buffer("cache_v", torch.zeros(4, 32, groups, self.d), persistent=False)

    def forward(self, x, start, turns, mask):
        B, T, _ = x.shape
        xq = self.wq(x).view(B, T, self.heads, self.d)
        xk = self.wk(x).view(B, T, self.groups, self.d)
        xv = self.wv(x).view(B, T, self.groups, self.d)
        xq, xk = rotate(xq, turns), rotate(xk, turns)
        self.cache_k[:B, start : start + T] = xk
        self.cache_v[:B, start : start + T] = xv
        keys = self.cache_k[:B, : start + T]
        values = self.cache_v[:B, : start + T]
        keys = repeat_kv(keys, self.heads // self.groups)
        values = repeat_kv(values, self.heads // self.groups)
        xq, keys, values = xq.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)
        scores = torch.matmul(xq, keys.transpose(2, 3)) / self.d**0.5
        scores = scores + mask
        scores = F.softmax(scores.float(), dim=-1).type_as(xq)
        output = torch.matmul(scores, values)
        output = output.transpose(1, 2).contiguous().view(B, T, -1)
        return self.wo(output)


class FeedForward(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.w1 = nn.Linear(width, hidden, bias=False)
        self.w2 = nn.Linear(hidden, width, bias=False)
        self.w3 = nn.Linear(width, hidden, bias=False)

    def forward(self, x):
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class TransformerBlock(nn.Module):
    def __init__(self, width, heads, groups):
        super().__init__()
        self.attention = Attention(width, heads, groups)
        self.feed_forward = FeedForward(width, 3 * width)
        self.attention_norm = RMSNorm(width)
        self.ffn_norm = RMSNorm(width)

    def forward(self, x, start, turns, mask):
        h = x + self.attention(self.attention_norm(x), start, turns, mask)
        return h + self.feed_forward(self.ffn_norm(h))


class Llama(nn.Module):
    def __init__(self, vocab=19, width=32, heads=4, groups=2, layers=2):
        super().__init__()
        self.tok_embeddings = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList([TransformerBlock(width, heads, groups) for _ in range(layers)])
        self.norm = RMSNorm(width)
        self.output = nn.Linear(width, vocab, bias=False)
        self.turns = rotations(width // heads, 64)

    def forward(self, tokens, start=0):
        T = tokens.shape[1]
        h = self.tok_embeddings(tokens)
        mask = torch.full((T, T), float("-inf")).triu(diagonal=1)
        mask = torch.hstack([torch.zeros(T, start), mask])
        for layer in self.layers:
            h = layer(h, start, self.turns[start : start + T], mask)
        return self.output(self.norm(h))


def subject():
    return Llama(), (torch.randint(0, 19, (2, 5)),)


def steps(model, tokens):
    """A prefill and two steps with the cache."""
    with torch.no_grad():
        model(tokens[:, :3])
        model(tokens[:, 3:4], 3)
        return model(tokens[:, 4:5], 4)
