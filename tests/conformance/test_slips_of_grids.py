"""Grids, rows folded into the batch, spans and runs, by the text of a file: what is told, and what is right."""

from __future__ import annotations

import pytest
from rules_of_text import told

from conformance.slips import axes
from conformance.slips import grids as slips


@pytest.mark.parametrize(("last", "is_told"), [("x[:, 0::2, 1::2]", True), ("x[:, 1::2, 1::2]", False)])
def test_four_neighbours_are_merged(last, is_told):
    text = f"""
    def merged(x):
        a, b, c = x[:, 0::2, 0::2], x[:, 1::2, 0::2], x[:, 0::2, 1::2]
        d = {last}
        return torch.cat([a, b, c, d], -1)
    """
    assert bool(told(slips.TWICE, text)) == is_told


@pytest.mark.parametrize(
    ("first", "second", "is_told"),
    [
        ("torch.roll(x, shifts=(-s, -s), dims=(1, 2))", "torch.roll(x, shifts=(-s, -s), dims=(1, 2))", True),
        ("torch.roll(x, shifts=(-s, -s), dims=(1, 2))", "torch.roll(x, shifts=(s, s), dims=(1, 2))", False),
        ("torch.roll(x, 1, 0)", "torch.roll(x, 1, 0)", False),
    ],
)
def test_a_shift_is_undone(first, second, is_told):
    text = f"def mixed(x, s):\n    x = {first}\n    x = attend(x)\n    x = {second}\n    return x\n"
    assert bool(told(slips.SHIFTED_TWICE, text)) == is_told


def test_two_things_that_are_shifted_alike_are_two():
    text = "def kept(k, v):\n    k = torch.roll(k, -1, dims=2)\n    v = torch.roll(v, -1, dims=2)\n    return k, v\n"
    assert not told(slips.SHIFTED_TWICE, text)


@pytest.mark.parametrize(
    ("folded", "mask", "is_told"),
    [
        ("x.permute(0, 2, 1, 3).reshape(b * c, t, d)", "step_mask.repeat(c, 1)", True),
        ("x.permute(0, 2, 1, 3).reshape(b * c, t, d)", "step_mask.repeat_interleave(c, dim=0)", False),
        ("x.permute(2, 0, 1, 3).reshape(c * b, t, d)", "step_mask.repeat(c, 1)", False),
    ],
)
def test_masks_are_repeated_as_rows_are_folded(folded, mask, is_told):
    text = f"def axial(x, step_mask):\n    b, t, c, d = x.shape\n    return attend({folded}, {mask})\n"
    assert bool(told(slips.MASKS_IN_ANOTHER_ORDER, text)) == is_told


@pytest.mark.parametrize(
    ("flat", "sizes", "is_told"),
    [
        ("ids.flatten(0, 1)", "candidates, queries", True),
        ("ids.view(queries * candidates, -1)", "candidates, queries", True),
        ("ids.flatten(0, 1)", "queries, candidates", False),
        ("ids.transpose(0, 1)", "candidates, queries", False),
    ],
)
def test_answers_are_grouped_as_rows_were_flattened(flat, sizes, is_told):
    text = f"def lists(ids):\n    queries, candidates, _ = ids.shape\n    return score({flat}).view({sizes})\n"
    assert bool(told(slips.REGROUPED, text)) == is_told


@pytest.mark.parametrize(
    ("allowed", "is_told"),
    [("ones.tril(most - 1)", True), ("ones.triu().tril(most - 1)", False), ("ones.tril(most) & (j >= i)", False)],
)
def test_spans_end_behind_their_start(allowed, is_told):
    text = f"""
    def best(start_logits, end_logits, ones, most, i, j):
        scores = start_logits[:, :, None] + end_logits[:, None, :]
        return scores.masked_fill(~({allowed}), -1e9)
    """
    assert bool(told(slips.BEHIND, text)) == is_told


@pytest.mark.parametrize(
    ("scores", "labels", "is_told"),
    [
        ("start_logits", "end_positions", True),
        ("end_logits", "start_positions", True),
        ("end_logits", "end_positions", False),
        ("start_logits", "start_positions", False),
        ("logits", "end_positions", False),
        ("pending_logits", "start_positions", False),
    ],
)
def test_sides_have_their_own_labels(scores, labels, is_told):
    assert bool(told(slips.SIDES_EXCHANGED, f"loss = F.cross_entropy({scores}, {labels})\n")) == is_told


@pytest.mark.parametrize(
    ("sides", "ends", "is_told"),
    [("(1, 0)", "(edges == -1)", True), ("(0, 1)", "(edges == -1)", True), ("(1, 1)", "(edges == -1)", False)],
)
def test_runs_reach_both_edges(sides, ends, is_told):
    text = f"""
    def runs(labels):
        padded = F.pad(labels.long(), {sides})
        edges = padded[1:] - padded[:-1]
        return (edges == 1).nonzero(), {ends}.nonzero()
    """
    assert bool(told(slips.ONE_SIDE, text)) == is_told
    assert not told(slips.ONE_SIDE, text.replace(f", {ends}.nonzero()", ""))  # only where they begin


@pytest.mark.parametrize(
    ("given", "is_told"),
    [
        ("self.norm_time(x).reshape(b * c, t, d)", True),
        ("self.norm_time(x).permute(0, 2, 1, 3).reshape(b * c, t, d)", False),
        ("self.mix(x).reshape(b * c, t, d)", False),  # it may turn axes
    ],
)
def test_a_norm_leaves_axes_where_they_are(given, is_told):
    text = f"def forward(self, x):\n    b, t, c, d = x.shape\n    h = {given}\n    return h\n"
    assert bool(told(axes.AXES, text)) == is_told
