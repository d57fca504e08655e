"""Rules that right models of other styles need; beside each right model a real mistake of the same place.

A text tower looks for the end of each text; a mask of padding leaves a causal mask as it is; vectors may stand in for
words; a loss of numbers has as many labels as answers; a loss adds terms to its cross-entropy; masks are made of
lengths; positions are handed out beside an input; rows have padding of their own; convolutions and fused attention
keep numbers as they are; what the suite itself does wrong is nobody's error.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from wholes import pointed  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters import Specification  # noqa: E402
from conformance.adapters.functions import masks  # noqa: E402
from conformance.adapters.functions.implementation import FunctionImplementation  # noqa: E402
from conformance.adapters.inference.facts import Unresolved  # noqa: E402
from conformance.adapters.whole.calling import default_dtype  # noqa: E402
from conformance.adapters.whole.running import moved  # noqa: E402
from conformance.check import CHECKS, Check  # noqa: E402
from conformance.checks.generation import _ending_of_rows  # noqa: E402
from conformance.places import is_of_the_suite  # noqa: E402
from conformance.runner import run_check  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402

WIDTH, VOCAB = 16, 29


def verdict(cls, claim):
    return run_check(CHECKS[claim], pointed(cls), "quick").verdict.value


# --- what a model looks for among its words


class TextTower(nn.Module):
    """A causal encoder that answers at the end of each text, as CLIP's does."""

    eot_id = 2

    def __init__(self, n_words=VOCAB):
        super().__init__()
        self.words, self.out = nn.Embedding(n_words, WIDTH), nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh())

    def ends(self, ids):
        return (ids == self.eot_id).int().argmax(-1)

    def forward(self, ids):
        x = self.words(ids).tanh().cumsum(1)
        return self.out(x[torch.arange(len(ids)), self.ends(ids)])


class ReadsTheFirst(TextTower):
    def ends(self, ids):
        return super().ends(ids) * 0


@pytest.mark.parametrize(("cls", "expected"), [(TextTower, "PASS"), (ReadsTheFirst, "FAIL")])
def test_texts_end_with_what_a_model_looks_for(cls, expected):
    assert pointed(cls).whole.calling.end == 2
    assert verdict(cls, "classifier-every-part-of-the-input-counts") == expected


class LastWord(nn.Module):
    """Answers for the last word that is no padding by its number, and hides padding by its mask, as GPT-2 does."""

    def __init__(self, n_words=VOCAB, pad_token_id=0):
        super().__init__()
        self.pad_token_id = pad_token_id
        self.words, self.out = nn.Embedding(n_words, WIDTH), nn.Sequential(nn.Linear(WIDTH, 3), nn.Tanh())

    def forward(self, ids=None, attention_mask=None, embeds=None):
        if ids is not None:
            rows, length = ids.shape
        else:
            rows, length = embeds.shape[:2]
        x = self.words(ids) if embeds is None else embeds
        seen = torch.ones(length, length).tril().bool()
        if attention_mask is not None:  # a mask of four axes stands for the causal one
            seen = attention_mask[:, 0].bool() if attention_mask.dim() == 4 else seen & attention_mask[:, None].bool()
        x = (x @ x.mT).masked_fill(~seen, -1e9).softmax(-1) @ x
        return self.out(x[torch.arange(rows), self.last(torch.arange(length) * (ids != self.pad_token_id))])

    @staticmethod
    def last(places):
        return places.argmax(-1)


class LastOfAll(LastWord):
    @staticmethod
    def last(places):
        return places.argmax(-1) * 0 + places.shape[1] - 1


def test_padding_is_told_by_its_number_too_and_words_are_what_is_required():
    calling = pointed(LastWord).whole.calling
    assert (calling.main.parameter, calling.main.vocab, calling.filler) == ("ids", VOCAB, 0)
    assert all(mask.axes != 4 for mask in calling.masks)
    assert verdict(LastWord, "classifier-padding-changes-nothing") == "PASS"
    assert verdict(LastOfAll, "classifier-padding-changes-nothing") == "FAIL"


# --- losses


