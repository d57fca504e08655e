"""Rows of several documents: what a model is told of them, and which words see each other."""

import pytest

torch = pytest.importorskip("torch")

from wholes import Whole  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.whole.model import whole_model  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

PACKED = '''
import torch
from torch import nn

class Packed(nn.Module):
    """A causal language model of packed rows."""
    def __init__(self, vocab_size=31):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab_size, 8), nn.Embedding(16, 8)
        self.block = nn.TransformerEncoderLayer(8, 1, 16, 0.0, batch_first=True)
        self.head = nn.Linear(8, vocab_size)
    def forward(self, ids, doc_ids=None):
        hidden = torch.ones(ids.shape[1], ids.shape[1]).triu(1).bool()
        if doc_ids is not None:
            hidden = hidden | (doc_ids.unsqueeze(1) != doc_ids.unsqueeze(2))
        return self.head(self.block(self.wte(ids) + self.wpe(torch.arange(ids.shape[1])), hidden))
'''
UNTOLD = "hidden = hidden | (doc_ids.unsqueeze(1) != doc_ids.unsqueeze(2))"


@pytest.mark.parametrize(
    ("right", "wrong", "verdict", "seen"),
    [
        ("", "", "PASS", ""),
        ("hidden | (doc", "hidden & (doc", "FAIL", "words of another document"),
        ("hidden | (doc", "(doc", "FAIL", "later words of its own document"),
        (UNTOLD, "hidden = hidden | (doc_ids == 0).any()", "NOT_PROVIDED", ""),
    ],
)
def test_documents_of_one_row_are_kept_apart(right, wrong, verdict, seen, made):
    implementation = Whole(whole_model(made("Packed", PACKED.replace(right, wrong))))
    found = run_check(CHECKS["documents-of-one-row-are-apart"], implementation, "quick")
    assert found.verdict.name == verdict, found.message
    assert verdict != "FAIL" or (seen in found.diagnosis and "doc_ids.unsqueeze(1)" in found.place)


COUNTED = """
        idx = torch.arange(ids.shape[1]).expand(ids.shape)
        begins = doc_ids.diff(prepend=doc_ids[:, :1]) != 0 if doc_ids is not None else torch.zeros_like(ids).bool()
        places = idx - (idx * begins).cummax(1).values
        return self.head(self.block(self.wte(ids) + self.wpe(places), hidden))
"""


@pytest.mark.parametrize(("axis", "verdict"), [("cummax(1)", "PASS"), ("cummax(0)", "FAIL")])
def test_places_in_documents_are_counted_in_each_row(axis, verdict, made):
    text = PACKED.rpartition("        return")[0] + COUNTED.lstrip("\n").replace("cummax(1)", axis)
    found = run_check(CHECKS["documents-of-one-row-are-apart"], Whole(whole_model(made("Packed", text))), "quick")
    assert found.verdict.name == verdict, found.message
    assert verdict == "PASS" or "another row" in found.diagnosis


def test_what_is_called_the_same_by_order_lets_documents_see_each_other(made):
    text = PACKED.replace(UNTOLD, "same = doc_ids[:, :, None] >= doc_ids[:, None, :]; hidden = hidden | ~same")
    found = run_check(CHECKS["documents-of-one-row-are-apart"], Whole(whole_model(made("Packed", text))), "quick")
    assert found.verdict.name == "FAIL"
    assert "words of another document" in found.diagnosis
