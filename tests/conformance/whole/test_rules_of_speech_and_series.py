"""Rules that models of speech and of series need; beside each right model a real mistake of the same place.

A vector that stands for hidden steps is read where steps are hidden, and not by forward. A recogniser may have a
decoder beside its CTC, and may write the text of a path without its forward. An encoder of series has parts in roles of
their own and is a model all the same; `valid` says which of its steps were seen.
"""

from __future__ import annotations

import pytest
from slow import one_in

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from wholes import pointed  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.whole.frames import _differ  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402
from conformance.watch.frames import STACKED, _reach  # noqa: E402

WIDTH, LETTERS = 8, 23


def result(cls, claim):
    return run_check(CHECKS[claim], pointed(cls), "quick")


# --- a parameter that another method than forward needs


class Hides(nn.Module):
    """The vector of hidden steps is its own, and a helper of forward reads it where steps are hidden."""

    def __init__(self, channels=3):
        super().__init__()
        self.enter, self.leave = nn.Linear(channels, WIDTH), nn.Linear(WIDTH, channels)
        self.unseen = nn.Parameter(torch.randn(WIDTH))

    def states(self, x, hidden=None):
        h = self.enter(x)
        if hidden is not None:
            h = torch.where(hidden.unsqueeze(-1), self.unseen, h)
        return self.leave(h.tanh() + h.tanh().mean(1, keepdim=True))

    def forward(self, x):
        return self.states(x)

    def loss(self, x, hidden):
        return (self.states(x, hidden) - x)[hidden].square().mean()


class HidesNothing(Hides):
    """It makes a vector, and no method reads it where it counts."""

    def states(self, x, hidden=None):
        h = self.enter(x) + 0.0 * self.unseen
        return self.leave(h.tanh() + h.tanh().mean(1, keepdim=True))


class Stack(Hides):
    def forward(self, x, hidden=None):
        return self.states(x, hidden)


class NeverHidesInAPart(nn.Module):
    """No method of it gives the part what the vector needs."""

    def __init__(self, channels=3):
        super().__init__()
        self.body = Stack(channels)

    def forward(self, x):
        return self.body(x)


class HidesInAPart(NeverHidesInAPart):
    def loss(self, x, hidden):
        return (self.body(x, hidden) - x)[hidden].square().mean()


@pytest.mark.parametrize(
    ("cls", "verdict"),
    [(Hides, "PASS"), (HidesNothing, "FAIL"), (HidesInAPart, "PASS"), (NeverHidesInAPart, "FAIL")],
)
def test_a_parameter_is_used_that_a_method_beside_forward_needs(cls, verdict):
    assert result(cls, "model-every-parameter-gets-a-gradient").verdict.name == verdict


# --- CTC beside a decoder

BLANK, BOS, EOS, PAD = 0, 1, 2, 3
FRAMES = "sequence-model-source-padding-changes-nothing"


