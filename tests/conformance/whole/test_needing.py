"""What a constructor is given that no call shows: what the code does with an argument says what it must be."""

from __future__ import annotations

from textwrap import dedent

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

BASE = """
class Base(nn.Module):
    def fill(self, words, width):
        super().__init__()
        self.table = nn.Embedding(words, width)
        self.maps = nn.ModuleList(nn.Linear(width, width) for _ in range(2))

    def forward(self, ids):
        return self.table(ids)
"""
STYLES = {
    "an object of a class of the file": """
        class Codebook:
            def __init__(self):
                self.symbols = list("ACGT-")
                self.gap, self.start = 4, 5

            def __len__(self):
                return len(self.symbols) + 1

        class Net(Base):
            def __init__(self, codes, width=8):
                words = len(codes) + codes.start - 5
                assert words == 6
                self.fill(words, width)
    """,
    "an object that the file has made": """
        class Alphabet:
            def __init__(self, letters):
                self.letters = {letter: place for place, letter in enumerate(letters)}

            def __len__(self):
                return len(self.letters)

        LETTERS = Alphabet("abcdefg")

        class Net(Base):
            def __init__(self, alphabet, width=8):
                words = len(alphabet)
                assert words == 7 and alphabet.letters["g"] == 6
                self.fill(words, width)
    """,
    "an object whose constructor has sizes itself": """
        class Grid:
            def __init__(self, height, width):
                self.height, self.cells = height, height * width

        class Net(Base):
            def __init__(self, grid):
                words, width = grid.cells, 8
                assert grid.height == 32
                self.fill(words, width)
    """,
    "settings that a function returns": """
        from types import SimpleNamespace

        def defaults(**more):
            found = SimpleNamespace(quanta=21, breadth=8)
            vars(found).update(more)
            return found

        class Net(Base):
            def __init__(self, hp):
                words, width = hp.quanta, hp.breadth
                assert words == 21
                self.fill(words, width)
    """,
    "settings that a function returns in its branches": """
        from types import SimpleNamespace

        def defaults(small=True):
            if small:
                return SimpleNamespace(quanta=21, breadth=8)
            else:
                return SimpleNamespace(quanta=44, breadth=8)

        class Net(Base):
            def __init__(self, hp):
                words, width = hp.quanta, hp.breadth
                assert words in (21, 44) and isinstance(hp, SimpleNamespace)
                self.fill(words, width)
    """,
    "a table of settings": """
        BASE = {"quanta": 21, "breadth": 8, "unused": "yes"}

        class Net(Base):
            def __init__(self, hp):
                words, width = hp["quanta"], hp["breadth"]
                assert words == 21
                self.fill(words, width)
    """,
    "settings without any value": """
        class Net(Base):
            def __init__(self, recipe):
                words, width = recipe.quanta * 2, recipe.stream.breadth + 4
                if recipe.stream.cold:
                    raise RuntimeError("cold")
                self.fill(words, width)
    """,
    "settings in trees of dataclasses": """
        @dataclass
        class Stream:
            breadth: int = 8

        @dataclass
        class Recipe:
            quanta: int
            stream: Stream

        class Net(Base):
            def __init__(self, spec):
                words, width = spec.quanta, spec.stream.breadth
                assert isinstance(spec, Recipe) and isinstance(spec.stream, Stream)
                self.fill(words, width)
    """,
    "options of the command line": """
        import argparse

        def get_args():
            parser = argparse.ArgumentParser()
            parser.add_argument("--quanta", type=int, default=21)
            parser.add_argument("--breadth", "-b", type=int, default=8)
            return parser.parse_args()

        class Net(Base):
            def __init__(self, options):
                words, width = options.quanta, options.breadth
                assert words == 21
                self.fill(words, width)
    """,
    "a value that a call elsewhere gives": """
        def other():
            return dict(quanta=21)

        class Net(Base):
            def __init__(self, recipe):
                words, width = recipe.quanta, recipe.breadth * 2
                assert words == 21
                self.fill(words, width)
    """,
    "a list that is counted": """
        class Net(Base):
            def __init__(self, levels, width=8):
                words = sum(levels) + len(levels)
                self.levels = [2 * n for n in levels]
                self.fill(words, width)
    """,
    "pairs in a list": """
        class Net(Base):
            def __init__(self, fields, width=8):
                words = 1 + max(low + high for low, high in fields)
                self.fill(words, width)
    """,
    "two sides of an image": """
        class Net(Base):
            def __init__(self, resolution, width=8):
                rows, columns = resolution
                words = rows * columns
                self.fill(words, width)
    """,
    "words": """
        class Net(Base):
            def __init__(self, itos, width=8):
                words = len(itos)
                self.index = {word: at for at, word in enumerate(itos)}
                assert len(self.index) == words > 9
                self.fill(words, width)
    """,
    "a vocabulary by its tokens": """
        class Net(Base):
            def __init__(self, stoi, width=8):
                words, self.pad = len(stoi), stoi["<pad>"]
                assert self.pad < words
                self.fill(words, width)
    """,
    "an option of an enumeration": """
        from enum import Enum, auto

        class Order(Enum):
            BEFORE = auto()
            AFTER = auto()

        class Net(Base):
            def __init__(self, where, width=8):
                if where is Order.BEFORE:
                    words = 4
                elif where is Order.AFTER:
                    words = 5
                self.fill(words, width)
    """,
    "a class of layers that it builds": """
        class Net(Base):
            def __init__(self, normaliser, mixer, words=9, width=8):
                self.fill(words, width)
                self.first, self.second = normaliser(width), mixer(width, width)
    """,
    "a function that it applies": """
        class Net(Base):
            def __init__(self, squash, words=9, width=8):
                self.fill(words, width)
                self.squash = squash

            def read(self, x):
                return self.squash(x)
    """,
    "words by keyword": """
        class Net(Base):
            def __init__(self, **kw):
                words, width = kw.pop("quanta"), kw.pop("breadth", 8)
                assert not kw
                self.fill(words, width)
    """,
    "a table that another part holds": """
        class Net(Base):
            def __init__(self, shared, words=37, width=32):
                self.fill(words, width)
                self.shared = shared

            def logits(self, x):
                return self.shared(x[..., 0].long()) @ self.shared.weight.T
    """,
    "settings that a part reads": """
        class Inner(nn.Module):
            def __init__(self, plan, at):
                super().__init__()
                self.gain, self.fc = plan.gains[at], nn.Linear(plan.breadth * 2, 2)

        class Net(Base):
            def __init__(self, plan):
                words, width = 9, plan.breadth
                self.fill(words, width)
                self.inner = nn.ModuleList([Inner(plan, at) for at in range(2)])
    """,
}


