"""A recogniser of speech is judged by its text: frames stand beside it, and forward may put the start before it.

What it writes for a recording is compared with its own logits, and so are its cache and its beams.
"""

from __future__ import annotations

import pytest
from slow import one_in

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from wholes import pointed  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

MELS, WIDTH, LETTERS, LONGEST = 6, 16, 23, 20
BOS, EOS = 1, 2


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.own, self.cross = (nn.MultiheadAttention(WIDTH, 2, batch_first=True) for _ in range(2))

    def forward(self, x, memory, hidden, past):
        whole = x if past is None else torch.cat([past, x], 1)
        later = torch.ones(x.shape[1], whole.shape[1], dtype=torch.bool).triu(1 + whole.shape[1] - x.shape[1])
        y = x + self.own(x, whole, whole, attn_mask=later, need_weights=False)[0]
        return y + self.cross(y, memory, memory, key_padding_mask=hidden, need_weights=False)[0], whole


class Hears(nn.Module):
    """Frames (B, T, mels) and the words of a text; forward puts the start before them and answers for it, too."""

    reorders = True

    def __init__(self, letters=LETTERS):
        super().__init__()
        self.conv = nn.Conv1d(MELS, WIDTH, 3, stride=2, padding=1)
        self.words, self.places = nn.Embedding(letters, WIDTH), nn.Embedding(LONGEST, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.head = nn.Linear(WIDTH, letters)

    def encode(self, frames, frame_lengths):
        memory, kept = self.conv(frames.transpose(1, 2)).tanh().transpose(1, 2), (frame_lengths + 1) // 2
        return memory, torch.arange(memory.shape[1]) >= kept[:, None]

    def place(self, past):
        return 0 if past is None else past[0].shape[1]

    def decode(self, tokens, memory, hidden, past=None):
        first, kept = self.place(past), []
        x = self.words(tokens) + self.places(torch.arange(first, first + tokens.shape[1]))
        for at, layer in enumerate(self.layers):
            x, whole = layer(x, memory, hidden, None if past is None else past[at])
            kept.append(whole)
        return self.head(x), kept

    def forward(self, frames, frame_lengths, text, text_lengths):
        real = torch.arange(text.shape[1] + 1) <= text_lengths[:, None]
        labels = F.pad(text, (0, 1)).scatter(1, text_lengths[:, None], EOS)
        logits, _ = self.decode(F.pad(text, (1, 0), value=BOS), *self.encode(frames, frame_lengths))
        loss = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
        return {"loss": (loss * real).sum() / real.sum(), "logits": logits}

    @torch.no_grad()
    def greedy(self, frames, frame_lengths, max_len=8):
        memory, past = self.encode(frames, frame_lengths), None
        written = [torch.full((len(frames), 1), BOS)]
        for _ in range(max_len):
            logits, past = self.decode(written[-1], *memory, past)
            written.append(logits[:, -1:].argmax(-1))
        return torch.cat(written[1:], 1)

    @torch.no_grad()
    def beam_search(self, frames, beam=3, max_len=8):
        """Of one recording, (T, mels)."""
        memory, hidden = self.encode(frames[None], torch.tensor([len(frames)]))
        memory, hidden = memory.expand(beam, -1, -1), hidden.expand(beam, -1)
        tokens, past = torch.full((beam, 1), BOS), None
        scores = torch.tensor([0.0] + [-torch.inf] * (beam - 1))
        for _ in range(max_len):
            logits, past = self.decode(tokens[:, -1:], memory, hidden, past)
            total = (scores[:, None] + logits[:, -1].log_softmax(-1)).flatten()
            scores, best = total.topk(beam)
            rows, new = best // logits.shape[-1], best % logits.shape[-1]
            tokens = torch.cat([tokens[rows], new[:, None]], 1)
            past = [one[rows] for one in past] if self.reorders else past
            if tokens[0, -1] == EOS:
                break
        return tokens[0, 1:].tolist()


class ChannelsFirst(Hears):
    """Its frames are (B, mels, T), so that their last axis is counted."""

    def encode(self, mel, mel_lengths):
        steps = torch.arange(mel.shape[-1]) < mel_lengths[:, None]
        mean = (mel * steps[:, None]).sum(-1, keepdim=True) / mel_lengths[:, None, None]
        return super().encode((mel - mean).transpose(1, 2), mel_lengths)

    def forward(self, mel, mel_lengths, text, text_lengths):
        return super().forward(mel, mel_lengths, text, text_lengths)

    def greedy(self, mel, max_len=8):
        return super().greedy(mel[None], torch.tensor([mel.shape[-1]]), max_len)

    beam_search = None


class CountsNoCache(Hears):
    def place(self, past):
        return 0


class KeepsOtherBeams(Hears):
    reorders = False


def test_it_is_judged_by_its_words():
    calling = pointed(Hears).whole.calling
    assert (calling.main.parameter, calling.layout, calling.led) == ("text", "(B, T, V)", True)
    assert pointed(Hears).whole.kind == "language_model"


def test_what_it_writes_for_a_recording_is_found():
    found = {(one.name, one.form, one.tells_of) for one in pointed(Hears).whole.writers()}
    assert found == {("greedy", "(B, T)", True), ("beam_search", "(T)", True)}


CACHED, BEST, BEAMS = (
    "cached-steps-give-the-logits-of-one-pass",
    "generate-takes-the-best-token",
    "beam-search-scores-are-those-of-its-tokens",
)


@pytest.mark.parametrize(
    ("cls", "claim", "verdict"),
    one_in(
        3,
        [
            (Hears, CACHED, "PASS"),
            (CountsNoCache, CACHED, "FAIL"),
            (Hears, BEST, "PASS"),
            (ChannelsFirst, BEST, "PASS"),
            (Hears, BEAMS, "PASS"),
            (KeepsOtherBeams, BEAMS, "FAIL"),
            (Hears, "losses-teach-the-next-word", "PASS"),
        ],
    ),
)
def test_its_writing_is_compared_with_its_logits(cls, claim, verdict):
    assert run_check(CHECKS[claim], pointed(cls), "quick").verdict.name == verdict
