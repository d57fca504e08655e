"""The next item of a session, from those before. Item 0 is padding; histories are padded on the left."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))

    def forward(self, x, mask):
        n, t, width = x.shape
        h = self.before(x)
        q, k, v = (f(h).view(n, t, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = (q @ k.transpose(-2, -1)).view(n * self.heads, t, t) / (width // self.heads) ** 0.5
        weights = scores.masked_fill(~mask.repeat_interleave(self.heads, 0), -1e9).softmax(-1)
        mixed = weights.view(n, self.heads, t, t) @ v
        x = x + self.out(mixed.transpose(1, 2).reshape(n, t, width))
        return x + self.mlp(self.between(x))


class NextItem(nn.Module):
    """A causal model of sessions: scores of every item after each place."""

    def __init__(self, n_items=40, width=16, heads=2, n_layers=2, max_len=16):
        super().__init__()
        self.items = nn.Embedding(n_items + 1, width, padding_idx=0)
        self.places = nn.Parameter(torch.randn(max_len, width) * 0.1)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(n_layers))
        self.norm = nn.LayerNorm(width)

    def states(self, history):
        history = history[:, -len(self.places) :]
        length = history.shape[1]
        x = self.items(history) + self.places[-length:]  # the newest item has the last place
        causal = torch.ones(length, length, dtype=torch.bool, device=history.device).tril()
        mask = causal & (history != 0)[:, None]
        for block in self.blocks:
            x = block(x, mask)
        return self.norm(x)

    def forward(self, history):
        return self.states(history) @ self.items.weight.T

    def sampled_loss(self, history, positives, negatives):
        states = self.states(history)
        better = (states * self.items(positives)).sum(-1)
        worse = (states * self.items(negatives)).sum(-1)
        real = positives != 0
        each = F.softplus(-better) + F.softplus(worse)
        return (each * real).sum() / real.sum()

    def drawn_negatives(self, positives):
        """An item for each place that is not its own positive."""
        n_items = len(self.items.weight) - 1
        return (positives - 1 + torch.randint(1, n_items, positives.shape, device=positives.device)) % n_items + 1

    def drawn_loss(self, history):
        """The same loss of a history (N, T + 1), with one drawn item for each next one."""
        read, positives = history[:, :-1], history[:, 1:]
        tables = self.items(torch.stack([positives, self.drawn_negatives(positives)], -1))
        true, false = torch.einsum("ntd,ntkd->ntk", self.states(read), tables).unbind(-1)
        counts = (read != 0) & (positives != 0)
        return -((F.logsigmoid(true) + F.logsigmoid(-false)) * counts).sum() / counts.sum()

    @torch.no_grad()
    def recommend(self, history, k=5):
        """The k best items, newest history last; those already seen are left out."""
        scores = self(history)[:, -1]
        scores[:, 0] = -torch.inf
        return scores.scatter(1, history, -torch.inf).topk(k).indices

    @torch.no_grad()
    def score(self, history, candidates):
        """Scores (N, C) of candidates (N, C)."""
        newest = self.states(history)[:, -1]
        return torch.einsum("nd,ncd->nc", newest, self.items(candidates))
