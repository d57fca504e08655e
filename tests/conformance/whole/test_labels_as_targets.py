"""Encoder-decoders whose decoder reads its labels, behind a sign of the start: they are asked as those that are handed
the words of the target."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from wholes import pointed  # noqa: E402

from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

WIDTH = 16


class Answering(nn.Module):
    diagonal = 1

    def __init__(self, vocab=23):
        super().__init__()
        self.hp = SimpleNamespace(pad=0, eos=1, ignore=-100)
        self.embed, self.places = nn.Embedding(vocab, WIDTH), nn.Embedding(64, WIDTH)
        layers = {"nhead": 2, "dim_feedforward": 2 * WIDTH, "batch_first": True, "dropout": 0.0}
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, **layers), 1, enable_nested_tensor=False)
        self.decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(WIDTH, **layers), 1)
        self.head = nn.Linear(WIDTH, vocab)

    def embedded(self, ids):
        return self.embed(ids) + self.places(torch.arange(ids.shape[1]))

    def decode(self, words, memory, hidden):
        future = torch.ones(words.shape[1], words.shape[1], dtype=torch.bool).triu(self.diagonal)
        return self.head(self.decoder(self.embedded(words), memory, future, memory_key_padding_mask=hidden))

    def encode(self, src):
        hidden = src == self.hp.pad
        return self.encoder(self.embedded(src), src_key_padding_mask=hidden), hidden

    def forward(self, src, labels):
        logits = self.decode(self.shifted(labels).clamp(min=0), *self.encode(src))
        return logits, F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=self.hp.ignore)

    def shifted(self, labels):
        return torch.cat([torch.full_like(labels[:, :1], self.hp.pad), labels[:, :-1]], 1)

    @torch.no_grad()
    def respond(self, src, limit=8):
        memory, words = self.encode(src), src.new_full((len(src), 1), self.hp.pad)
        done = torch.zeros(len(src), dtype=torch.bool)
        for _ in range(limit):
            best = self.decode(words, *memory)[:, -1].argmax(-1).masked_fill(done, self.hp.pad)
            words = torch.cat([words, best[:, None]], 1)
            done = done | (best == self.hp.eos)
            if bool(done.all()):
                break
        return words[:, 1:]


class SeesTheNext(Answering):
    diagonal = 2


class ReadsItsLabels(Answering):
    """Its decoder is given the very words that it shall answer with."""

    def shifted(self, labels):
        return labels


def said(cls, claim):
    return run_check(CHECKS[claim], pointed(cls), "quick").verdict.name


def test_it_answers_for_every_word_of_its_target():
    subject = pointed(Answering).build("sequence_to_sequence", {})
    assert subject.calling.starts
    assert subject(**subject.example(2, 5))["out"].shape == (2, 5, 23)


@pytest.mark.parametrize(("cls", "verdict"), [(Answering, "PASS"), (SeesTheNext, "FAIL")])
def test_its_target_is_causal(cls, verdict):
    assert said(cls, "sequence-model-target-is-causal") == verdict


@pytest.mark.parametrize("claim", ["generate-takes-the-best-token", "generate-stops-at-the-end-token"])
def test_it_writes_behind_its_own_start_and_ends_where_its_settings_say(claim):
    assert said(Answering, claim) == "PASS"


@pytest.mark.parametrize(("cls", "verdict"), [(Answering, "PASS"), (ReadsItsLabels, "FAIL")])
def test_its_decoder_does_not_read_what_it_shall_answer_with(cls, verdict):
    assert said(cls, "losses-teach-the-next-word") == verdict