@pytest.mark.parametrize("style", STYLES)
def test_an_argument_is_made_by_how_it_is_used(made, style):
    found = made("Net", BASE + dedent(STYLES[style])).fresh()
    assert isinstance(found.table, nn.Embedding)


def test_a_name_does_not_win_over_what_is_done_with_it(made):
    """`alpha_bet` is no factor, `size` no number."""
    text = """
        class Net(nn.Module):
            def __init__(self, alpha_bet, size):
                super().__init__()
                self.fc = nn.Linear(len(alpha_bet), size[0] * size[1])
    """
    assert made("Net", text).fresh().fc.out_features == 32 * 32


def test_the_settings_of_a_file_near_by_come_before_guesses(made):
    text = """
        class Net(nn.Module):
            def __init__(self, config):
                super().__init__()
                self.fc = nn.Linear(config.quanta, config.breadth)
    """
    assert made("Net", text, {"net.json": '{"quanta": 11, "breadth": 3}'}).fresh().fc.in_features == 11


def test_a_class_that_reads_a_file_is_not_made(made):
    text = """
        class Words:
            def __init__(self, path="words.txt"):
                raise AssertionError(open(path).read())

            def __len__(self):
                return 5

        class Net(nn.Module):
            def __init__(self, words):
                super().__init__()
                self.fc = nn.Linear(len(words), 3)
    """
    assert made("Net", text).fresh().fc.in_features > 1
