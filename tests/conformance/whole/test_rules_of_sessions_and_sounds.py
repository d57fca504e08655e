"""Sessions whose padding stands in front, sounds of which a few frames are made, and what stands beside them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from wholes import pointed  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.helpers.examining import examine  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

PAD, ITEMS, WIDTH = 0, 30, 16


def said(cls, claim):
    return run_check(CHECKS[claim], pointed(cls), "quick").verdict.name


# --- sessions


def collate(rows):
    """Sessions are padded on the left, to the longest of the batch."""
    width = max(len(row) for row in rows)
    return torch.tensor([[PAD] * (width - len(row)) + row for row in rows])


class Sessions(nn.Module):
    """Scores of the next item; sessions are left padded."""

    def __init__(self, n_items=ITEMS):
        super().__init__()
        self.items, self.places = nn.Embedding(n_items + 1, WIDTH, padding_idx=PAD), nn.Embedding(13, WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)

    def numbers(self, real):
        return real.long().cumsum(1) * real

    def encode(self, sessions):
        real = sessions != PAD
        x = self.items(sessions) + self.places(self.numbers(real))
        q, k, v = self.qkv(x).chunk(3, -1)
        length = sessions.shape[1]
        seen = torch.ones(length, length, dtype=torch.bool).tril() & real[:, None] | torch.eye(length, dtype=torch.bool)
        return x + (q @ k.transpose(1, 2) / 4).masked_fill(~seen, -1e9).softmax(-1) @ v

    def forward(self, sessions):
        return F.linear(self.encode(sessions), self.items.weight)

    def score_next(self, sessions):
        scores = self(sessions)[:, -1]
        scores[:, PAD] = float("-inf")
        return scores

    def training_loss(self, sessions, positives, negatives=None):
        negatives = torch.randint(1, ITEMS, positives.shape) if negatives is None else negatives
        states = self.encode(sessions)
        true, false = ((states * self.items(one)).sum(-1) for one in (positives, negatives))
        return self.mean(F.softplus(-true) + F.softplus(false), positives != PAD)

    def mean(self, each, real):
        return (each * real).sum() / real.sum()


class CountsColumns(Sessions):
    def numbers(self, real):
        return torch.arange(real.shape[1]).expand(real.shape)


class ScoresAnother(Sessions):
    def score_next(self, sessions):
        return self(sessions)[torch.arange(len(sessions)), (sessions != PAD).sum(1) - 1]


class CountsPadding(Sessions):
    def mean(self, each, real):
        return each.mean()


LEFT, LOSSES = "model-left-padding-changes-nothing-where-said", "losses-of-samples-leave-padding-out"


@pytest.mark.parametrize(
    ("cls", "claim", "verdict"),
    [
        (Sessions, LEFT, "PASS"),
        (CountsColumns, LEFT, "FAIL"),
        (ScoresAnother, LEFT, "FAIL"),
        (Sessions, LOSSES, "PASS"),
        (CountsPadding, LOSSES, "FAIL"),
    ],
)
def test_sessions_that_are_filled_up_in_front_keep_their_answers(cls, claim, verdict):
    """A batch is as wide as its longest session: how much is filled up says nothing."""
    assert said(cls, claim) == verdict


# --- sounds


class SpecMask(nn.Module):
    """Hides a band, during training."""

    def forward(self, x):
        if not self.training:
            return x
        return x.masked_fill((torch.rand(x.shape[0], 1, x.shape[2]) < 0.2), 0.0)


class SpecMaskAlways(nn.Module):
    """Hides a band, during training."""

    def forward(self, x):
        return x * torch.rand(x.shape[0], 1, x.shape[2]).round()


class Noise(nn.Module):
    """Draws a code."""

    def forward(self, x):
        return x + torch.randn(x.shape[0], 1, x.shape[2])


class Sounds(nn.Module):
    """Classes of sounds."""

    hides = SpecMask

    def __init__(self, n_mels=12, n_classes=5):
        super().__init__()
        self.hide, self.conv = self.hides(), nn.Conv1d(n_mels, WIDTH, 4, stride=4)
        self.blocks = nn.ModuleList([nn.TransformerEncoderLayer(WIDTH, 2, 16, 0.0, batch_first=True)])
        self.head = nn.Linear(WIDTH, n_classes)

    def frames(self, lengths):
        return (lengths + 3) // 4

    def forward(self, mels, lengths):
        real = torch.arange(mels.shape[1]) < lengths[:, None]
        x = self.hide(mels).masked_fill(~real[..., None], 0.0)
        x = F.pad(x, (0, 0, 0, -x.shape[1] % 4))
        x = self.conv(x.transpose(1, 2)).transpose(1, 2)
        gone = torch.arange(x.shape[1]) >= self.frames(lengths)[:, None]
        for block in self.blocks:
            x = block(x, src_key_padding_mask=gone)
        kept = (~gone)[..., None]
        return self.head((x * kept).sum(1) / kept.sum(1))


class LengthsAsTheyWere(Sounds):
    def frames(self, lengths):
        return lengths


class HidesAlways(Sounds):
    hides = SpecMaskAlways


class DrawsAlways(Sounds):
    hides = Noise


PADDING, REPEATS = "classifier-padding-changes-nothing", "model-evaluation-repeats-itself"


@pytest.mark.parametrize(
    ("cls", "claim", "verdict"),
    [
        (Sounds, PADDING, "PASS"),
        (LengthsAsTheyWere, PADDING, "FAIL"),  # a few frames of padding make none that is padding alone
        (Sounds, REPEATS, "PASS"),
        (HidesAlways, REPEATS, "FAIL"),
        (DrawsAlways, REPEATS, "NOTE"),  # it may be meant
    ],
)
def test_frames_are_hidden_where_they_are_padding_and_drawn_in_training(cls, claim, verdict):
    assert said(cls, claim) == verdict


# --- beside models


def balanced_weights(counts, beta=0.99):
    return (1 - beta) / (1 - beta ** torch.as_tensor(counts).double())


def turned_weights(counts, beta=0.99):
    """By the effective number of each class."""
    return (1 - beta ** torch.as_tensor(counts).double()) / (1 - beta)


def accuracy(logits, target, topk=(1, 5)):
    hit = logits.topk(max(topk), 1).indices == target[:, None]
    return [hit[:, :k].any(1).double().mean().item() for k in topk]


def divided_accuracy(logits, target, topk=(1, 5)):
    hit = logits.topk(max(topk), 1).indices == target[:, None]
    return [hit[:, :k].double().mean().item() for k in topk]


def hide_words(ids, attention_mask, mask_id, special_ids, vocab_size, rate=0.15, taught="chosen"):
    special = torch.isin(ids, torch.tensor(sorted(special_ids)))
    candidates = attention_mask.bool() & ~special
    chosen = candidates & (torch.rand(ids.shape) < rate)
    labels = ids.masked_fill(~(chosen if taught == "chosen" else candidates), -100)
    action = torch.rand(ids.shape)
    noisy = ids.masked_fill(chosen & (action < 0.8), mask_id)
    words = torch.randint(max(special_ids) + 1, vocab_size, ids.shape)
    return torch.where(chosen & (action >= 0.8) & (action < 0.9), words, noisy), labels


def hide_too_few(ids, attention_mask, mask_id, special_ids, vocab_size, rate=0.15):
    return hide_words(ids, attention_mask, mask_id, special_ids, vocab_size, rate, "all")


@pytest.mark.parametrize(
    ("right", "wrong", "name", "claim"),
    [
        (balanced_weights, turned_weights, "class_weights", "weights-of-classes-favour-the-rare"),
        (accuracy, divided_accuracy, "accuracy", "accuracy-is-the-share-of-right-answers"),
        (hide_words, hide_too_few, "hide_words", "masked-words-are-what-is-taught"),
    ],
)
def test_what_stands_beside_is_asked_in_these_forms(right, wrong, name, claim):
    for function in (right, wrong):
        function.__name__ = name
        found = examine([function])
        assert list(found.tested) == [claim]
        assert bool(found.wrong) is (function is wrong)
