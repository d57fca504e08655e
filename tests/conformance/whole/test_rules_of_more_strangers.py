"""More rules that right models of other styles need; beside each right model a real mistake of the same place.

A picture's two sides may have one letter; of a list with one answer for each layer the last counts; a writer may put a
sign of the start in front of a prompt.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from wholes import pointed  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.whole.choices import Choices  # noqa: E402
from conformance.adapters.whole.searching import calling_of  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

WIDTH, VOCAB = 16, 23


def result(cls, claim):
    return run_check(CHECKS[claim], pointed(cls), "quick")


# --- pictures whose sides have one letter


class Pixels(nn.Module):
    """Its table of positions is as long as a picture of the right size has patches: one patch alone would do, too."""

    def __init__(self, size=16, patch=4, channels=1):
        super().__init__()
        self.enter = nn.Conv2d(channels, WIDTH, patch, stride=patch)
        self.places = nn.Parameter(torch.randn(1, (size // patch) ** 2, WIDTH))
        self.leave = nn.Linear(WIDTH, 5)

    def forward(self, x):
        """x (B, C, S, S)"""
        return self.leave((self.enter(x).flatten(2).transpose(1, 2) + self.places).tanh().mean(1))


def test_two_sides_of_one_letter_have_the_size_of_the_picture():
    assert calling_of(Pixels(), options={"size": 16, "patch": 4, "channels": 1}).main.shape == (1, 16, 16)


# --- one answer for each layer


class OfEachLayer(nn.Module):
    def __init__(self, n_words=VOCAB, n_tags=5):
        super().__init__()
        self.words, self.tags = nn.Embedding(n_words, WIDTH), nn.Linear(WIDTH, n_tags)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 2, 32, 0.0, batch_first=True) for _ in range(2)
        )

    def answer(self, x):
        return {"logits": self.tags(x), "sizes": x.square().mean(-1)}

    def forward(self, ids):
        x, found = self.words(ids), []
        for layer in self.layers:
            x = layer(x)
            found.append(self.answer(x))
        return found


class OfTheFirstLayer(OfEachLayer):
    """The second layer's answer is made from the first one's."""

    def forward(self, ids):
        x = self.layers[0](self.words(ids))
        self.layers[1](x)
        return [self.answer(x), self.answer(x)]


def test_of_a_list_of_answers_the_last_is_the_answer():
    claim = "model-every-parameter-gets-a-gradient"
    assert result(OfEachLayer, claim).verdict == "PASS"
    assert result(OfTheFirstLayer, claim).verdict == "FAIL"


# --- prompts behind a sign of the start


def test_what_a_writer_puts_in_front_of_a_prompt_is_read():
    table, prompt = torch.randn(VOCAB, WIDTH), torch.tensor([[5, 6, 7], [8, 9, 5]])
    with Choices({table.data_ptr()}, VOCAB, 2, -1, None) as watch:
        nn.functional.embedding(torch.cat([torch.ones(2, 1, dtype=torch.int64), prompt], 1), table)
    assert watch.led_by(prompt.numpy(), True).tolist() == [[1, 5, 6, 7], [1, 8, 9, 5]]
    assert watch.led_by(prompt.numpy()[:, ::-1], True).shape == (2, 3)
