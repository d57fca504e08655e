"""Slips that a file's text shows by itself: lengths that multiply, ends that are never taught, terms of one score,
grids, sides of boxes, first pieces of words. Told, and nothing near them."""

from __future__ import annotations

import pytest
from rules_of_text import told

from conformance.slips.axes import GRIDS, OTHER_AXIS, SIDES
from conformance.slips.beams import LENGTHS
from conformance.slips.data import LAST_WORDS
from conformance.slips.orders import PIECES, SLOTS_LEFT_OUT
from conformance.slips.results import NOUGHT, TERMS

PENALTY = "def length_penalty(n, alpha):\n    return ((5 + n) / 6) ** alpha\n\n\ndef finish(score, n):\n    return "
TWO = "def scores_of(q, k, r, scale):\n    ac = torch.einsum('bid,bjd->bij', q, k)\n    bd = q @ r.T\n    return "


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        (PENALTY + "score * length_penalty(n, 0.6)", True),
        (PENALTY + "score / length_penalty(n, 0.6)", False),
        (PENALTY + "n * length_penalty(n, 0.6)", False),
        ("def rank(score, tokens):\n    return score * len(tokens) ** 0.7", True),
        ("def rank(score, tokens):\n    return score * len(tokens) ** -0.7", False),
        ("def rank(score, tokens):\n    return score * (1 / len(tokens)) ** 0.7", False),
    ],
)
def test_scores_are_divided_by_their_length(text, is_told):
    assert bool(told(LENGTHS, text)) == is_told


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        ("labels[labels == EOS] = -100", True),
        ("targets = targets.masked_fill(targets == cfg.eod_id, IGNORE_INDEX)", True),
        ("labels[labels == pad_id] = -100", False),
        ("labels[inputs == EOS] = -100", False),  # what follows an end
        ("labels[labels == EOS] = 5", False),
        ("seen[seen == EOS] = -100", False),
    ],
)
def test_ends_are_taught(line, is_told):
    assert bool(told(LAST_WORDS, f"def prepare(labels, targets, inputs, seen):\n    {line}")) == is_told


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        ("ac * scale + bd", True),
        ("ac / math.sqrt(d) + shift(bd)", True),
        ("bd + scale * ac", True),
        ("(ac + bd) * scale", False),
        ("ac * scale + bd * scale", False),
        ("ac * scale + bias", False),  # a learned bias is no product
        ("ac * share + bd", False),
    ],
)
def test_terms_of_a_score_have_one_scale(line, is_told):
    assert bool(told(TERMS, TWO + line)) == is_told


def test_queries_that_are_scaled_first_are_another_matter():
    assert not told(TERMS, TWO.replace("\n", "\n    q = q * scale\n", 1) + "ac * scale + bd")


@pytest.mark.parametrize(
    ("fill", "is_told"), [("1e-9", True), ("0.0", True), ("-1e9", False), ("1e4", False), ("False", False)]
)
def test_hidden_scores_are_low_in_a_branch_too(fill, is_told):
    text = f"def f(sim, pad, v):\n    if pad is not None:\n        sim = sim.masked_fill(pad, {fill})\n"
    assert bool(told(NOUGHT, f"{text}    return sim.softmax(-1) @ v")) == is_told


@pytest.mark.parametrize(
    ("places", "is_told"),
    [
        ("b h w d -> b (w h) d", True),
        ("b h w d -> b (h w) d", False),
        ("b h w d -> (b w) h d", False),  # along an axis
        ("b w h d -> b (w h) d", False),  # its axes stand so
    ],
)
def test_a_grid_is_laid_out_in_one_order(places, is_told):
    text = f"def f(x, p):\n    return rearrange(x, 'b d h w -> b (h w) d') + rearrange(p, '{places}')"
    assert bool(told(GRIDS, text)) == is_told


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("boxes * torch.tensor([height, width, height, width])", True),
        ("boxes / torch.stack([img_h, img_w, img_h, img_w], -1)[:, None]", True),
        ("boxes * torch.tensor([width, height, width, height])", False),
        ("sizes * torch.tensor([height, width, height, width])", False),
        ("boxes * torch.tensor([height, width, height, width]), 'yxyx'", False),
    ],
)
def test_boxes_are_scaled_by_their_own_sides(text, is_told):
    assert bool(told(SIDES, f"def f(boxes, sizes):\n    return {text}")) == is_told


