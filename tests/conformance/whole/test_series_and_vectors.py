"""Forecasters, encoders of sentences and memories in styles that are right, and the mistakes beside them."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters import Specification  # noqa: E402
from conformance.adapters.whole.implementation import PointedImplementation  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.mutants.specimens.decider import DecisionTransformer  # noqa: E402
from conformance.runner import run_check  # noqa: E402

PLACES, APART = "forecast-channels-keep-their-places", "forecast-channels-are-apart-where-said"
LEVEL, ON = "forecast-follows-level-and-scale-where-said", "forecasts-go-on-from-their-own"
LISTS, PARTNER = "lists-of-texts-are-answered-one-by-one", "contrasts-label-the-own-partner"
TEMPERATURE, NEWEST = "contrasts-are-divided-by-the-temperature", "caches-keep-the-newest-tokens"
ACTIONS, MERGED = "actions-are-predicted-before-they-are-seen", "adapters-merge-without-a-change"
RESIDUAL = "sublayers-have-a-residual"


def verdict(cls, claim):
    found = run_check(CHECKS[claim], PointedImplementation(cls, Specification("", __name__, cls.__name__)), "quick")
    return found.verdict.value


# --- forecasters


class VariateTokens(nn.Module):
    """A forecaster whose tokens are whole series: channels see each other, and none has parameters of its own."""

    def __init__(self, n_vars=5, seq_len=16, pred_len=4, width=16):
        super().__init__()
        self.embed, self.head = nn.Linear(seq_len, width), nn.Linear(width, pred_len)
        self.layer = nn.TransformerEncoderLayer(width, 2, 24, batch_first=True)

    def forward(self, x):
        return self.head(self.layer(self.embed(x.transpose(1, 2)))).transpose(1, 2)


class VariatesCutAnew(VariateTokens):
    def forward(self, x):
        rows = x.reshape(len(x), x.shape[2], x.shape[1])
        return self.head(self.layer(self.embed(rows))).transpose(1, 2)


class ChannelMixer(nn.Module):
    """A forecaster of multivariate series whose channels are mixed by a map, and come out of one."""

    def __init__(self, n_channels=7, seq_len=12, pred_len=12, width=16):
        super().__init__()
        self.inner, self.time = nn.Linear(n_channels, width), nn.Linear(seq_len, pred_len)
        self.layer = nn.TransformerEncoderLayer(width, 2, 24, batch_first=True)
        self.outer = nn.Linear(width, n_channels)

    def forward(self, x):
        y = self.layer(self.inner(x))
        return self.outer(self.time(y.transpose(1, 2)).transpose(1, 2))


class ChannelMixerThatClaims(ChannelMixer):
    """Its channels are independent, it says."""


class LastTakenOut(ChannelMixer):
    """A forecaster that takes the last value out and puts it back: its biases do not scale."""

    def forward(self, x):
        last = x[:, -1:]
        return self.denorm(super().forward(x - last), last)

    def denorm(self, y, last):
        return y + last


class OwnStatistics(ChannelMixer):
    """A forecaster behind a reversible norm (RevIN)."""

    def forward(self, x):
        mean, std = x.mean(1, keepdim=True), x.std(1, keepdim=True) + 1e-5
        return super().forward((x - mean) / std) * std + mean


class StatisticsOfTheBatch(OwnStatistics):
    """A forecaster behind a reversible norm (RevIN) whose deviation is another row's."""

    def forward(self, x):
        mean, std = x.mean(1, keepdim=True), x.std(1, keepdim=True) + 1e-5
        return ChannelMixer.forward(self, (x - mean) / std) * std.flip(0) + mean


class ReversibleNorm(nn.Module):
    """RevIN alone: the part of a forecaster that takes level and scale out, and puts them back when it is told to."""

    def __init__(self, num_features=3, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight, self.bias = nn.Parameter(torch.ones(num_features)), nn.Parameter(torch.zeros(num_features))

    def forward(self, x, mode="norm"):
        if mode == "denorm":
            return (x - self.bias) / self.weight * self.std + self.mean
        self.mean = x.mean(1, keepdim=True).detach()
        self.std = torch.sqrt(x.var(1, keepdim=True, unbiased=False) + self.eps).detach()
        return (x - self.mean) / self.std * self.weight + self.bias


@pytest.mark.parametrize(
    ("cls", "claim", "expected"),
    [
        (ReversibleNorm, LEVEL, "NOT PROVIDED"),
        (ReversibleNorm, "norm-is-its-formula", "PASS"),
        (VariateTokens, PLACES, "PASS"),
        (VariatesCutAnew, PLACES, "FAIL"),
        (VariateTokens, APART, "NOT PROVIDED"),
        (VariateTokens, LEVEL, "NOT PROVIDED"),
        (VariateTokens, ON, "NOT PROVIDED"),
        (ChannelMixer, PLACES, "PASS"),
        (ChannelMixerThatClaims, APART, "FAIL"),
        (LastTakenOut, LEVEL, "NOTE"),
        (OwnStatistics, LEVEL, "PASS"),
        (StatisticsOfTheBatch, LEVEL, "FAIL"),
    ],
)
def test_what_a_forecaster_is_asked(cls, claim, expected):
    assert verdict(cls, claim) == expected


# --- vectors of texts


class Embedder(nn.Module):
    """An encoder of sentences with a learnt scale of its logits, as CLIP's; lists are padded as they come."""

    def __init__(self, vocab_size=31, width=16, pad_id=0):
        super().__init__()
        self.pad_id = pad_id
        self.words = nn.Embedding(vocab_size, width, padding_idx=pad_id)
        self.layer = nn.TransformerEncoderLayer(width, 2, 24, batch_first=True)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(14.0)))

    def forward(self, ids):
        hidden = ids == self.pad_id
        x = self.layer(self.words(ids), src_key_padding_mask=hidden).masked_fill(hidden[..., None], 0.0)
        return F.normalize(x.sum(1) / (~hidden).sum(1, keepdim=True), dim=-1)

    def scaled(self, scores):
        return scores * self.logit_scale.exp()

    def loss(self, anchors, positives):
        scores = self.scaled(self(anchors) @ self(positives).t())
        return F.cross_entropy(scores, self.own(len(scores)))

    def own(self, count):
        return torch.arange(count)

    def encode(self, texts):
        return self(nn.utils.rnn.pad_sequence([torch.tensor(text) for text in texts], batch_first=True))


