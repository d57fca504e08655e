"""Right parts and models of other styles: masks of torch's attention, shared tables of places, labels of padding."""

import math

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters import Specification  # noqa: E402
from conformance.adapters.whole.implementation import PointedImplementation  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

WIDTH, HEADS, VOCAB = 16, 2, 29


def verdict(cls, claim):
    return run_check(CHECKS[claim], PointedImplementation(cls, Specification("", __name__, cls.__name__)), "quick")


class EncoderLayer(nn.Module):
    """Its mask is torch's key_padding_mask, which has a shape of its own, but for torch's fast path."""

    def __init__(self, d_model=WIDTH, n_heads=HEADS, d_ff=32):
        super().__init__()
        self.attn = nn.MultiheadAttention(d_model, n_heads, batch_first=True)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.ff = nn.Sequential(nn.Linear(d_model, d_ff), nn.GELU(), nn.Linear(d_ff, d_model))

    def forward(self, x, pad_mask):
        x = self.norm1(x + self.attn(x, x, x, key_padding_mask=pad_mask, need_weights=False)[0])
        return self.norm2(x + self.ff(x))


@pytest.mark.parametrize("claim", ["encoder-layer-obeys-its-mask", "post-norm-encoder-layer-formula"])
def test_a_mask_of_keys_is_never_given_one_of_pairs(claim):
    assert verdict(EncoderLayer, claim).verdict.name in ("PASS", "NOT_PROVIDED")


class SharedPlaces(nn.Module):
    """A causal model without a scale; one table of relative places is added to the scores of both layers."""

    after = None

    def __init__(self, n_words=VOCAB):
        super().__init__()
        self.words, self.places = nn.Embedding(n_words, WIDTH), nn.Embedding(16, HEADS)
        self.qkv = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH, bias=False) for _ in range(2))
        self.head = nn.Linear(WIDTH, n_words)

    def forward(self, ids):
        x, at = self.words(ids), torch.arange(ids.shape[1])
        bias = self.places((at[:, None] - at).clamp(0, 15)).permute(2, 0, 1)
        for layer, qkv in enumerate(self.qkv):
            q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in qkv(x).chunk(3, -1))
            scores = q @ k.transpose(-1, -2)
            scores = scores + bias if layer != self.after else scores
            scores = scores.masked_fill(at > at[:, None], -math.inf)
            x = x + (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return self.head(x)


class OnePlaceless(SharedPlaces):
    """Its second layer adds nothing to its scores: there no design says why the scale is missing."""

    after = 1


@pytest.mark.parametrize(("cls", "says"), [(SharedPlaces, "NOTE"), (OnePlaceless, "FAIL")])
def test_layers_that_share_a_table_of_places_may_leave_the_scale_out(cls, says):
    assert verdict(cls, "attention-scale-is-one-over-sqrt-d-head").verdict.name == says


class WrittenOut(nn.Module):
    """Its loss gathers the words' log-probabilities and leaves padding out by a factor: it has no place for -100."""

    def __init__(self, n_words=VOCAB, pad_id=0):
        super().__init__()
        self.pad_id = pad_id
        self.words, self.mix, self.head = (
            nn.Embedding(n_words, WIDTH),
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, n_words),
        )

    def forward(self, ids, labels=None):
        """A causal language model."""
        x = self.words(ids)
        mean = x.cumsum(1) / torch.arange(1, ids.shape[1] + 1)[:, None]
        logits = self.head(F.gelu(self.mix(mean + x)))
        if labels is None:
            return logits, None
        target = labels[:, 1:]
        each = -logits[:, :-1].log_softmax(-1).gather(-1, target.unsqueeze(-1)).squeeze(-1)
        keep = (target != self.pad_id).to(each.dtype)
        return logits, (each * keep).sum() / keep.sum()


def test_a_loss_with_no_place_for_ignored_labels_is_not_blamed():
    found = verdict(WrittenOut, "language-model-loss-leaves-ignored-labels-out")
    assert found.verdict.name == "NOT_PROVIDED"


class OwnIgnored(WrittenOut):
    """The label that its loss ignores is a setting: the text of the code does not show which it is."""

    mean = staticmethod(lambda each, real: each.sum() / real.sum())

    def __init__(self, n_words=VOCAB, ignore_index=-1):
        super().__init__(n_words, None)
        self.ignore_index = ignore_index

    def forward(self, ids, targets=None):
        """A causal language model. targets: (B, T), shifted by the caller."""
        logits, _ = super().forward(ids)
        if targets is None:
            return logits, None
        each = F.cross_entropy(logits.transpose(1, 2), targets, ignore_index=self.ignore_index, reduction="none")
        return logits, self.mean(each, targets != self.ignore_index)


class CountsIgnored(OwnIgnored):
    mean = staticmethod(lambda each, real: each.mean())


@pytest.mark.parametrize(("cls", "says"), [(OwnIgnored, "PASS"), (CountsIgnored, "FAIL")])
def test_the_label_that_a_loss_ignores_is_the_one_that_it_is_told_when_it_runs(cls, says):
    found = verdict(cls, "language-model-loss-leaves-ignored-labels-out")
    assert found.verdict.name == says
    assert says == "PASS" or "Ignored labels (-1) change the loss" in str(found)