@pytest.mark.parametrize(
    ("body", "is_told"),
    [
        ("ids.extend(word)\n        starts.append(len(ids))", True),
        ("ids += word\n        first_pieces.append(len(ids))", True),
        ("starts.append(len(ids))\n        ids.extend(word)", False),
        ("ids.extend(word)\n        ends.append(len(ids))", False),
        ("ids.extend(word)\n        starts.append(len(rows))", False),
    ],
)
def test_a_word_starts_at_its_first_piece(body, is_told):
    lists = "ids, rows, starts, first_pieces, ends = [], [], [], [], []"
    assert bool(told(PIECES, f"def f(words):\n    {lists}\n    for word in words:\n        {body}")) == is_told


def test_any_owner_of_a_list_is_read():
    assert not told(PIECES, "def f(kept, l, d, x):\n    kept[l-d].extend(x)\n    kept['[l-d'].append(len(x))")


def test_boundaries_begin_with_nought():
    body = "ids.extend(word)\n        starts.append(len(ids))"
    assert not told(PIECES, f"def f(words):\n    ids = []\n    starts = [0]\n    for word in words:\n        {body}")


POOLED = """
def pool(seeds, keys, values):
    {made}
    return torch.einsum("{pattern}", weights, values)
"""
SCORES = 'scores = torch.einsum("shd,bnhd->bshn", seeds, keys)'


@pytest.mark.parametrize(
    ("given", "pattern", "is_told"),
    [
        ("torch.softmax(scores, dim=1)", "bshn,bnhd->bshd", True),
        ("drop(scores.softmax(1))", "bshn,bnhd->bshd", True),
        ("torch.softmax(scores, dim=-1)", "bshn,bnhd->bshd", False),
        ("scores.softmax(3)", "bshn,bnhd->bshd", False),
        ("torch.softmax(scores, dim=1)", "bshn,bnhd->bnhd", False),  # the seeds are summed
        ("torch.sigmoid(scores)", "bshn,bnhd->bshd", False),
    ],
)
def test_weights_sum_to_one_over_what_they_sum(given, pattern, is_told):
    text = POOLED.format(made=f"{SCORES}\n    weights = {given}", pattern=pattern)
    assert bool(told(OTHER_AXIS, text)) == is_told
    assert bool(told(OTHER_AXIS, text.replace("return", "weights = self.dropout(weights)\n    return"))) == is_told
    assert not told(OTHER_AXIS, text.replace("seeds", "slots"))
    assert not told(OTHER_AXIS, text.replace("return", "weights = weights / weights.sum(-1)\n    return"))


COLUMNS = """
def __init__(self, cardinalities, width):
    sizes = torch.tensor([c + 1 for c in cardinalities])
    counts = torch.tensor({counts})
    self.offsets = torch.cumsum(counts, 0) - counts
    self.table = nn.Embedding(int({rows}), width)
"""


@pytest.mark.parametrize(
    ("counts", "rows", "is_told"),
    [
        ("cardinalities", "sizes.sum()", True),
        ("cardinalities", "sum(cardinalities) + len(cardinalities)", True),
        ("[c + 1 for c in cardinalities]", "sizes.sum()", False),
        ("cardinalities", "sum(cardinalities)", False),
    ],
)
def test_columns_of_a_table_share_no_rows(counts, rows, is_told):
    assert bool(told(SLOTS_LEFT_OUT, COLUMNS.format(counts=counts, rows=rows))) == is_told
