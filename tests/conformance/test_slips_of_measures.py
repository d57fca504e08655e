"""Slips of measures: two counts that are one expression, and answers scored behind the words of their target."""

from __future__ import annotations

import ast

import pytest

from conformance.slips import measures as slips


def told(slip, text):
    return [written for written, _ in slip.rule(ast.parse(text))]


@pytest.mark.parametrize(
    ("body", "is_told"),
    [
        ("fp = ((pred == c) & (gold != c)).sum()\n    fn = ((pred == c) & (gold != c)).sum()", True),
        ("fp = ((pred == c) & (gold != c)).sum()\n    fn = ((pred != c) & (gold == c)).sum()", False),
        ("fp_all = n - hit\n    fn_all = n - hit", True),
        ("fp_all = n - hit\n    fn_test = n - hit", False),
        ("precision = hit / found\n    recall = hit / found", True),
        ("precision = hit / found\n    recall = hit / there", False),
        ("p, r = hit / n, hit / n", True),
        ("fp = 0\n    fn = 0", False),
        ("fp, fn = zeros(n), zeros(n)", False),
    ],
)
def test_missed_and_false_are_counted_apart(body, is_told):
    assert bool(told(slips.TWICE, f"def f1(pred, gold, c, hit, n, found, there):\n    {body}\n")) == is_told


SCORED = """
def evaluate(model, batches):
    for src, tgt_in, tgt_out in batches:
        {made}
        {scored}
"""


@pytest.mark.parametrize(
    ("made", "scored", "is_told"),
    [
        ("out = model(src, tgt_in)", "bleu(out.argmax(-1), tgt_out)", True),
        ("out = model(src, tgt[:, :-1])", "total += edit_distance(out.max(dim=-1)[1].tolist(), tgt_out)", True),
        ("out = model(src, tgt_in).argmax(-1)", "total += cer(out, tgt_out)", True),
        ("out = model(input_ids=src, decoder_input_ids=tgt_in)", "rouge(out.logits.argmax(-1), tgt_out)", True),
        ("out = model(src, tgt_in)", "right += (out.argmax(-1) == tgt_out).sum()", False),  # a share of words
        ("out = model.greedy(src)", "bleu(out, tgt_out)", False),
        ("out = model(src, tgt_in); own = greedy(model, src)", "bleu(own, tgt_out); out.argmax(-1)", False),
        ("out = model(src, mask)", "bleu(out.argmax(-1), tgt_out)", False),
        ("out = model(src, tgt_in); best = scores.argmax(-1)", "bleu(best, tgt_out)", False),
    ],
)
def test_measures_of_writing_are_given_what_is_written(made, scored, is_told):
    assert bool(told(slips.BEGINNINGS, SCORED.format(made=made, scored=scored))) == is_told
