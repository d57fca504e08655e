"""Each head reads its own column of a table of biases: what of a table no answer reads is never learnt."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.specification import Specification  # noqa: E402
from conformance.adapters.whole.implementation import PointedImplementation  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402


class Biased(nn.Module):
    """A causal language model whose heads have a learned bias for each distance."""

    columns = slice(None)

    def __init__(self, vocab_size=23, d_model=16, n_heads=4):
        super().__init__()
        self.n_heads = n_heads
        self.words, self.distances = nn.Embedding(vocab_size, d_model), nn.Embedding(32, n_heads)
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)
        self.norm, self.head = nn.LayerNorm(d_model), nn.Linear(d_model, vocab_size)

    def forward(self, ids):
        x, at = self.words(ids), torch.arange(ids.shape[1])
        q, k, v = (y.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, -1))
        bias = self.distances((at[:, None] - at).clamp(0, 31))[..., self.columns].permute(2, 0, 1)
        scores = (q @ k.mT / q.shape[-1] ** 0.5 + bias).masked_fill(at > at[:, None], -torch.inf)
        return self.head(x + self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2)))


class Shared(Biased):
    columns = slice(0, 1)


class OfTheLast(Biased):
    columns = slice(-1, None)


@pytest.mark.parametrize(("cls", "says"), [(Biased, "PASS"), (Shared, "FAIL"), (OfTheLast, "FAIL")])
def test_every_number_of_a_row_is_read(cls, says):
    pointed = PointedImplementation(cls, Specification("", __name__, cls.__name__))
    result = run_check(CHECKS["model-every-parameter-gets-a-gradient"], pointed, "quick")
    assert result.verdict.name == says
    assert says == "PASS" or "Of distances.weight only 1 of 4 numbers of a row are read" in str(result)
