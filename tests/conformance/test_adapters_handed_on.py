"""Keywords that a constructor hands on: what it takes is what its part takes."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from conformance.adapters.inference.construct import Constructor  # noqa: E402


class Encoder(nn.Module):
    def __init__(self, vocab_size, hidden_size=768, num_layers=12, *, num_heads=12, dropout=0.1):
        super().__init__()
        self.words = nn.Embedding(vocab_size, hidden_size)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(hidden_size, num_heads, 2 * hidden_size, dropout) for _ in range(num_layers)
        )


class HandsOn(nn.Module):
    def __init__(self, vocab_size, **encoder_kwargs):
        super().__init__()
        self.encoder = Encoder(vocab_size, num_heads=2, **encoder_kwargs)


class KeepsThem(nn.Module):
    def __init__(self, vocab_size, **kwargs):
        super().__init__()
        self.options = dict(**kwargs)
        self.words = nn.Embedding(vocab_size, 4)


def test_the_sizes_of_a_part_can_be_set_through_the_model():
    constructor = Constructor(HandsOn)
    assert constructor.known >= {"vocab", "d_model", "n_layers", "dropout"}
    assert "n_heads" not in constructor.known  # the call gives it
    made = constructor.make({"vocab": 11, "d_model": 8, "n_layers": 1, "dropout": 0.0})
    assert (made.encoder.words.weight.shape, len(made.encoder.layers)) == ((11, 8), 1)


def test_keywords_that_no_part_takes_are_no_options():
    assert Constructor(KeepsThem).known == {"vocab"}