class HearsAndReads(nn.Module):
    """Frames through a convolution in strides, and a decoder of words that reads them; a loss of each."""

    ignored = PAD

    def __init__(self, mels=6, letters=LETTERS, max_text=12):
        super().__init__()
        self.max_text = max_text
        self.conv = nn.Conv1d(mels, WIDTH, 3, stride=2, padding=1)
        self.words, self.places = nn.Embedding(letters, WIDTH), nn.Embedding(max_text, WIDTH)
        self.own, self.cross = (nn.MultiheadAttention(WIDTH, 2, batch_first=True) for _ in range(2))
        self.ctc, self.head = nn.Linear(WIDTH, letters), nn.Linear(WIDTH, letters)

    def padding(self, lengths, longest):
        return torch.arange(longest) >= lengths[:, None]

    def encode(self, frames, lengths):
        x = frames.masked_fill(self.padding(lengths, frames.shape[1])[..., None], 0.0)
        x = self.conv(x.transpose(1, 2)).tanh().transpose(1, 2)
        kept = (lengths + 1) // 2
        return x, kept, self.padding(kept, x.shape[1])

    def decode(self, tokens, memory, padding):
        n = tokens.shape[1]
        x = self.words(tokens) + self.places(torch.arange(n))
        later = torch.ones(n, n, dtype=torch.bool).triu(1)
        x = x + self.own(x, x, x, attn_mask=later, need_weights=False)[0]
        return self.head(x + self.cross(x, memory, memory, key_padding_mask=padding, need_weights=False)[0])

    def logs(self, scores):
        return scores.log_softmax(-1)

    def forward(self, frames, frame_lengths, tokens):
        memory, kept, padding = self.encode(frames, frame_lengths)
        logits = self.decode(tokens[:, :-1], memory, padding)
        loss = F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], ignore_index=self.ignored)
        words = (tokens != PAD) & (tokens != BOS) & (tokens != EOS)
        scores = self.ctc(memory)
        ctc = F.ctc_loss(
            self.logs(scores).transpose(0, 1), tokens[words], kept, words.sum(1), BLANK, zero_infinity=True
        )
        return {"loss": loss + 0.3 * ctc, "logits": logits, "ctc_logits": scores}

    def merged(self, row):
        return [t for t in row.unique_consecutive().tolist() if t not in (BLANK, BOS, EOS, PAD)]

    @torch.no_grad()
    def ctc_transcribe(self, frames, frame_lengths):
        memory, kept, _ = self.encode(frames, frame_lengths)
        return [self.merged(row[:n]) for row, n in zip(self.ctc(memory).argmax(-1), kept.tolist(), strict=True)]

    @torch.no_grad()
    def greedy(self, frames, frame_lengths):
        memory, _, padding = self.encode(frames, frame_lengths)
        tokens = torch.full((len(frames), 1), BOS)
        for _ in range(self.max_text - 1):
            tokens = torch.cat([tokens, self.decode(tokens, memory, padding)[:, -1:].argmax(-1)], 1)
        return tokens[:, 1:]

    @torch.no_grad()
    def predict(self, frames, frame_lengths):
        """By forward, whose answer for the last word is that of a place behind it."""
        tokens = torch.full((len(frames), 2), BOS)
        for _ in range(self.max_text - 2):
            tokens = torch.cat([tokens[:, :-1], self(frames, frame_lengths, tokens)["logits"][:, -1:].argmax(-1)], 1)
            tokens = F.pad(tokens, (0, 1))
        return tokens[:, 1:-1].tolist()


class GivesProbabilities(HearsAndReads):
    def logs(self, scores):
        return scores.softmax(-1)


class SeesAllFrames(HearsAndReads):
    """Its decoder attends to the padding behind the frames."""

    def decode(self, tokens, memory, padding):
        return super().decode(tokens, memory, None)


class LengthsBehindFrames(HearsAndReads):
    def forward(self, frames, lengths, tokens):
        return super().forward(frames, lengths, tokens)


class OfOneNumberOfFrames(HearsAndReads):
    def __init__(self, mels=6, letters=LETTERS, max_text=12):
        super().__init__(mels, letters, max_text)
        self.register_buffer("frame_places", torch.randn(64, WIDTH))

    def encode(self, frames, lengths):
        x, kept, padding = super().encode(frames, lengths)
        return x + self.frame_places, kept, padding


class OfOneNumberThatSeesAll(OfOneNumberOfFrames):
    def encode(self, frames, lengths):
        x = self.conv(frames.transpose(1, 2)).tanh().transpose(1, 2) + self.frame_places
        return x, (lengths + 1) // 2, None


class TeachesPadding(HearsAndReads):
    ignored = BLANK


class LosesDoubleLetters(HearsAndReads):
    def merged(self, row):
        return super().merged(row[row != BLANK])


