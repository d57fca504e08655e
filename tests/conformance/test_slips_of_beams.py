"""Beam searches that forget the score so far are told, and right ones in many forms are not."""

from __future__ import annotations

import pytest
from rules_of_text import told

from conformance.slips import beams as slips


@pytest.mark.parametrize(
    ("name", "made", "is_told"),
    [
        ("beam_search", "[(lp, seq + [w]) for (score, seq) in live for lp, w in words(seq)]", True),
        ("beam_search", "[(score + lp, seq + [w]) for (score, seq) in live for lp, w in words(seq)]", False),
        ("beam_search", "[(lp, seq + [w]) for (score, seq) in live for lp, w in words(seq, score)]", False),
        ("greedy", "[(lp, seq + [w]) for (score, seq) in live for lp, w in words(seq)]", False),
        ("beam_search", "[(lp, seq) for (score, seq) in live for lp in worth(seq)]", False),  # scored anew
        ("beam_search", "[(worth(seq + [w]), seq + [w]) for (_, seq) in live for w in words(seq)]", False),
    ],
)
def test_a_beam_is_worth_all_its_words(name, made, is_told):
    assert bool(told(slips.SCORES, f"def {name}(live, words, worth):\n    return {made}")) == is_told


SEARCH = """
def beam_search(model, k):
    beams, scores = torch.ones(1, 1), torch.zeros(1)
    for _ in range(9):
        logs = model(beams)[:, -1].log_softmax(-1)
        {ranked}
        scores, best = total.view(-1).topk(k)
        beams = grown(beams, best)
    return beams[scores.argmax()]
"""


@pytest.mark.parametrize(
    ("ranked", "is_told"),
    [
        ("total = logs", True),
        ("total = scores.unsqueeze(1) + logs", False),
        ("logs += scores[:, None]; total = logs", False),
        ("logs.add_(scores[:, None]); total = logs", False),
    ],
)
def test_a_search_that_keeps_scores_ranks_by_them(ranked, is_told):
    assert bool(told(slips.SCORES, SEARCH.format(ranked=ranked))) == is_told


@pytest.mark.parametrize(
    ("ranked", "is_told"),
    [
        ("total = logs", True),
        ("total = logs + torch.tensor([s for _, s in alive])[:, None]", False),
    ],
)
def test_a_search_over_pairs_reads_their_scores(ranked, is_told):
    text = f"""
def beam_search(model, k):
    alive = [([1], 0.0)]
    for _ in range(9):
        logs = model([ids for ids, _ in alive])
        {ranked}
        value, best = total.view(-1).topk(k)
        alive = grown(alive, value, best)
    return alive
"""
    assert bool(told(slips.SCORES, text)) == is_told


@pytest.mark.parametrize(("ranked", "is_told"), [("total = logs", True), ("total = scores[:, None] + logs", False)])
def test_a_search_in_a_block_of_its_own_is_read_too(ranked, is_told):
    lines = SEARCH.format(ranked=ranked).strip().splitlines()
    inner = "\n".join(f"    {line}" for line in lines[1:])
    assert bool(told(slips.SCORES, f"{lines[0]}\n    with evaluating(model):\n{inner}")) == is_told


COPIES = """
def search(model, start, width, steps):
    tokens = torch.full((width, 1), start)
    scores = torch.zeros(width)
    {before}
    for step in range(steps):
        total = scores.unsqueeze(1) + model(tokens){first}
        scores, flat = total.view(-1).topk(width)
        tokens = torch.cat([tokens[flat // total.size(1)], (flat % total.size(1))[:, None]], 1)
    return tokens[0]
"""


@pytest.mark.parametrize(
    ("before", "first", "is_told"),
    [
        ("", "", True),
        ("scores[1:] = -math.inf", "", False),
        ("scores = scores.index_fill_(0, torch.arange(1, width), -1e9)", "", False),
        ("scores, first = model(tokens[:1])[0].topk(width)", "", False),
        ("", "[:1] if step == 0 else model(tokens)", False),
    ],
)
def test_beams_that_begin_as_copies_are_told(before, first, is_told):
    assert bool(told(slips.COPIES, COPIES.format(before=before, first=first))) == is_told
    assert not told(slips.COPIES, COPIES.replace("zeros(width)", "zeros(n)").format(before=before, first=first))


@pytest.mark.parametrize(
    ("rest", "drawn", "is_told"),
    [
        ("(p - q).abs()", "torch.multinomial(rest, 1)", True),
        ("torch.abs(p - q)", "torch.multinomial(rest / rest.sum(), 1)", True),
        ("(p - q).clamp(min=0)", "torch.multinomial(rest, 1)", False),
        ("(p - q).abs()", "rest.max()", False),  # a distance of two distributions
    ],
)
def test_what_is_drawn_behind_a_draft(rest, drawn, is_told):
    text = f"def redraw(p, q):\n    rest = {rest}\n    return {drawn}\n"
    assert bool(told(slips.EITHER_SIGN, text)) == is_told


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        ("beams, scores = grown[alive], top[:beam]", True),
        ("beams, scores = grown[alive], top[alive]", False),
        ("beams, scores = grown[:beam], top[:beam]", False),
        ("beams, widths = grown[alive], top[:beam]", False),
    ],
)
def test_beams_keep_their_scores(line, is_told):
    text = f"def step(grown, top, alive, beam):\n    {line}\n    return beams\n"
    assert bool(told(slips.OTHER_BEAMS, text)) == is_told
