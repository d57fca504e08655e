"""Causal masks that are made the other way round than attention reads them, by their text."""

from __future__ import annotations

import pytest
from rules_of_text import told

from conformance.slips import futures as slips

FILE = """
def causal_mask(size):
    ahead = {ahead}
    return {given}


class Attention(nn.Module):
    def forward(self, scores, mask):
        return scores.masked_fill({asked}, {filled}).softmax(-1)
"""
AHEAD, BEHIND = "torch.triu(torch.ones(size, size), diagonal=1)", "torch.tril(torch.ones(size, size))"


@pytest.mark.parametrize(
    ("ahead", "given", "asked", "is_told"),
    [
        (AHEAD, "ahead.bool()", "mask == 0", True),
        (AHEAD, "ahead == 0", "mask == 0", False),
        (AHEAD, "~ahead.bool()", "mask == 0", False),
        (AHEAD, "1 - ahead", "~mask", False),
        (AHEAD, "ahead.bool()", "mask", False),
        (AHEAD, "ahead == 0", "mask.bool()", True),
        (BEHIND, "ahead", "mask == 0", False),
        (BEHIND, "ahead.bool()", "mask", True),
        (BEHIND, "ahead == 0", "mask", False),
    ],
)
def test_a_causal_mask_is_made_as_it_is_read(ahead, given, asked, is_told):
    for filled in ("float('-inf')", "-1e9"):
        text = FILE.format(ahead=ahead, given=given, asked=asked, filled=filled)
        assert bool(told(slips.SHOWN, text)) == is_told


def test_a_mask_that_is_turned_on_its_way_may_be_made_either_way():
    text = FILE.format(ahead=AHEAD, given="ahead.bool()", asked="mask == 0", filled="-1e9")
    assert told(slips.SHOWN, text)
    assert not told(
        slips.SHOWN, f"{text}\n\ndef run(model, x):\n    mask = ~causal_mask(9)\n    return model(x, mask)\n"
    )


def test_attention_of_torch_has_conventions_of_its_own():
    text = FILE.format(ahead=AHEAD, given="ahead.bool()", asked="mask == 0", filled="-1e9")
    assert not told(slips.SHOWN, f"{text}\nattention = nn.MultiheadAttention(8, 2)\n")
