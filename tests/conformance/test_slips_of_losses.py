"""Losses: softmaxes under a cross-entropy, and what a focal loss minds, by their text."""

from __future__ import annotations

import pytest
from rules_of_text import told

from conformance.slips import losses as slips


@pytest.mark.parametrize(
    ("made", "weight", "is_told"),
    [
        ("p_t = p * y + (1 - p) * (1 - y)", "p_t ** hp['gamma']", True),
        ("p_t = p * y + (1 - p) * (1 - y)", "(1 - p_t) ** gamma", False),
        ("p_t = p * (1 - y) + (1 - p) * y", "p_t ** gamma", False),
        ("p_t = log_p.exp()", "p_t ** gamma", True),
        ("p_t = log_p.exp()", "(1 - p_t) ** gamma", False),
        ("p = 1 - log_p.exp()", "p ** gamma", False),
        ("p_t = torch.where(y == 1, 1 - p, p)", "p_t ** gamma", False),
        ("away = 1 - log_p.exp()", "away ** gamma", False),
    ],
)
def test_a_focal_loss_minds_what_is_hard(made, weight, is_told):
    text = f"def focal_loss(log_p, y, p=None, gamma=2.0):\n    {made}\n    return ({weight} * -log_p).mean()\n"
    assert bool(told(slips.FOCAL, text)) == is_told


@pytest.mark.parametrize(
    ("body", "is_told"),
    [
        ("p = torch.softmax(x, -1)\n    return F.cross_entropy(p, y)", True),
        ("p = x.softmax(-1)\n    loss = nn.functional.cross_entropy(p, y)\n    return loss", True),
        ("p = torch.softmax(x, -1)\n    return F.cross_entropy(x, y), p", False),
        ("p = torch.softmax(x, -1)\n    p = x\n    return F.cross_entropy(p, y)", False),
        ("p = torch.softmax(x, -1)\n    return F.nll_loss(p.log(), y)", False),
    ],
)
def test_a_name_that_got_a_softmax_is_no_logits(body, is_told):
    assert bool(told(slips.LOGITS, f"def loss(x, y):\n    {body}\n")) == is_told


Z_TERM = """
def loss_of(logits, kept, weight):
    log_z = torch.logsumexp(logits, dim=-1)
    {name} = {given}
    return weight * {name}
"""


@pytest.mark.parametrize(
    ("name", "given", "is_told"),
    [
        ("z_loss", "log_z.mean()", True),
        ("z_term", "(log_z * kept).sum() / kept.sum()", True),
        ("z_loss", "log_z.square().mean()", False),
        ("z_loss", "(log_z * log_z).mean()", False),
        ("z_loss", "(log_z**2).mean()", False),
        ("nll", "log_z.mean()", False),
    ],
)
def test_a_z_term_is_squared(name, given, is_told):
    assert bool(told(slips.Z_AS_IT_IS, Z_TERM.format(name=name, given=given))) == is_told


@pytest.mark.parametrize(
    ("made", "given", "is_told"),
    [
        ("words = F.softmax(x, -1)", "F.kl_div(words, teacher)", True),
        ("words = F.log_softmax(x, -1)", "F.kl_div(words, teacher)", False),
        ("words = gate * F.softmax(x, -1) + rest", "F.log_softmax(words, -1)", True),
        ("words = (gate * x.softmax(-1)).scatter_add(-1, at, rest)", "words.log()", False),
        ("words = head(F.softmax(x, -1))", "F.log_softmax(words, -1)", False),
        ("words = F.softmax(x, -1)", "F.log_softmax(words, -1)", False),  # said by another rule, where it is a loss
    ],
)
def test_shares_stand_for_no_logs(made, given, is_told):
    text = f"def loss_of(x, gate, rest, at, teacher):\n    {made}\n    return {given}\n"
    assert bool(told(slips.SHARES_FOR_LOGS, text)) == is_told


@pytest.mark.parametrize(
    ("name", "told_by", "mean", "is_told"),
    [
        ("smoothed_nll", "labels.ne(PAD)", "nll.mean()", True),
        ("masked_loss", "labels != self.pad_id", "nll.mean()", True),
        ("smoothed_nll", "labels.ne(PAD)", "(nll * real).sum() / real.sum()", False),
        ("smoothed_nll", "labels.ne(0)", "nll.mean()", False),
        ("masked_loss", "labels.ne(PAD)", "F.cross_entropy(nll, labels, ignore_index=PAD)", False),
        ("count_words", "labels.ne(PAD)", "nll.mean()", False),
    ],
)
def test_padding_is_not_told_in_vain(name, told_by, mean, is_told):
    text = f"def {name}(self, nll, labels):\n    real = {told_by}\n    return {mean}\n"
    assert bool(told(slips.IN_VAIN, text)) == is_told