class Forecaster(nn.Module):
    def __init__(self, channels=2, horizon=3):
        super().__init__()
        self.horizon, self.map = horizon, nn.Linear(12, horizon)

    def forward(self, x: torch.Tensor):
        """x: (B, 12, channels)"""
        return self.map(x.transpose(1, 2)).transpose(1, 2)

    def loss(self, x, y):
        return F.mse_loss(self(x), y)


class TaughtShares(Forecaster):
    """Its labels are shares that sum to one, which no noise is."""

    def loss(self, x, y):
        return F.kl_div(self(x).flatten(1).log_softmax(-1), y.flatten(1))


class ComparesAll(Forecaster):
    def loss(self, x, y):
        return F.mse_loss(self(x)[:, None], y[:, :, None])


@pytest.mark.parametrize(
    ("cls", "expected"), [(Forecaster, "PASS"), (TaughtShares, "NOT PROVIDED"), (ComparesAll, "FAIL")]
)
def test_a_loss_of_numbers_has_as_many_labels_as_answers(cls, expected):
    assert verdict(cls, "losses-get-what-they-are-made-for") == expected


def with_z_loss(logits, labels, z_weight=1e-4):
    kept = labels != -100
    rows = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=-100, reduction="none")
    return (rows + z_weight * logits.logsumexp(-1).square() * kept).sum() / kept.sum()


def over_all_places(logits, labels, z_weight=1e-4):
    rows = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=-100, reduction="none")
    return (rows + z_weight * logits.logsumexp(-1).square()).mean()


@pytest.mark.parametrize(("function", "expected"), [(with_z_loss, Verdict.PASS), (over_all_places, Verdict.FAIL)])
def test_a_loss_is_asked_for_its_cross_entropy_without_what_it_adds(function, expected):
    subject = FunctionImplementation(function, Specification("loss", "", "loss", role="cross_entropy"))
    assert run_check(CHECKS["cross-entropy-leaves-padding-out-of-the-mean"], subject, "quick").verdict is expected


# --- masks of lengths


def make_pad_mask(lengths, max_len=None):
    return torch.arange(max_len or int(lengths.max()))[None] >= lengths[:, None]


def make_non_pad_mask(lengths):
    return ~make_pad_mask(lengths)


def mask_with_one_too_many(lengths, maxlen):
    """True where a frame is real."""
    return torch.arange(maxlen)[None] <= lengths[:, None]


@pytest.mark.parametrize(
    ("function", "expected"),
    [(make_pad_mask, Verdict.PASS), (make_non_pad_mask, Verdict.PASS), (mask_with_one_too_many, Verdict.FAIL)],
)
def test_a_mask_of_lengths_is_a_mask_of_padding(function, expected):
    subject = FunctionImplementation(function, Specification("mask", "", "mask"))
    assert run_check(CHECKS["padding-mask-marks-tokens"], subject, "quick").verdict is expected


def test_what_makes_no_mask_of_lengths_is_refused():
    with pytest.raises(Unresolved, match="no mask of padding"):
        masks.resolve(lambda lengths, max_len: lengths.float())


# --- rows with padding of their own


class ByHeads(nn.Module):
    """Items whose padding torch's attention hides by a mask of each head."""

    def __init__(self, n_items=VOCAB, heads=2):
        super().__init__()
        self.heads = heads
        self.items = nn.Embedding(n_items, WIDTH, padding_idx=0)
        self.attention = nn.MultiheadAttention(WIDTH, heads, batch_first=True)

    def of_heads(self, hidden):
        return hidden.repeat_interleave(self.heads, 0)

    def forward(self, ids):
        x = self.items(ids)
        hidden = (ids == 0)[:, None].expand(-1, ids.shape[1], -1) & ~torch.eye(ids.shape[1]).bool()
        return x + self.attention(x, x, x, attn_mask=self.of_heads(hidden), need_weights=False)[0]


class OfAnotherRow(ByHeads):
    def of_heads(self, hidden):
        return hidden.repeat(self.heads, 1, 1)


@pytest.mark.parametrize(("cls", "expected"), [(ByHeads, "PASS"), (OfAnotherRow, "FAIL")])
def test_padding_of_other_rows_changes_nothing(cls, expected):
    assert verdict(cls, "model-rows-of-a-batch-are-apart") == expected


# --- rows that end