class EmbedderOverItsScale(Embedder):
    def scaled(self, scores):
        return scores / self.logit_scale.exp()


class EmbedderOfNeighbours(Embedder):
    def own(self, count):
        return torch.arange(count).roll(1)


class EmbedderThatSorts(Embedder):
    def encode(self, texts):
        return super().encode(sorted(texts, key=len))


class EmbedderOfTexts(Embedder):
    """Its texts are strings."""

    def encode(self, texts):
        return super().encode([[ord(letter) % 30 + 1 for letter in text.lower()] for text in texts])


@pytest.mark.parametrize(
    ("cls", "claim", "expected"),
    [
        (Embedder, LISTS, "PASS"),
        (Embedder, PARTNER, "PASS"),
        (Embedder, TEMPERATURE, "PASS"),
        (EmbedderOverItsScale, TEMPERATURE, "FAIL"),
        (EmbedderOfNeighbours, PARTNER, "FAIL"),
        (EmbedderThatSorts, LISTS, "FAIL"),
        (EmbedderOfTexts, LISTS, "NOT PROVIDED"),
    ],
)
def test_what_an_encoder_of_sentences_is_asked(cls, claim, expected):
    assert verdict(cls, claim) == expected


# --- decisions and adapters


class Decider(DecisionTransformer):
    """Predicts actions from states, actions before and returns to go."""


class DeciderWithAMaskOfPadding(Decider):
    """Predicts actions from states, and is told by True where padding is."""

    def forward(self, returns_to_go, states, actions, timesteps, padding_mask=None):
        real = None if padding_mask is None else ~padding_mask
        return super().forward(returns_to_go, states, actions, timesteps, real)


class DeciderOfNoisyActions(DecisionTransformer):
    """A diffusion policy: its actions are noisy, and all are seen."""


class Merging(nn.Module):
    """A tagger of words whose method merges nothing but its own update."""

    def __init__(self, vocab_size=29, width=16, n_tags=3):
        super().__init__()
        self.words, self.layer = (
            nn.Embedding(vocab_size, width),
            nn.TransformerEncoderLayer(width, 2, 24, batch_first=True),
        )
        self.tags, self.update = nn.Linear(width, n_tags), nn.Parameter(torch.zeros(n_tags, width))

    def merge_adapters(self):
        with torch.no_grad():
            self.tags.weight += self.update
            self.update.zero_()

    def forward(self, ids):
        x = self.layer(self.words(ids))
        return self.tags(x) + x @ self.update.t()


class MergingForgetsTheUpdate(Merging):
    def merge_adapters(self):
        with torch.no_grad():
            self.tags.weight += self.update


@pytest.mark.parametrize(
    ("cls", "claim", "expected"),
    [
        (Decider, ACTIONS, "PASS"),
        (DeciderOfNoisyActions, ACTIONS, "NOT PROVIDED"),
        (DeciderWithAMaskOfPadding, "decisions-leave-out-the-steps-of-padding", "PASS"),
        (Merging, MERGED, "PASS"),
        (MergingForgetsTheUpdate, MERGED, "FAIL"),
        (Embedder, MERGED, "NOT PROVIDED"),
    ],
)
def test_what_deciders_and_adapters_are_asked(cls, claim, expected):
    assert verdict(cls, claim) == expected


# --- streams


class Plain(nn.Module):
    """A causal language model of two layers; `around` says what a layer makes of its input and result."""

    def __init__(self, vocab_size=29, width=16):
        super().__init__()
        self.words, self.places = nn.Embedding(vocab_size, width), nn.Embedding(32, width)
        self.attentions = nn.ModuleList(nn.MultiheadAttention(width, 2, batch_first=True) for _ in range(2))
        self.networks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 24), nn.GELU(), nn.Linear(24, width)) for _ in range(2)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.head = nn.Linear(width, vocab_size)

    def around(self, x, made):
        return x + made

    def forward(self, ids):
        mask = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
        x = self.words(ids) + self.places(torch.arange(ids.shape[1]))
        for attention, network, norm in zip(self.attentions, self.networks, self.norms, strict=True):
            h = norm(x)
            x = self.around(x, attention(h, h, h, attn_mask=mask, need_weights=False)[0] + network(h))
        return self.head(x)


class NothingAround(Plain):
    def around(self, x, made):
        return made


class SkiplessOnPurpose(NothingAround):
    """A language model without residuals, on purpose."""

    def around(self, x, made):
        return made  # no skip


class GatedAround(Plain):
    def around(self, x, made):
        return 0.5 * x + made.tanh()


@pytest.mark.parametrize(
    ("cls", "expected"),
    [(Plain, "PASS"), (NothingAround, "FAIL"), (SkiplessOnPurpose, "NOTE"), (GatedAround, "PASS")],
)
def test_a_deep_model_in_which_nothing_leads_around_its_layers(cls, expected):
    assert verdict(cls, RESIDUAL) == expected
