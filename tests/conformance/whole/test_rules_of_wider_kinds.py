"""Rules that repositories of wider kinds taught, on classes like theirs: norms over the channels of a picture, maps
behind torch's attention, tables that are read twice, empty answers, routers that a loss teaches, and places that come
first.

Beside what is right stands a real mistake of the same place.
"""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from wholes import pointed  # noqa: E402

from conformance.adapters.inference.facts import Unresolved  # noqa: E402
from conformance.adapters.whole.masking import choices  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.protocol import NotProvided  # noqa: E402
from conformance.runner import run_check  # noqa: E402

WIDTH, VOCAB = 16, 23


def said(cls, claim):
    return run_check(CHECKS[claim], pointed(cls), "quick").verdict.name


# --- norms over channels


class ChannelNorm(nn.Module):
    def __init__(self, channels, eps=1e-5):
        super().__init__()
        self.g, self.b = nn.Parameter(torch.ones(1, channels, 1, 1)), nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.eps = eps

    def forward(self, x):
        mean, variance = x.mean(1, keepdim=True), x.var(1, unbiased=False, keepdim=True)
        return (x - mean) / (variance + self.eps).sqrt() * self.g + self.b


class NormOfPlaces(ChannelNorm):
    def forward(self, x):
        mean, variance = x.mean(3, keepdim=True), x.var(3, unbiased=False, keepdim=True)
        return (x - mean) / (variance + self.eps).sqrt() * self.g + self.b


class Picture(nn.Module):
    norm = ChannelNorm

    def __init__(self, n_classes=5):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 4, 4), nn.Conv2d(8, 8, 1)
        self.layer_norm, self.head = self.norm(8), nn.Linear(8, n_classes)

    def forward(self, images):
        x = self.first(images)
        return self.head((x + self.second(self.layer_norm(x))).mean((2, 3)))


class WrongPicture(Picture):
    norm = NormOfPlaces


@pytest.mark.parametrize(("cls", "verdict"), [(Picture, "PASS"), (WrongPicture, "FAIL")])
def test_a_norm_of_channels_is_one_whatever_the_shape_of_its_weights(cls, verdict):
    assert said(cls, "norm-is-its-formula") == verdict


# --- residuals, and results that nothing reads


class Block(nn.Module):
    def __init__(self, last=False):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attn = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.c_proj, self.drop = nn.Linear(WIDTH, WIDTH), nn.Dropout(0.1)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH))

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.drop(self.c_proj(self.attn(y, y, y, need_weights=False)[0]))
        return x + self.mlp(self.norm2(x))


class BlockWithout(Block):
    def forward(self, x):
        y = self.norm1(x)
        x = self.drop(self.c_proj(self.attn(y, y, y, need_weights=False)[0]))
        return x + self.mlp(self.norm2(x))


class Reader(nn.Module):
    block = Block

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCAB, WIDTH), nn.Embedding(64, WIDTH)
        self.blocks, self.head = nn.ModuleList(self.block() for _ in range(2)), nn.Linear(WIDTH, VOCAB)

    def forward(self, ids):
        first = self.places(torch.zeros(1, dtype=torch.long)).clone()  # for what stands before a long input
        at = torch.arange(ids.size(1))
        places = self.places(at)
        if ids.size(1) > 60:
            places = torch.cat([first, places[1:]])
        x = self.words(ids) + places
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class ReaderWithout(Reader):
    block = BlockWithout


@pytest.mark.parametrize(("cls", "verdict"), [(Reader, "PASS"), (ReaderWithout, "FAIL")])
def test_a_map_behind_torchs_attention_belongs_to_it(cls, verdict):
    assert said(cls, "sublayers-have-a-residual") == verdict


class UnreadReader(Reader):
    def __init__(self):
        super().__init__()
        self.more = nn.Linear(WIDTH, WIDTH)

    def forward(self, ids):
        self.more(self.words(ids))
        return super().forward(ids)


@pytest.mark.parametrize(("cls", "verdict"), [(Reader, "PASS"), (UnreadReader, "FAIL")])
def test_a_table_of_which_another_call_is_used_is_used(cls, verdict):
    assert said(cls, "results-that-are-computed-are-used") == verdict


# --- components


class Shuffle(nn.Module):
    """Keeps a share of the patches (B, T, d): of few patches none."""

    def forward(self, patches):
        return patches[:, : patches.size(1) // 10]


def test_an_empty_answer_is_none():
    found = pointed(Shuffle).build("module", {})
    with pytest.raises(NotProvided, match="Shuffle gave an empty answer for these inputs"):
        found(x=np.zeros((2, 6, 32)))


class Places(nn.Module):
    """Adds places to (T, B, d)."""

    def __init__(self, width=WIDTH, most=64):
        super().__init__()
        self.register_buffer("table", torch.randn(most, 1, width))

    def forward(self, x):
        return x + self.table[: x.size(0), :]


def test_a_table_that_the_first_size_cuts_is_one_of_places():
    assert said(Places, "model-answers-one-sentence-as-in-a-batch") == "PASS"


class Routed(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(WIDTH, 2)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))

    def forward(self, x):
        shares = self.router(x).softmax(-1)
        chosen = shares.argmax(-1, keepdim=True)
        x = x + sum(expert(x) * (chosen == i) for i, expert in enumerate(self.experts))
        return x, (shares.mean((0, 1)) ** 2).sum()


