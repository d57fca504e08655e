"""What starts at zero and learns all the same, and what never does."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters import Specification  # noqa: E402
from conformance.adapters.whole.implementation import PointedImplementation  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

WIDTH = 8


class Tagger(nn.Module):
    """A tagger of words whose queries start at zero, and its keys do not: both learn."""

    starts_at_zero: tuple[str, ...] = ("query",)

    def __init__(self, vocab_size=29, n_tags=3):
        super().__init__()
        self.words, self.tags = nn.Embedding(vocab_size, WIDTH), nn.Linear(WIDTH, n_tags)
        self.query, self.key_value = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.gated, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH)
        for name in self.starts_at_zero:
            nn.init.zeros_(getattr(self, name).weight)
            nn.init.zeros_(getattr(self, name).bias)

    def forward(self, ids):
        x = self.words(ids)
        key, value = self.key_value(x).chunk(2, -1)
        x = x + (self.query(x) @ key.transpose(1, 2)).softmax(-1) @ value
        a, b = self.gated(x).chunk(2, -1)
        return self.tags(x + self.down(a * self.gate(b)))

    def gate(self, b):
        return b.sigmoid()


class GatesAtZero(Tagger):
    """A gate of one half lets what it multiplies learn, and then learns itself; so does what a map at zero hides."""

    starts_at_zero = ("gated", "tags", "key_value")


class KeysAndQueriesAtZero(Tagger):
    """Values learn; queries and keys multiply each other, and are zero for ever."""

    starts_at_zero = ("query", "key_value")


class BilinearAtZero(Tagger):
    """Both factors of a product are zero for ever."""

    starts_at_zero = ("gated",)

    def gate(self, b):
        return b


@pytest.mark.parametrize(
    ("cls", "expected"),
    [(Tagger, "PASS"), (GatesAtZero, "PASS"), (KeysAndQueriesAtZero, "FAIL"), (BilinearAtZero, "FAIL")],
)
def test_what_starts_at_zero_learns_where_what_it_multiplies_does_not(cls, expected):
    subject = PointedImplementation(cls, Specification("", __name__, cls.__name__))
    found = run_check(CHECKS["model-learns-from-its-start"], subject, "quick")
    assert found.verdict.value == expected
    if cls is KeysAndQueriesAtZero:
        assert found.got == "none for query.weight, rows of key_value.weight"


class Stack(nn.Module):
    """Maps that are added to a stream, and start by a function of their number."""

    def __init__(self, vocab_size=29, n_layers=2):
        super().__init__()
        self.words, self.tags = nn.Embedding(vocab_size, 16), nn.Linear(16, 3)
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(n_layers))
        for layer in self.layers:
            nn.init.normal_(layer.weight, std=0.02 * self.scale(n_layers))

    def forward(self, ids):
        x = self.words(ids)
        for layer in self.layers:
            x = x + layer(x)
        return self.tags(x)

    @staticmethod
    def scale(n_layers):
        return 1.0


class SmallerWithDepth(Stack):
    @staticmethod
    def scale(n_layers):
        return (2 * n_layers) ** -0.5


class LargerWithDepth(Stack):
    @staticmethod
    def scale(n_layers):
        return (2 * n_layers) ** 0.5


@pytest.mark.parametrize(("cls", "expected"), [(Stack, "PASS"), (SmallerWithDepth, "PASS"), (LargerWithDepth, "FAIL")])
def test_no_matrix_starts_larger_in_a_deeper_model(cls, expected):
    subject = PointedImplementation(cls, Specification("", __name__, cls.__name__))
    assert run_check(CHECKS["matrices-start-no-larger-in-a-deeper-model"], subject, "quick").verdict.value == expected
