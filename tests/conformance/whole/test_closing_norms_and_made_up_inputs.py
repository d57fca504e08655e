"""A norm that closes a sublayer is none before the next one; an input that was made up must do for any batch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from wholes import pointed  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.inference.facts import Unresolved  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402


class Block(nn.Module):
    """Two sublayers that norms close, and a third with its norm in front."""

    adds_the_norm = False

    def __init__(self, d_model=16):
        super().__init__()
        self.first, self.third = (
            nn.Sequential(nn.Linear(d_model, 40), nn.GELU(), nn.Linear(40, d_model)) for _ in range(2)
        )
        self.mix = nn.MultiheadAttention(d_model, 2, batch_first=True)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(d_model) for _ in range(3))

    def forward(self, x):
        x = self.norm1(x + self.first(x))
        x = self.closed(x + self.mix(x, x, x, need_weights=False)[0])
        return x + self.third(self.norm3(x))

    def closed(self, x):
        return self.norm2(x)


class Open(Block):
    """Its second sublayer adds what the norm gave, and no norm closes it."""

    def closed(self, x):
        return x + 0 * self.norm2(x)


class Stack(nn.Module):
    block = Block

    def __init__(self, d_model=16):
        super().__init__()
        self.table, self.head = nn.Embedding(30, d_model), nn.Linear(d_model, 30)
        self.blocks = nn.ModuleList(self.block(d_model) for _ in range(2))

    def forward(self, ids):
        x = self.table(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class OpenStack(Stack):
    block = Open


@pytest.mark.parametrize(("cls", "verdict"), [(Stack, "PASS"), (OpenStack, "FAIL")])
def test_a_norm_that_closes_a_sublayer_stands_before_no_other(cls, verdict):
    assert run_check(CHECKS["sublayers-add-their-own-input"], pointed(cls), "quick").verdict.name == verdict


class OfGraphs(nn.Module):
    """Nodes (N, 3) and edges (2, E): one number for each node looks like edges where there are two nodes."""

    def __init__(self, d_model=16):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(2))
        self.map = nn.Linear(3, d_model)

    def forward(self, nodes, edges):
        source, target = edges
        x = self.map(nodes)
        for layer in self.layers:
            x = x + layer(x)[target % len(x)] * (source.float().mean() + 1)
        return x


def test_a_number_for_each_sample_must_do_for_more_samples():
    with pytest.raises(Unresolved, match="cannot be called"):
        pointed(OfGraphs)


class Diffuser(nn.Module):
    """Takes a step in time for each sample."""

    def __init__(self, d_model=16):
        super().__init__()
        self.times, self.map = nn.Embedding(10, d_model), nn.Linear(3, d_model)
        self.layers = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(2))

    def forward(self, x, t):
        x = self.map(x) + self.times(t)[:, None]
        for layer in self.layers:
            x = x + layer(x).relu()
        return x


def test_a_step_in_time_is_a_number_for_each_sample():
    running = pointed(Diffuser).running
    assert running(**running.example(3))["out"].shape[0] == 3


class Learner(nn.Module):
    """Its own ``train`` takes data; a dropout shows its mode."""

    def __init__(self, vocab_size=30):
        super().__init__()
        self.table, self.drop = nn.Embedding(vocab_size, 16), nn.Dropout(0.5)
        self.mix, self.head = nn.GRU(16, 16, batch_first=True), nn.Linear(16, 5)
        self.unused = nn.Linear(16, 5)

    def forward(self, input_ids):
        return self.head(self.mix(self.drop(self.table(input_ids)))[0][:, -1])

    def train(self, batches, labels):
        for ids, label in zip(batches, labels, strict=True):
            nn.functional.cross_entropy(self(ids), label).backward()


@pytest.mark.parametrize(
    ("claim", "verdict"),
    [
        ("model-evaluation-repeats-itself", "PASS"),
        ("model-drops-only-in-training", "PASS"),
        ("model-every-parameter-gets-a-gradient", "FAIL"),
    ],
)
def test_a_class_whose_train_takes_data_has_modes(claim, verdict):
    assert run_check(CHECKS[claim], pointed(Learner), "quick").verdict.name == verdict
