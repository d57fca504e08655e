"""What the text of a model's file shows: of what runs, and of what stands beside it that is no module of its own."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from wholes import Whole

import conformance.checks  # noqa: F401
from conformance.adapters.whole.model import whole_model
from conformance.check import CHECKS
from conformance.runner import run_check

MODEL = """
class Reader(nn.Module):
    def __init__(self, vocab_size=30):
        super().__init__()
        self.table, self.norm, self.head = nn.Embedding(vocab_size, 8), nn.LayerNorm(8), nn.Linear(8, 5)

    def number(self, word):
        return {own}

    def forward(self, input_ids):
        return self.head(self.norm(self.table(input_ids)).mean(1))


{beside}
"""
HASHED = "hash(word) % 30"


@pytest.mark.parametrize(
    ("own", "beside", "verdict"),
    [
        (HASHED, "", "FAIL"),
        ("len(word)", f"def number(word):\n    return {HASHED}", "FAIL"),
        ("len(word)", f"class Words:\n    def number(self, word):\n        return {HASHED}", "FAIL"),
        ("len(word)", f"class Other(nn.Module):\n    def number(self, word):\n        return {HASHED}", "PASS"),
        ("len(word)", "", "PASS"),
    ],
)
def test_of_modules_only_those_that_run_are_told(made, own, beside, verdict):
    whole = Whole(whole_model(made("Reader", MODEL.format(own=own, beside=beside))))
    found = run_check(CHECKS["results-stay-the-same-in-every-process"], whole, "quick")
    assert found.verdict.name == verdict
