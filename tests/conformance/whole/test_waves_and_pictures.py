"""Waves, of which a spectrum takes many numbers at once, and texts beside pictures, with an answer for each."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from wholes import pointed  # noqa: E402

from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

WIDTH = 16


def said(cls, claim):
    return run_check(CHECKS[claim], pointed(cls), "quick").verdict.name


class Waves(nn.Module):
    """Spectra of 64 numbers, each band normalised over its wave: of one spectrum nothing is left."""

    def __init__(self, vocab=9):
        super().__init__()
        self.register_buffer("window", torch.hann_window(64))
        self.inp, self.head = nn.Linear(33, WIDTH), nn.Linear(WIDTH, vocab)
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, dropout=0.0, batch_first=True)

    def forward(self, wave, lengths):
        """wave (B, S), lengths (B,) in samples"""
        window = self.window.to(wave.dtype)
        spectrum = torch.stft(wave, 64, 32, window=window, center=False, return_complex=True).abs().transpose(1, 2)
        logs = (spectrum + 1e-3).log()
        x = self.inp((logs - logs.mean(1, keepdim=True)) / (logs.std(1, keepdim=True, unbiased=False) + 1e-5))
        behind = torch.arange(x.shape[1]) >= ((lengths - 64) // 32 + 1)[:, None]
        return self.head(self.layer(x, src_key_padding_mask=behind)).log_softmax(-1)


def test_a_wave_has_several_spectra_and_is_changed_in_pieces():
    whole = pointed(Waves).whole
    assert whole.calling.main.length >= 8 * 64
    assert said(Waves, "model-every-parameter-gets-a-gradient") == "PASS"
    assert said(Waves, "encoder-every-word-reaches-every-word") == "PASS"


class Matched(nn.Module):
    """The vectors of a picture and of its text, and the temperature."""

    def __init__(self, vocab=50, size=8):
        super().__init__()
        self.patches, self.table = nn.Conv2d(3, WIDTH, 4, 4), nn.Embedding(vocab, WIDTH)
        self.positions = nn.Parameter(torch.randn(12, WIDTH))
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, dropout=0.0, batch_first=True)
        self.scale = nn.Parameter(torch.zeros(()))

    def forward(self, images, tokens):
        seen = self.patches(images).flatten(2).mean(-1)
        read = self.table(tokens) + self.positions[: tokens.shape[1]]
        return F.normalize(seen, dim=-1), F.normalize(self.layer(read).mean(1), dim=-1), self.scale.exp()


def test_of_two_answers_that_look_alike_that_is_taken_which_the_words_reach():
    calling = pointed(Matched).whole.calling
    assert (calling.main.parameter, calling.answer_at) == ("tokens", 1)
    assert said(Matched, "model-order-of-words-matters") == "PASS"
    assert said(Matched, "model-rows-of-a-batch-are-apart") == "PASS"