class Mixture(nn.Module):
    """Gives the loss of its routers beside the answer."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(VOCAB, WIDTH), nn.Linear(WIDTH, VOCAB)
        self.blocks = nn.ModuleList(Routed() for _ in range(2))

    def forward(self, ids):
        x, balance = self.words(ids), 0.0
        for block in self.blocks:
            x, more = block(x)
            balance = balance + more
        return self.head(x), balance


class MixtureWithoutLoss(Mixture):
    def forward(self, ids):
        return super().forward(ids)[0]


@pytest.mark.parametrize(("cls", "verdict"), [(Mixture, "PASS"), (MixtureWithoutLoss, "FAIL")])
def test_a_router_that_a_loss_teaches_learns(cls, verdict):
    assert said(cls, "model-every-parameter-gets-a-gradient") == verdict


# --- layers that learn their size


class Head(nn.Module):
    def __init__(self, d_model=WIDTH):
        super().__init__()
        self.first, self.second, self.norm = nn.LazyLinear(d_model), nn.LazyLinear(d_model), nn.LayerNorm(d_model)

    def forward(self, x):
        x = self.first(x)
        return self.norm(x + self.second(x.relu()))


class HeadOfPictures(Head):
    def __init__(self):
        super().__init__()
        self.conv = nn.LazyConv2d(8, 3)


def test_maps_that_learn_their_size_get_one():
    assert pointed(Head).running.example()["x"].shape == (2, 6, WIDTH)
    with pytest.raises(Unresolved, match=r"conv.weight of HeadOfPictures has no size before its first call"):
        pointed(HeadOfPictures)


# --- what is left out


class Layer(nn.Module):
    """In evaluation it answers for the last place of (T, B, d) alone; without a memory it cannot be trained."""

    def __init__(self, d=WIDTH):
        super().__init__()
        self.own, self.cross = nn.MultiheadAttention(d, 2, dropout=0.1), nn.MultiheadAttention(d, 2, dropout=0.1)
        self.unread = nn.Linear(d, d)

    def forward(self, tgt, memory=None):
        query = tgt if self.training else tgt[-1:]
        out = query + self.own(query, tgt, tgt)[0]
        if memory is None and not self.training:
            return out
        return out + self.cross(out, memory, memory)[0]


class Stack(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(depth))

    def forward(self, tgt, memory=None):
        """tgt: (T, B, d)"""
        kept = []
        for layer in self.layers:
            tgt = layer(tgt, memory)
            kept.append(tgt)
        return tgt, torch.stack(kept)


def test_what_needs_a_memory_in_training_is_not_blamed_without_one():
    assert said(Layer, "model-drops-only-in-training") == "NOT_PROVIDED"


class Crashes(Layer):
    def forward(self, tgt, memory=None):
        return super().forward(tgt, memory) if not self.training else tgt @ self.weights_that_are_not_there


def test_what_breaks_in_training_is_told_whatever_is_left_out():
    assert said(Crashes, "model-drops-only-in-training") == "ERROR"


def test_only_what_no_memory_reaches_is_blamed():
    result = run_check(CHECKS["model-every-parameter-gets-a-gradient"], pointed(Layer), "quick")
    assert result.diagnosis.startswith("unread.weight, unread.bias: ")


def test_as_many_layers_as_samples_are_no_samples():
    assert not pointed(Stack).build("module", {}).calling.batch_first


# --- the mask of torch's attention


class BlockOfTorch(nn.Module):
    def __init__(self, dim=WIDTH, heads=2):
        super().__init__()
        self.attn = nn.MultiheadAttention(dim, heads, batch_first=True)

    def forward(self, x, attn_mask):
        return x + self.attn(x, x, x, attn_mask=attn_mask, need_weights=False)[0]


class BlockOfAnother(BlockOfTorch):
    """Its attention is the function, to which True shows."""

    def forward(self, x, attn_mask):
        return x + nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=attn_mask)


@pytest.mark.parametrize(
    ("cls", "encoding"),
    [(BlockOfTorch, "bool, True = hidden"), (BlockOfAnother, "bool, True = may attend")],
)
def test_a_mask_that_is_handed_to_torchs_attention_is_true_where_it_hides(cls, encoding):
    [mask] = next(choices(cls(), ["attn_mask"], ["x"]))
    assert mask.encoding == encoding


# --- dropouts of a part that does not run


class Texts(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.layers = nn.ModuleList(
            nn.ModuleDict({"map": nn.Linear(16, 16), "drop": nn.Dropout(0.1)}) for _ in range(2)
        )

    def forward(self, ids):
        x = self.words(ids)
        for layer in self.layers:
            x = x + layer["drop"](layer["map"](x).relu())
        return x.mean(1)


class PicturesBesideTexts(nn.Module):
    """Only its pictures have an answer of their own; what drops are the texts."""

    def __init__(self):
        super().__init__()
        self.pictures, self.texts = nn.Conv2d(3, 16, 4, 4), Texts()

    def encode_image(self, image):
        return self.pictures(image).flatten(2).mean(2)

    def forward(self, image, ids):
        return self.encode_image(image) @ self.texts(ids).T


class ThrownAwayDropout(Texts):
    def forward(self, ids):
        x = self.words(ids)
        for layer in self.layers:
            x = x + layer["map"](x).relu()
        return x.mean(1)


@pytest.mark.parametrize(
    ("cls", "verdict"),
    [(PicturesBesideTexts, "NOT_PROVIDED"), (Texts, "PASS"), (ThrownAwayDropout, "FAIL")],
)
def test_dropout_that_does_not_run_says_nothing(cls, verdict):
    assert said(cls, "model-drops-only-in-training") == verdict
