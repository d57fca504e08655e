"""Steps in time: returns to go, the newest of a history, rounds, windows and positions, by their text."""

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


ROLLED = """
def rolled(model, past, known, steps, horizon):
    for start in range(0, steps, horizon):
        past = torch.cat([past, model(past, {ahead})], 1)
    return past
"""


@pytest.mark.parametrize(
    ("ahead", "is_told"),
    [("known[:, :horizon]", True), ("known[:, start : start + horizon]", False), ("known[:, :9]", False)],
)
def test_each_round_reads_its_own_stretch(ahead, is_told):
    text = ROLLED.format(ahead=ahead)
    assert bool(told(slips.FROM_THE_BEGINNING, text)) == is_told
    shortened = text.replace("    return past", "        known = known[:, horizon:]\n    return past")
    assert not told(slips.FROM_THE_BEGINNING, shortened)


WINDOWS = """
def perplexity(model, ids, width, stride):
    total, count, scored_to = 0.0, 0, 0
    for begin in range(0, len(ids), stride):
        end = begin + width
        nll = losses(model, ids[begin:end])[-({new}):]
        total, count = total + nll.sum(), count + len(nll)
        {kept}
    return total / count
"""


@pytest.mark.parametrize(
    ("new", "kept", "is_told"),
    [
        ("end - begin", "scored_to = end", True),
        ("end - scored_to", "scored_to = end", False),
        ("end - begin", "pass", False),  # nothing shows that they overlap
    ],
)
def test_of_windows_that_overlap_what_is_new_counts(new, kept, is_told):
    assert bool(told(slips.COUNTED_AGAIN, WINDOWS.format(new=new, kept=kept))) == is_told


ROTATION = """
class Rotation(nn.Module):
    def __init__(self, factor):
        self.factor = {kept}

    def angles(self, length):
        t = {places}
        angles = torch.outer(t, self.inv_freq)
        return angles.{cosine}, angles.sin()
"""


@pytest.mark.parametrize(
    ("kept", "places", "cosine", "is_told"),
    [
        ("factor", "torch.arange(length).float() * self.factor", "cos()", True),
        ("factor", "torch.arange(length).float() / self.factor", "cos()", False),
        ("1.0 / factor", "torch.arange(length).float() * self.factor", "cos()", False),
        ("factor", "torch.arange(length) * self.step", "cos()", False),
        ("factor", "torch.arange(length) * self.factor", "tan()", False),
    ],
)
def test_a_factor_of_length_divides_positions(kept, places, cosine, is_told):
    text = ROTATION.format(kept=kept, places=places, cosine=cosine)
    assert bool(told(slips.STRETCHED, text)) == is_told


@pytest.mark.parametrize(
    ("history", "target", "is_told"),
    [
        ("s[:-1][:50]", "s[-1]", True),
        ("s[:-1][-50:]", "s[-1]", False),
        ("s[:-1][:50]", "s[0]", False),
        ("s[:50]", "s[-1]", False),
        ("s[:-1][:-1]", "s[-1]", False),
    ],
)
def test_the_last_steps_of_a_long_row_are_kept(history, target, is_told):
    text = f"def collate(batch):\n    return [({history}, {target}) for s in batch]\n"
    assert bool(told(slips.OLDEST_KEPT, text)) == is_told


WINDOW = """
def window(x, calendar, at, context, horizon):
    past, future = slice(at - context, at), slice(at, at + horizon)
    return {{"past": x[past], "{name}": calendar[{place}], "y": x[future]}}
"""


@pytest.mark.parametrize(
    ("name", "place", "is_told"),
    [
        ("future_calendar", "past", True),
        ("future_calendar", "future", False),
        ("past_calendar", "past", False),
        ("ahead", "past:", False),  # behind the past
    ],
)
def test_the_future_is_taken_at_its_own_times(name, place, is_told):
    assert bool(told(slips.PAST_FOR_FUTURE, WINDOW.format(name=name, place=place))) == is_told


JOINED = """
def joined(windows, length, ramp):
    top, bottom = torch.zeros(length), torch.zeros(length)
    for a, window in windows:
        top[a : a + 8] += {added}
        bottom[a : a + 8] += {counted}
    return top / bottom
"""


@pytest.mark.parametrize(
    ("added", "counted", "is_told"),
    [
        ("ramp * window", "1", True),
        ("ramp * window", "ramp", False),
        ("window", "1", False),
        ("gain * x", "1", False),  # one number for all places
    ],
)
def test_weighted_windows_are_divided_by_their_weights(added, counted, is_told):
    assert bool(told(slips.PLAIN_COUNTS, JOINED.format(added=added, counted=counted))) == is_told
