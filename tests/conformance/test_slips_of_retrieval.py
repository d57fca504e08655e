"""Searches and how they are taught: temperatures, candidates, pools and reciprocal ranks, by their text."""

from __future__ import annotations

import pytest
from rules_of_text import told

from conformance.slips import retrieval as slips

SCORES = """
def loss(q, positive, negative, temperature):
    near = {near}
    far = {far}
    logits = {logits}
    return F.cross_entropy({given}, torch.arange(len(q)))
"""


@pytest.mark.parametrize(
    ("near", "far", "logits", "given", "is_told"),
    [
        ("q @ positive.T", "q @ negative.T", "torch.cat([near / temperature, far], 1)", "logits", True),
        ("q @ positive.T / temperature", "q @ negative.T", "torch.cat([near, far], 1)", "logits", True),
        ("q @ positive.T", "q @ negative.T", "torch.cat([near, far], 1) / temperature", "logits", False),
        ("q @ positive.T", "q @ negative.T", "torch.cat([near / temperature, far / temperature], 1)", "logits", False),
        ("q @ positive.T", "torch.zeros(3)", "torch.cat([near / temperature, far], 1)", "logits", False),
        ("q @ positive.T", "q @ negative.T", "torch.cat([near, far], 1)", "logits / temperature", False),
    ],
)
def test_scores_of_one_softmax_have_one_temperature(near, far, logits, given, is_told):
    text = SCORES.format(near=near, far=far, logits=logits, given=given)
    assert bool(told(slips.IN_PART, text)) == is_told


@pytest.mark.parametrize(
    ("asked", "made", "is_told"),
    [
        ("hard[:, None] == all_ids[None, :]", "torch.cat([hard, queue])", True),
        ("hard.unsqueeze(1) == all_ids.unsqueeze(0)", "torch.cat([hard, queue])", True),
        ("own[:, None] == all_ids[None, :]", "torch.cat([hard, queue])", False),
        ("own[:, None] == own[None, :]", "torch.cat([hard, queue])", False),
    ],
)
def test_candidates_are_compared_with_the_own_one(asked, made, is_told):
    text = f"def f(x, own, hard, queue):\n    all_ids = {made}\n    return x.masked_fill({asked}, -float('inf'))\n"
    assert bool(told(slips.THEMSELVES, text)) == is_told


@pytest.mark.parametrize(
    ("validation", "test", "is_told"),
    [
        ("dev_ids | train_ids", "test_ids", True),
        ("dev_ids + train_ids", "test_ids", True),
        ("dev_ids | train_ids", "test_ids | train_ids", False),
        ("dev_ids", "test_ids", False),
        ("dev_ids | train_ids", "all_ids", False),
    ],
)
def test_the_test_searches_among_as_many(validation, test, is_told):
    text = f"a = recall(model, dev_ids, {validation})\nb = recall(model, test_ids, {test})\n"
    assert bool(told(slips.FEWER, text)) == is_told


@pytest.mark.parametrize(
    ("figure", "is_told"),
    [
        ("1.0 / ranks.float().mean()", True),
        ("1 / np.mean(ranks)", True),
        ("(1.0 / ranks.float()).mean()", False),
        ("np.mean(1 / ranks)", False),
        ("1.0 / losses.mean()", False),
        ("1 - ranks.mean()", False),
    ],
)
def test_reciprocals_are_meant(figure, is_told):
    assert bool(told(slips.RECIPROCALS, f"mrr = {figure}")) == is_told


QUEUED = """
class Contrast(nn.Module):
    def loss(self, queries, keys):
        {before}
        logits = torch.cat([(queries * keys).sum(1, keepdim=True), queries @ {bank}.T], 1)
        loss = F.cross_entropy(logits, torch.zeros(len(keys)).long())
        {behind}
        return loss
"""


@pytest.mark.parametrize(
    ("before", "bank", "behind", "is_told"),
    [
        ("self.enqueue(keys)", "self.queue", "pass", True),
        ("self._dequeue_and_enqueue(keys)", "self.memory_bank", "pass", True),
        ("pass", "self.queue", "self.enqueue(keys)", False),
        ("bank = self.queue.clone(); self.enqueue(keys)", "bank", "pass", False),
        ("self.enqueue(labels)", "self.queue", "pass", False),
    ],
)
def test_a_queue_is_filled_behind_the_loss(before, bank, behind, is_told):
    assert bool(told(slips.QUEUED_FIRST, QUEUED.format(before=before, bank=bank, behind=behind))) == is_told
