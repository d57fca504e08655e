"""Models whose places are counted from the end, and that say that padding stands in front; heads that read padding."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from wholes import told

import conformance.checks  # noqa: F401
from conformance.adapters import Specification
from conformance.adapters.whole import pads
from conformance.adapters.whole.implementation import PointedImplementation
from conformance.check import CHECKS
from conformance.mutants.source import BERT
from conformance.runner import run_check
from conformance.verdict import Verdict

PADDING, PREFIX = "language-model-padding-changes-nothing", "language-model-prefix-has-the-same-logits"
WORDS = {
    "Sessions are padded on the LEFT, newest click last.": True,
    'tokenizer(text, padding_side="left")': True,
    "left-padded rows": True,
    "def pad_left(seq, length):": True,
    "row = [0] * (longest - len(row)) + row": True,
    "rows.append([pad_id] * missing + row)": True,
    "types = [0] * (len(a) + 2) + [1] * len(b)": False,
    "row = row + [0] * (longest - len(row))": False,
    "zeros are put at the front: pads come from the left": True,
    "Sentences are padded on the right.": False,
    "what is left of the padding": False,
    "the last layer": False,
}


class CausalFromTheEnd(nn.Module):
    """Places are looked up."""

    queries = 1

    def __init__(self, vocab_size=30, width=16, longest=12):
        super().__init__()
        self.longest = longest
        self.tok, self.pos = nn.Embedding(vocab_size, width, padding_idx=0), nn.Embedding(longest, width)
        self.qkv, self.head = nn.Linear(width, 3 * width), nn.Linear(width, vocab_size)

    def places(self, length):
        return torch.arange(self.longest - length, self.longest)

    def forward(self, ids):
        length = ids.shape[1]
        x = self.tok(ids) + self.pos(self.places(length))
        seen = torch.ones(length, length, dtype=torch.bool).tril() & (ids != 0).unsqueeze(self.queries)
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = (q @ k.transpose(1, 2) / 4).masked_fill(~seen, -1e9)
        return self.head(x + F.softmax(scores, -1) @ v)


class CausalHidesQueries(CausalFromTheEnd):
    queries = 2


class CausalFromTheStart(CausalFromTheEnd):
    def places(self, length):
        return torch.arange(length)


def verdicts(cls, monkeypatch, says):
    monkeypatch.setattr(pads.PadProbes, "says_left", lambda subject: says)
    pointed = PointedImplementation(cls, Specification("", __name__, cls.__name__))
    return [run_check(CHECKS[claim], pointed).verdict for claim in (PADDING, PREFIX)]


@pytest.mark.parametrize(
    ("cls", "says", "expected"),
    [
        (CausalFromTheEnd, True, [Verdict.PASS, Verdict.NOTE]),
        (CausalFromTheEnd, False, [Verdict.FAIL, Verdict.FAIL]),
        (CausalHidesQueries, True, [Verdict.FAIL, Verdict.NOTE]),
        (CausalFromTheStart, True, [Verdict.PASS, Verdict.PASS]),
    ],
)
def test_padding_stands_in_front_where_places_are_counted_from_the_end(cls, says, expected, monkeypatch):
    assert verdicts(cls, monkeypatch, says) == expected


@pytest.mark.parametrize(("text", "in_front"), WORDS.items())
def test_words_say_on_which_side_padding_stands(text, in_front):
    assert bool(pads._ON_THE_LEFT.search(text)) is in_front


@pytest.mark.parametrize(("place", "expected"), [("0", "PASS"), ("-1", "FAIL")])
def test_a_head_beside_the_words_reads_no_place_of_padding(made, place, expected):
    head = f"        return scores, x[:, {place}, :2]  # as many columns as the batch has rows\n"
    changes = {"        return scores\n": head}
    assert told(made, BERT, "encoder-padding-changes-nothing", changes) == expected