@pytest.mark.parametrize(("behind", "expected"), [([0, 0, 0, 0, 0], True), ([0, 13, 14, 15, 16], False)])
def test_rows_that_end_are_judged_where_one_token_more_is_written_than_was_asked_for(behind, expected):
    words = np.array([[10, 11, 12, 13, 14, 15], [20, 21, 22, 11, 24, 25]])
    new = np.array([[10, 11, *behind], [20, 21, 22, 11, 0, 0, 0]])
    written = SimpleNamespace(partly=False, new=new)
    writer = SimpleNamespace(name="generate", fills_ended_rows=False, ended_by=lambda *_: written)
    assert _ending_of_rows(writer, None, {}, words, "model.py:3").ok == expected


# --- what a part is, and what numbers stay


class Map(nn.Module):
    """A linear map by hand: it takes each word alone, and is no model."""

    def __init__(self, n_in=WIDTH, n_out=5):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_in, n_out))

    def forward(self, x):
        return x @ self.weight


class ScoreHead(nn.Module):
    """The same of several parts."""

    def __init__(self, width=WIDTH, n_out=5):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.maps = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, n_out))

    def forward(self, x):
        return self.maps(self.norm(x))


class WordEncoder(ScoreHead):
    """What calls itself a whole and neither attends nor has blocks is a part."""


class Mixer(ScoreHead):
    """What mixes words is a model, though it does not attend."""

    def forward(self, x):
        return self.maps(self.norm(x) + x.mean(1, keepdim=True))


@pytest.mark.parametrize(
    ("cls", "kind"), [(Map, None), (ScoreHead, None), (WordEncoder, None), (Mixer, "encoder_model")]
)
def test_what_takes_each_word_alone_is_no_model(cls, kind):
    subject = pointed(cls)
    assert (subject.kind, subject.untested) == (kind, [])
    assert "module" in subject.roles


def test_weights_of_convolutions_are_moved_by_what_they_read():
    torch.manual_seed(0)
    deep = nn.Sequential(*[nn.Sequential(nn.Conv2d(64, 64, 1), nn.ReLU()) for _ in range(20)])
    picture = torch.randn(2, 64, 4, 4)
    with torch.no_grad():
        assert float(moved(deep)(picture).abs().max()) < 1e3


def test_fused_attention_takes_a_mask_of_float32_in_float64():
    q = torch.randn(2, 1, 5, 8, dtype=torch.float64)
    mask = torch.zeros(2, 1, 5, 5).masked_fill(torch.arange(5) > 2, float("-inf"))
    with default_dtype(torch.float64):
        got = F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
    scores = (q @ q.mT / 8**0.5).masked_fill(torch.arange(5) > 2, float("-inf"))
    torch.testing.assert_close(got, scores.softmax(-1) @ q)


def checks_its_length(impl, draw):
    raise ValueError("texts have six words, and not 8")


def checks_its_numbers(impl, draw):
    assert torch.isfinite(torch.tensor(float("nan"))), "the loss is no number"


def computes(impl, draw):
    return int("eight")


@pytest.mark.parametrize(
    ("function", "verdict"),
    [(checks_its_length, Verdict.NOT_PROVIDED), (checks_its_numbers, Verdict.ERROR), (computes, Verdict.ERROR)],
)
def test_a_check_of_what_was_given_is_a_refusal_and_no_error(function, verdict):
    pointed = SimpleNamespace(infers=True, build=lambda role, config: SimpleNamespace())
    check = SimpleNamespace(function=function, roles=("model",), name="x", claim="x", examples=1)
    assert run_check(check, pointed, "quick").verdict is verdict


@pytest.mark.parametrize("is_theirs", [True, False])
def test_what_the_suite_does_wrong_is_no_error_of_the_user(is_theirs, monkeypatch):
    monkeypatch.setattr("conformance.runner.is_of_the_suite", is_of_the_suite)

    def fails(impl, draw):
        return {}["what it should have"]

    if not is_theirs:  # the suite's own line that calls it has the wrong arguments
        fails = Check.__init__

    class Pointed:
        infers = True

        def build(self, role, config):
            return SimpleNamespace()

    check = SimpleNamespace(function=fails, roles=("model",), name="x", claim="x", examples=1)
    result = run_check(check, Pointed(), "quick")
    assert result.verdict is (Verdict.ERROR if is_theirs else Verdict.NOT_PROVIDED)
