"""Steps in time: returns to go, the return that is wanted, the newest of a history, by their text."""

from __future__ import annotations

import pytest
from rules_of_text import told

from conformance.slips import steps as slips


@pytest.mark.parametrize(
    ("made", "is_told"),
    [
        ("returns_to_go(t.rewards[start:stop])", True),
        ("discount_cumsum(rewards[i : i + k], gamma)", True),
        ("returns_to_go(t.rewards)[start:stop]", False),
        ("discount_cumsum(rewards[i:], gamma)[:k]", False),
        ("returns_to_go(lengths[start:stop])", False),
        ("mean(rewards[start:stop])", False),
    ],
)
def test_returns_reach_the_end(made, is_told):
    assert bool(told(slips.WINDOWED, f"rtg = {made}")) == is_told


@pytest.mark.parametrize(
    ("made", "is_told"),
    [
        ("torch.cat((returns, returns[:1] - reward))", True),
        ("torch.cat([returns, returns[:, :1] - reward / scale], 1)", True),
        ("torch.cat((returns, returns[-1:] - reward))", False),
        ("torch.cat([returns, returns[:, -1:] - reward / scale], 1)", False),
        ("torch.cat((returns, target[:1] - achieved))", False),
    ],
)
def test_a_wanted_return_falls(made, is_told):
    assert bool(told(slips.COUNTED_DOWN, f"for t in range(9):\n    returns = {made}")) == is_told


@pytest.mark.parametrize(
    ("filled", "last", "is_told"),
    [
        ("pad_left", "(items != PAD).sum(dim=1) - 1", True),
        ("left_pad", "(items != 0).sum(1) - 1", True),
        ("pad_right", "(items != PAD).sum(dim=1) - 1", False),
        ("pad_left", "items.size(1) - 1", False),
    ],
)
def test_the_newest_of_a_history_is_its_last(filled, last, is_told):
    text = f"def {filled}(rows):\n    return rows\n\n\ndef newest(items):\n    last = {last}\n    return last\n"
    assert bool(told(slips.NEWEST_PLACE, text)) == is_told