@pytest.mark.parametrize(
    ("cls", "claim", "verdict"),
    one_in(
        3,
        [
            (HearsAndReads, "ctc-loss-gets-log-probabilities", "PASS"),
            (GivesProbabilities, "ctc-loss-gets-log-probabilities", "FAIL"),
            (HearsAndReads, "ctc-text-merges-repeats-then-drops-blanks", "PASS"),
            (LosesDoubleLetters, "ctc-text-merges-repeats-then-drops-blanks", "FAIL"),
            (HearsAndReads, "ctc-text-drops-the-blank-of-the-loss", "PASS"),
            (HearsAndReads, "ctc-loss-counts-the-real-frames", "PASS"),
            (HearsAndReads, FRAMES, "PASS"),
            (SeesAllFrames, FRAMES, "FAIL"),
            (LengthsBehindFrames, FRAMES, "PASS"),
            (OfOneNumberOfFrames, FRAMES, "PASS"),
            (OfOneNumberThatSeesAll, FRAMES, "FAIL"),
            (HearsAndReads, "losses-teach-no-padding", "PASS"),
            (TeachesPadding, "losses-teach-no-padding", "FAIL"),
            (HearsAndReads, "losses-teach-the-next-word", "PASS"),
        ],
    ),
)
def test_a_recogniser_with_a_decoder_is_tested(cls, claim, verdict):
    assert result(cls, claim).verdict.name == verdict


def test_of_a_recogniser_with_a_decoder_only_the_text_of_a_path_is_read():
    assert [one.name for one in pointed(HearsAndReads).whole.readings()] == ["ctc_transcribe"]


# --- an encoder of series


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.other = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x, hidden):
        h = self.norm(x)
        x = x + self.attend(h, h, h, key_padding_mask=hidden, need_weights=False)[0]
        return x + self.down(F.gelu(self.up(self.other(x))))


class Series(nn.Module):
    """One vector for each series, whose level and scale over its valid steps are taken out first."""

    def __init__(self, channels=3, size=5):
        super().__init__()
        self.enter, self.leave = nn.Linear(channels, WIDTH), nn.Linear(WIDTH, size)
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def counted(self, valid):
        return valid

    def forward(self, x, valid=None):
        valid = torch.ones(x.shape[:2], dtype=torch.bool) if valid is None else valid
        w = self.counted(valid)[..., None].to(x)
        mean = (x * w).sum(1, keepdim=True) / w.sum(1, keepdim=True)
        std = (((x - mean) ** 2 * w).sum(1, keepdim=True) / w.sum(1, keepdim=True) + 1e-5).sqrt()
        h = self.enter((x - mean) / std)
        for block in self.blocks:
            h = block(h, ~valid)
        w = valid[..., None].to(h)
        return self.leave((h * w).sum(1) / w.sum(1))


class SeriesThatCountsPadding(Series):
    def counted(self, valid):
        return torch.ones_like(valid)


@pytest.mark.parametrize(("cls", "verdict"), [(Series, "PASS"), (SeriesThatCountsPadding, "FAIL")])
def test_an_encoder_of_series_is_a_model_whose_valid_steps_count(cls, verdict):
    assert result(cls, "classifier-padding-changes-nothing").verdict.name == verdict


def test_a_block_of_vectors_is_no_model():
    assert pointed(Block).whole is None


# --- how far convolutions see


def test_strides_widen_what_later_convolutions_see():
    parts = nn.Sequential(nn.Conv1d(2, 2, 3), nn.Conv1d(2, 2, 5, stride=2), nn.Conv1d(2, 2, 3))
    assert _reach(parts) == STACKED + 2 + 4 + 2 * 2


def test_results_of_the_first_row_are_compared():
    other = torch.zeros(2, 4, 3)
    other[1] = 1.0
    assert not _differ(torch.zeros(2, 4, 3), other, 2, 1.0)
    other[0, 3] = 1.0
    assert _differ(torch.zeros(2, 4, 3), other, 2, 0.75)
    assert not _differ(torch.zeros(2, 3, 3), other, 2, 0.75)
