"""Weights that parts share are those of parts of the model."""

from zlib import crc32

import pytest

torch = pytest.importorskip("torch")

from conformance.check import CHECKS  # noqa: E402
from conformance.mutants.source import GPT  # noqa: E402
from conformance.mutated import pointed_at  # noqa: E402
from conformance.runner import run_check  # noqa: E402

TIE = "self.head.weight = self.tokens.weight"


@pytest.mark.parametrize(
    ("line", "verdict"),
    [
        (TIE, "PASS"),
        ("self.head.weight = nn.Embedding(*self.tokens.weight.shape).weight", "FAIL"),
        ("self.tokens.weight = self.head.weight", "PASS"),
        # a part that is made anew and keeps the numbers of the one that it replaces
        ("old = self.tokens; self.tokens = nn.Embedding(*old.weight.shape); self.tokens.weight = old.weight", "PASS"),
        ("w = self.tokens.weight; self.tokens = nn.Embedding(*w.shape); self.tokens.weight = w", "PASS"),
        # a parameter of its own, which begins with the numbers of a table
        ("self.head.weight = nn.Parameter(nn.Embedding(*self.tokens.weight.shape).weight.detach())", "NOT_PROVIDED"),
        # a table that the model keeps without PyTorch's knowing
        ("self.kept = [nn.Embedding(*self.tokens.weight.shape)]; self.head.weight = self.kept[0].weight", "PASS"),
        ("pass", "NOT_PROVIDED"),
    ],
)
def test_a_tie_is_with_a_part_of_the_model(line, verdict):
    assert TIE in GPT.source
    subject = pointed_at(GPT, GPT.source.replace(TIE, line), f"ties_{crc32(line.encode())}.py")
    result = run_check(CHECKS["tied-weights-belong-to-two-parts"], subject, "quick")
    assert result.verdict.name == verdict
