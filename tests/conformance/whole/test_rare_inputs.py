"""Right models that need data of their own kind: gaps in tables, frames that strides cut off, few words and padding
positions. None of it is a mistake of theirs."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from wholes import Whole  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.whole.model import whole_model  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

HEAD = """
import torch.nn.functional as F

def stack(width=8):
    layer = nn.TransformerEncoderLayer(width, 2, 16, 0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
"""


@pytest.fixture
def verdict(made: Callable[..., Any]) -> Callable[..., str]:
    """verdict("Net", "class Net...", claim): what is said of the model that is made of a class of this text."""

    def said(name: str, text: str, claim: str) -> str:
        model = whole_model(made(name, HEAD + dedent(text)))
        return run_check(CHECKS[claim], Whole(model), "quick").verdict.name

    return said


TABLE = """
    class Rows(nn.Module):
        def __init__(self, columns=5):
            super().__init__()
            self.slope, self.lacking = nn.Parameter(torch.ones(columns, 8)), nn.Parameter(torch.ones(columns, 8))
            self.stack, self.answer = stack(), nn.Linear(8, 3)

        def forward(self, table):
            # table (B, columns): floats
            empty = torch.isnan(table)
            x = table.nan_to_num()[..., None] * self.slope + torch.where(GAP, self.lacking, torch.zeros(()))
            return self.answer(self.stack(x).mean(1))
"""


@pytest.mark.parametrize(("gap", "said"), [("empty[..., None]", "PASS"), ("torch.tensor(False)", "FAIL")])
def test_what_stands_for_missing_numbers_is_learnt_where_they_are_missing(verdict, gap, said):
    claim = "model-every-parameter-gets-a-gradient"
    assert verdict("Rows", TABLE.replace("GAP", gap), claim) == said


SPEECH = """
    class Speech(nn.Module):
        def __init__(self, bins=20, letters=12):
            super().__init__()
            self.first, self.second = nn.Conv1d(bins, 8, 3, 2), nn.Conv1d(8, 8, 3, 2)
            self.stack, self.letters = stack(), nn.Linear(8, letters)

        def forward(self, frames, lengths):
            x = self.second(self.first(frames.transpose(1, 2)).relu()).transpose(1, 2)
            rows = ((lengths - 1) // 2 - 1) // 2
            hidden = torch.arange(x.size(1)) >= rows[:, None]
            return self.letters(self.stack(SEEN, src_key_padding_mask=hidden)).log_softmax(-1), rows

        @torch.no_grad()
        def greedy_text(self, frames, lengths):
            scores, rows = self(frames, lengths)
            paths = [torch.unique_consecutive(one[:n].argmax(-1)) for one, n in zip(scores, rows)]
            return [path[path != 0].tolist() for path in paths]
"""


@pytest.mark.parametrize(
    "claim", ["encoder-every-word-reaches-every-word", "ctc-text-merges-repeats-then-drops-blanks"]
)
def test_frames_that_fill_no_window_of_a_convolution_are_no_mistake(verdict, claim):
    assert verdict("Speech", SPEECH.replace("SEEN", "x"), claim) == "PASS"


ACTOR = """
    class Actor(nn.Module):
        def __init__(self, actions=6):
            super().__init__()
            self.start, self.stack, self.out = nn.Linear(4, 8), stack(), nn.Linear(8, actions)

        def forward(self, states):
            return self.out(self.stack(self.start(states)))

        @torch.no_grad()
        def predict_action(self, states):
            return self(states)[:, -1].softmax(-1).argmax(-1)
"""


def test_who_predicts_an_action_writes_no_text(verdict):
    assert verdict("Actor", ACTOR, "ctc-text-merges-repeats-then-drops-blanks") == "NOT_PROVIDED"


CHANNELS_FIRST = """
    class Sensors(nn.Module):
        def __init__(self, channels=20):
            super().__init__()
            self.first, self.stack, self.out = nn.Conv1d(channels, 8, 3, padding=1), stack(), nn.Linear(8, 5)

        def forward(self, signal):
            x = self.first(signal).transpose(1, 2)
            return self.out(SEEN)
"""


@pytest.mark.parametrize(("seen", "said"), [("self.stack(x)", "PASS"), ("x", "NOTE")])
def test_frames_behind_their_channels_are_frames(verdict, seen, said):
    assert verdict("Sensors", CHANNELS_FIRST.replace("SEEN", seen), "encoder-every-word-reaches-every-word") == said


def test_halves_of_an_even_length_are_taken(made):
    from conformance.adapters.whole.model import part

    text = """
        class Gate(nn.Module):
            def forward(self, x):
                values, gates = x.chunk(2, 1)
                return values * gates.sigmoid()
    """
    assert not part(made("Gate", text)).tokens_compete


def test_frames_that_a_function_cuts_at_zero_are_seen_in_other_data(verdict):
    """One channel and a function that is zero for half of all numbers: some frames of some data reach nothing."""
    text = SPEECH.replace("SEEN", "x").replace(
        "bins, 8, 3, 2), nn.Conv1d(8, 8, 3, 2)", "bins, 1, 3, 2), nn.Conv1d(1, 8, 3, 2)"
    )
    assert verdict("Speech", text, "encoder-every-word-reaches-every-word") == "PASS"


def test_rows_that_are_hidden_from_the_others_are_one(verdict):
    hidden = "torch.cat([x[:, :4], 0 * x[:, 4:7], x[:, 7:]], 1)"
    assert verdict("Speech", SPEECH.replace("SEEN", hidden), "encoder-every-word-reaches-every-word") == "FAIL"


def test_numbers_of_positions_are_not_taken_for_words(verdict):
    """The vocabulary is so small that positions, counted from behind the padding's number, are words, too."""
    text = """
        class WordsMLM(nn.Module):
            def __init__(self, vocab_size=30, pad_id=1):
                super().__init__()
                self.pad_id = pad_id
                self.words, self.places = nn.Embedding(vocab_size, 8), nn.Embedding(32, 8)
                self.stack, self.head = stack(), nn.Linear(8, vocab_size)

            def forward(self, ids, labels=None):
                real = ids != self.pad_id
                x = self.words(ids) + self.places(real.cumsum(1) * real + self.pad_id)
                logits = self.head(self.stack(x, src_key_padding_mask=~real))
                if labels is None:
                    return logits
                return logits, F.cross_entropy(logits.transpose(1, 2), labels)
    """
    assert verdict("WordsMLM", text, "losses-teach-the-next-word") == "PASS"
