"""Right models of rarer designs: classes that are barred, several streams, channels that attend to each other, maps
that are asked for apart; and lengths that nobody must give."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from wholes import pointed  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.functions.positions import of_class  # noqa: E402
from conformance.adapters.torch_module import TorchModuleImplementation  # noqa: E402
from conformance.adapters.whole.attention_findings import _are_channels  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

WIDTH = 16


def said(cls: type, claim: str) -> str:
    return run_check(CHECKS[claim], pointed(cls), "quick").verdict.name


class Recommender(nn.Module):
    """Causal. Item 0 is padding and can never be recommended."""

    def __init__(self, n_items=30):
        super().__init__()
        self.items, self.mix = nn.Embedding(n_items + 1, WIDTH), nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.out = nn.Linear(WIDTH, n_items + 1)

    def forward(self, items):
        scores = self.out(self.mix(self.items(items))[0])
        barred = torch.arange(scores.shape[-1]) == 0
        return scores.masked_fill(barred, torch.finfo(scores.dtype).min)


@pytest.mark.parametrize(
    "claim",
    ["language-model-sees-every-earlier-token", "model-precisions-agree", "model-order-of-words-matters"],
)
def test_a_class_that_is_barred_hides_no_other(claim):
    assert said(Recommender, claim) == "PASS"


class Attention(nn.Module):
    """drops: whether the weights that nobody asks for are dropped in training."""

    drops = True

    def __init__(self, d_model=WIDTH, n_heads=2, dropout=0.0):
        super().__init__()
        self.n_heads, self.dropout = n_heads, dropout
        self.qkv, self.proj = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x, return_attn=False):
        q, k, v = (p.unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for p in self.qkv(x).chunk(3, -1))
        if return_attn:  # for looking at: nothing is dropped
            weights = (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).softmax(-1)
            return self.proj((weights @ v).transpose(1, 2).flatten(2)), weights
        p = self.dropout if self.training and self.drops else 0.0
        return self.proj(F.scaled_dot_product_attention(q, k, v, dropout_p=p).transpose(1, 2).flatten(2))


class AttentionThatDropsNothing(Attention):
    drops = False


@pytest.mark.parametrize(("cls", "verdict"), [(Attention, "PASS"), (AttentionThatDropsNothing, "FAIL")])
def test_dropout_is_that_of_who_asks_for_no_weights(cls, verdict):
    check = CHECKS["multi-head-dropout-thins-the-weights"]
    assert run_check(check, TorchModuleImplementation(cls), "quick").verdict.name == verdict


class Streams(nn.Module):
    """Two streams of each token: a layer reads a mixture of both, and a product mixes them around it."""

    goes_around = True

    def __init__(self, vocab_size=31, n_layers=2):
        super().__init__()
        self.words, self.head = nn.Embedding(vocab_size, WIDTH), nn.Linear(WIDTH, vocab_size)
        self.layers = nn.ModuleList([nn.ModuleList([Attention(), Network()]) for _ in range(n_layers)])
        self.mixes = nn.ParameterList([nn.Parameter(torch.eye(2) * 0.8 + 0.1) for _ in range(2 * n_layers)])
        self.reads = nn.ParameterList([nn.Parameter(torch.ones(1, 2) / 2) for _ in range(2 * n_layers)])
        self.writes = nn.ParameterList([nn.Parameter(torch.ones(2, 1)) for _ in range(2 * n_layers)])

    def forward(self, ids):
        batch, length = ids.shape
        x = self.words(ids).flatten(0, 1)[:, None].repeat(1, 2, 1)
        for n, part in enumerate(part for layer in self.layers for part in layer):
            read = torch.matmul(self.reads[n].expand(len(x), 1, 2), x).view(batch, length, WIDTH)
            made = torch.matmul(self.writes[n].expand(len(x), 2, 1), part(read).view(-1, 1, WIDTH))
            x = torch.matmul(self.mixes[n].expand(len(x), 2, 2), x) + made if self.goes_around else made
        return self.head(x.mean(1).view(batch, length, WIDTH))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class StreamsThatEnd(Streams):
    goes_around = False


@pytest.mark.parametrize(("cls", "is_told"), [(Streams, False), (StreamsThatEnd, True)])
def test_what_mixes_streams_leads_around_a_layer(cls, is_told):
    assert (said(cls, "sublayers-have-a-residual") == "FAIL") == is_told


class ChannelAttention(nn.Module):
    """Channels attend to each other: a vector is one channel of all tokens."""

    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.temperature = nn.Parameter(torch.ones(2, 1, 1))

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = self.qkv(x).reshape(batch, length, 3, 2, WIDTH // 2).permute(2, 0, 3, 1, 4).unbind(0)
        q, k, v = (part.transpose(-2, -1) for part in (q, k, v))
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        weights = (q @ k.transpose(-2, -1) * self.temperature).softmax(-1)
        return self.proj((weights @ v).permute(0, 3, 1, 2).flatten(2))


class ChannelClassifier(nn.Module):
    def __init__(self, num_classes=4):
        super().__init__()
        self.patches, self.attention = nn.Conv2d(3, WIDTH, 8, 8), ChannelAttention()
        self.head = nn.Linear(WIDTH, num_classes)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2)
        return self.head((x + self.attention(x)).mean(1))


def test_channels_that_attend_to_each_other_split_no_token():
    assert said(ChannelClassifier, "attention-heads-keep-tokens-apart") != "FAIL"


def test_a_channel_of_all_tokens_is_no_mixture():
    whole = torch.arange(6).expand(2, 4, 6)
    torn = torch.arange(12).view(2, 6, 1).expand(2, 6, 4).reshape(2, 4, 6)  # .view(batch, heads, time, d)
    assert _are_channels(whole)
    assert not _are_channels(torn)


class RotaryEmbedding(nn.Module):
    """Rotates the halves of x (B, H, T, d) and is told its length."""

    def __init__(self, dim, base=10000):
        super().__init__()
        self.register_buffer("rates", base ** (-torch.arange(0, dim, 2).float() / dim))

    def forward(self, x, seq_len):
        angles = torch.outer(torch.arange(seq_len, dtype=x.dtype), self.rates.to(x.dtype))
        cos, sin = angles.cos(), angles.sin()
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


def test_a_rotation_that_takes_a_length_is_one():
    (served,) = of_class(RotaryEmbedding)
    assert (served.role, served.fits) == ("rope", True)


class Refusing(nn.Module):
    """Classes of a series, whose numbers may not be missing."""

    def __init__(self, n_features=5, num_classes=3):
        super().__init__()
        self.mix, self.head = nn.GRU(n_features, WIDTH, batch_first=True), nn.Linear(WIDTH, num_classes)

    def forward(self, x):
        if torch.isnan(x).any():
            raise RuntimeError("numbers are missing")
        return self.head(self.mix(x)[0][:, -1])


def test_a_model_may_refuse_missing_numbers():
    assert said(Refusing, "missing-numbers-teach-finite-gradients") == "NOT_PROVIDED"


class Recogniser(nn.Module):
    """Frames (B, T, 8), of which three make one answer; lengths (B,) may be left out."""

    norms_all = False

    def __init__(self, n_letters=9):
        super().__init__()
        self.shorten = nn.Conv1d(8, WIDTH, 3, 2, padding=1)
        self.attention, self.head = Attention(WIDTH, 2), nn.Linear(WIDTH, n_letters)

    def forward(self, feats, lengths=None):
        if lengths is None:
            lengths = torch.full((len(feats),), feats.shape[1])
        real = (torch.arange(feats.shape[1]) < lengths[:, None])[..., None].to(feats.dtype)
        mean = (
            feats.mean(1, keepdim=True)
            if self.norms_all
            else (feats * real).sum(1, keepdim=True) / real.sum(1)[:, None]
        )
        x = self.shorten(((feats - mean) * real).transpose(1, 2)).transpose(1, 2)
        return self.head(x), (lengths + 1) // 2


class RecogniserThatNormsPadding(Recogniser):
    norms_all = True


@pytest.mark.parametrize(("cls", "verdict"), [(Recogniser, "PASS"), (RecogniserThatNormsPadding, "FAIL")])
def test_lengths_that_may_be_left_out_are_counted(cls, verdict):
    assert said(cls, "encoder-padding-changes-nothing") == verdict


class BreaksInTraining(nn.Module):
    """Classes of texts. In training it raises; in evaluation a part of it runs without gradients."""

    def __init__(self, vocab_size=29, num_classes=3):
        super().__init__()
        self.words, self.part = nn.Embedding(vocab_size, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, num_classes)

    def forward(self, ids):
        x = self.words(ids).mean(1)
        return self.head(x + (self.part(x).view(5, 7) if self.training else self.answered(x)))

    @torch.no_grad()
    def answered(self, x):
        return self.part(x)


def test_a_training_that_raises_is_told_as_that():
    found = run_check(CHECKS["model-every-parameter-gets-a-gradient"], pointed(BreaksInTraining), "quick")
    assert found.verdict.name == "FAIL"
    assert found.diagnosis.startswith("In training forward raises")
    assert "view(5, 7)" in found.place
