"""Tables of positions: buckets that a part of the model counts, biases that all layers share, and vectors that nothing
trains. Beside what is right stands a real mistake of the same place."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from wholes import pointed  # noqa: E402

from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

WIDTH, HEADS, VOCAB = 16, 2, 23


def said(cls, claim):
    return run_check(CHECKS[claim], pointed(cls), "quick").verdict.name


# --- biases of buckets, one table for all layers


class Buckets(nn.Module):
    """The table of T5, for keys on both sides; its method takes distances only, and knows its sizes."""

    furthest_counts = True

    def __init__(self, n_buckets=16, max_dist=64):
        super().__init__()
        self.n_buckets, self.max_dist = n_buckets, max_dist
        self.table = nn.Embedding(n_buckets, HEADS)

    def _bucket(self, rel):
        side = self.n_buckets // 2
        exact = side // 2
        steps = rel.abs()
        growth = torch.log(steps.clamp(min=1) / exact)
        growth = growth / math.log(self.max_dist / exact if self.furthest_counts else self.max_dist)
        far = (exact + (growth * (side - exact)).long()).clamp(max=side - 1)
        return (rel > 0).long() * side + torch.where(steps < exact, steps, far)

    def forward(self, length):
        places = torch.arange(length)
        return self.table(self._bucket(places[None] - places[:, None])).permute(2, 0, 1)


class BucketsOfAnotherGrowth(Buckets):
    furthest_counts = False


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, bias):
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, WIDTH // HEADS)).permute(2, 0, 3, 1, 4)
        weights = (q @ k.mT / math.sqrt(WIDTH // HEADS) + bias).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Encoder(nn.Module):
    buckets = Buckets
    is_shared = True

    def __init__(self, n_layers=3):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCAB, WIDTH), self.buckets()
        self.layers = nn.ModuleList(Attention() for _ in range(n_layers))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, input_ids):
        x, bias = self.words(input_ids), self.places(input_ids.shape[1])
        for layer in self.layers:
            x = x + layer(self.norm(x), bias)
            bias = bias if self.is_shared else bias * 0
        return x


class EncoderOfAnotherGrowth(Encoder):
    buckets = BucketsOfAnotherGrowth


class EncoderWithOneBias(Encoder):
    is_shared = False


@pytest.mark.parametrize(("cls", "verdict"), [(Encoder, "PASS"), (EncoderOfAnotherGrowth, "FAIL")])
def test_buckets_that_a_part_counts_are_those_of_its_own_sizes(cls, verdict):
    assert said(cls, "relative-buckets-are-those-of-t5") == verdict


@pytest.mark.parametrize(("cls", "verdict"), [(Encoder, "PASS"), (EncoderWithOneBias, "FAIL")])
def test_a_bias_of_the_first_layer_is_for_all_layers(cls, verdict):
    assert said(cls, "attention-relative-bias-reaches-every-layer") == verdict
    assert said(cls, "attention-scale-is-one-over-sqrt-d-head") == "PASS"


# --- vectors that nothing trains


class Picture(nn.Module):
    def __init__(self):
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, WIDTH, 4, 4), nn.Linear(WIDTH, 5)
        self.layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True)
        self.place()

    def place(self):
        self.pos_embed = nn.Parameter(torch.zeros(1, 4, WIDTH))
        nn.init.trunc_normal_(self.pos_embed, std=0.02)

    def forward(self, images):
        """(B, 3, 8, 8) to (B, 5)."""
        x = self.patches(images).flatten(2).transpose(1, 2) + self.pos_embed
        return self.head(self.layer(x).mean(1))


class PictureWithDrawnPlaces(Picture):
    def place(self):
        self.register_buffer("pos_embed", torch.zeros(1, 4, WIDTH))
        nn.init.trunc_normal_(self.pos_embed, std=0.02)


class PictureWithFrozenPlaces(Picture):
    def place(self):
        self.pos_embed = nn.Parameter(torch.randn(1, 4, WIDTH) * 0.02, requires_grad=False)


class PictureWithSines(Picture):
    def place(self):
        self.pos_embed = nn.Parameter(torch.zeros(1, 4, WIDTH), requires_grad=False)
        rates = 10000.0 ** (-torch.arange(0, WIDTH, 2) / WIDTH)
        angles = torch.arange(4)[:, None] * rates
        self.pos_embed.data.copy_(torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[None])


@pytest.mark.parametrize(
    ("cls", "verdict"),
    [
        (Picture, "PASS"),
        (PictureWithSines, "PASS"),
        (PictureWithDrawnPlaces, "FAIL"),
        (PictureWithFrozenPlaces, "FAIL"),
    ],
)
def test_positions_that_are_drawn_are_trained(cls, verdict):
    assert said(cls, "positions-that-no-formula-makes-are-learned") == verdict
