"""A mistake behind an option that is not the default is found, and what the option is for is left alone."""

import pytest

pytest.importorskip("torch")

import torch

import conformance.checks  # noqa: F401
from conformance.adapters import resolve
from conformance.adapters.whole.copying import in_dtype
from conformance.adapters.whole.hypotheses import Hypothesis, hypotheses
from conformance.check import CHECKS
from conformance.runner import run_check
from conformance.verdict import Verdict

TAGGED = '''
import argparse
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--norm", choices=["none", "layer"], default="layer")

class Encoder(nn.Module):
    """A sentence (B, T) of words, 0 is padding, as a vector of 7 numbers (B, 7)."""

    def __init__(self, vocab=23, width=16, pool="mean", causal=False, act="gelu"):
        super().__init__()
        self.pool, self.pad_id = pool, 0
        assert pool in ("mean", "max", "first"), pool
        self.table = nn.Embedding(vocab, width)
        layer = nn.TransformerEncoderLayer(width, 2, 24, 0.0, act, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 7)

    def forward(self, ids):
        pad = ids == self.pad_id
        x = self.layers(self.table(ids), src_key_padding_mask=pad)
        if self.pool == "first":
            return self.head(x[:, 0])
        if self.pool == "max":
            return self.head(x{masked}.amax(1))
        keep = (~pad).unsqueeze(-1).to(x.dtype)
        return self.head((x * keep).sum(1) / keep.sum(1))
'''
PADDING = CHECKS["classifier-padding-changes-nothing"]


def pointed(tmp_path, masked):
    path = tmp_path / f"encoder{len(masked)}.py"
    path.write_text(TAGGED.replace("{masked}", masked), encoding="utf-8")
    return resolve(f"{path}:Encoder")


def test_other_texts_that_an_option_is_compared_with_are_tried(tmp_path):
    right = pointed(tmp_path, ".masked_fill(pad.unsqueeze(-1), -1e9)")
    assert [option for option, _ in right.variants()] == ["pool='max'", "pool='first'"]
    assert run_check(PADDING, right, "quick").verdict is Verdict.PASS


def test_a_mistake_behind_an_option_says_which(tmp_path):
    found = run_check(PADDING, pointed(tmp_path, ""), "quick")
    assert found.verdict is Verdict.FAIL
    assert found.diagnosis.startswith("With pool='max': Padding changes the answer")


def test_complex_tables_stay_complex_in_another_dtype():
    part = torch.nn.Module()
    part.register_buffer("turns", torch.polar(torch.ones(3), torch.arange(3.0)))
    imaginary = part.turns.imag.clone()
    assert torch.equal(in_dtype(part, torch.float64).turns.imag.float(), imaginary)
    assert part.turns.dtype is torch.complex128


@pytest.mark.parametrize(
    "returned",
    [
        [([5, 6], -1.5), ([7], -2.0)],
        [{"tokens": torch.tensor([5, 6]), "score": torch.tensor(-1.5)}, {"tokens": torch.tensor([7]), "score": -2.0}],
        ([[5, 6], [7]], [-1.5, -2.0]),
    ],
)
def test_sentences_with_scores_are_read_in_the_forms_in_use(returned):
    assert hypotheses(returned) == [Hypothesis([5, 6], -1.5), Hypothesis([7], -2.0)]


@pytest.mark.parametrize("returned", [torch.tensor([[1, 2]]), [1, 2], ([1, 2], [3, 4]), None, [(1.0, 2.0)]])
def test_what_has_no_scores_is_no_hypothesis(returned):
    assert hypotheses(returned) == []
