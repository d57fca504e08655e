"""Models whose residual streams are not one stream through all blocks: two, or one that begins late, or convolved."""

import math

import torch
from torch import nn

VOCAB, WIDTH, HEADS, LONGEST = 30, 16, 2, 24


def attend(q, k, v, hidden=None):
    """(B, T, WIDTH) each."""
    q, k, v = (x.unflatten(-1, (HEADS, -1)).transpose(1, 2) for x in (q, k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    scores = scores if hidden is None else scores.masked_fill(hidden, -1e30)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x, memory=None, causal=False):
        memory = x if memory is None else memory
        hidden = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1) if causal else None
        return self.out(attend(self.query(x), self.key(memory), self.value(memory), hidden))


def network():
    return nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 24), nn.GELU(), nn.Linear(24, WIDTH))


class TwoStreams(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attention, self.network = nn.LayerNorm(WIDTH), Attention(), network()

    def forward(self, one, other):
        one = one + self.attention(self.norm(other), causal=True)
        return one, other + self.network(one)


class ReversibleLM(nn.Module):
    """Residuals: of two streams each gets what is computed from the other one."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.blocks = nn.ModuleList(TwoStreams() for _ in range(2))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB)

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.through(x)))

    def through(self, x):
        one, other = x, x
        for block in self.blocks:
            one, other = block(one, other)
        return (one + other) / 2


class HalvedStreams(TwoStreams):
    def forward(self, both):
        return torch.cat(super().forward(*both.chunk(2, -1)), -1)


class ReversibleHalvesLM(ReversibleLM):
    """Residuals: two streams in the halves of one wide value."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(HalvedStreams() for _ in range(2))

    def through(self, x):
        both = torch.cat([x, x], -1)
        for block in self.blocks:
            both = block(both)
        return sum(both.chunk(2, -1)) / 2


class Reading(nn.Module):
    def __init__(self, adds_queries):
        super().__init__()
        self.norm, self.norm_memory = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention, self.network, self.adds_queries = Attention(), network(), adds_queries

    def forward(self, queries, memory):
        read = self.attention(self.norm(queries), self.norm_memory(memory))
        read = queries + read if self.adds_queries else read
        return read + self.network(read)


class PerceiverTagger(nn.Module):
    """Residuals: where queries of their own read what the latents hold, a new stream begins, without the queries."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.latents = nn.Parameter(torch.randn(5, WIDTH))
        self.read, self.think, self.write = Reading(True), Reading(True), Reading(False)
        self.tag = nn.Linear(WIDTH, 4)

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        latents = self.read(self.latents.expand(len(ids), -1, -1), x)
        return self.tag(self.write(x, self.think(latents, latents)))


class ConvolvedAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv1d(WIDTH, WIDTH, 3, padding=1, groups=WIDTH)
        self.attention = Attention()

    def forward(self, x):
        return self.attention(self.convolution(x.transpose(1, 2)).transpose(1, 2))


class ConvolvedBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.attention, self.network = nn.LayerNorm(WIDTH), ConvolvedAttention(), network()

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.network(x)


class ConvolvedClassifier(nn.Module):
    """Residuals: a sublayer may begin with a convolution, and what is added is what that gets."""

    def __init__(self):
        super().__init__()
        self.words, self.blocks = nn.Embedding(VOCAB, WIDTH), nn.Sequential(*(ConvolvedBlock() for _ in range(2)))
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, ids):
        return self.head(self.blocks(self.words(ids)).mean(1))
