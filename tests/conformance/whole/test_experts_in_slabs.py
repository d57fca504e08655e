"""Mixtures whose experts are slabs of one parameter: they are judged as those of a list of modules are."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from wholes import pointed  # noqa: E402

WIDTH, EXPERTS, VOCAB = 8, 4, 31


class Slabs(nn.Module):
    """The two best of four experts, by weights that sum to one. The router stands beside the experts."""

    def __init__(self):
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.experts = Experts()

    def forward(self, x):
        flat = x.flatten(0, 1)
        best, chosen = self.router(flat).topk(2, -1)
        return self.experts(flat, best.softmax(-1), chosen).view_as(x)


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Parameter(torch.randn(EXPERTS, WIDTH, 16) * 0.3)
        self.down = nn.Parameter(torch.randn(EXPERTS, 16, WIDTH) * 0.3)

    def forward(self, flat, weights, chosen):
        out = torch.zeros_like(flat)
        for number in range(EXPERTS):
            token, rank = torch.where(chosen == number)
            out = self.put(out, token, weights[token, self.of(rank), None], flat[token] @ self.up[number], number)
        return out

    def of(self, rank):
        return rank

    def put(self, out, token, weight, hidden, number):
        return out.index_add(0, token, weight * (F.silu(hidden) @ self.down[number]))


class WeightedBefore(Experts):
    def put(self, out, token, weight, hidden, number):
        return out.index_add(0, token, F.linear(weight * F.silu(hidden), self.down.unbind()[number].T))


class OfTheFirst(Experts):
    def of(self, rank):
        return 0 * rank


class WrittenOver(Experts):
    def put(self, out, token, weight, hidden, number):
        return out.index_copy(0, token, weight * (F.silu(hidden) @ self.down[number]))


class Speaker(nn.Module):
    """A causal language model."""

    def __init__(self, experts=Experts, vocab_size=VOCAB):
        super().__init__()
        self.words, self.places = nn.Embedding(vocab_size, WIDTH), nn.Embedding(32, WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.before, self.behind = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mixture = Slabs()
        self.mixture.experts = experts()
        self.head = nn.Linear(WIDTH, vocab_size)

    def forward(self, ids):
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        future = torch.ones(ids.shape[1], ids.shape[1]).triu(1).bool()
        y = self.before(x)
        x = x + self.attention(y, y, y, attn_mask=future, need_weights=False)[0]
        return self.head(x + self.mixture(self.behind(x)))


SPEAKERS = {
    experts: type(
        f"Speaker{experts.__name__}", (Speaker,), {"__init__": lambda self, e=experts: Speaker.__init__(self, e)}
    )
    for experts in (Experts, WeightedBefore, OfTheFirst, WrittenOver)
}


@pytest.mark.parametrize(
    ("experts", "broken"),
    [
        (Experts, []),
        (WeightedBefore, []),
        (OfTheFirst, ["experts-are-weighted-by-their-own-scores"]),
        (WrittenOver, ["experts-that-are-chosen-count"]),
    ],
)
def test_experts_that_are_slabs_of_a_parameter_are_judged(experts, broken):
    inside = pointed(SPEAKERS[experts]).whole.inside()
    assert "experts" in inside.seen
    assert sorted({finding.claim for finding in inside.findings if finding.certain}) == broken
