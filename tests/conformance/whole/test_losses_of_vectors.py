"""Losses that stand beside an encoder and take the vectors of pairs, as functions or as modules without parameters."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from wholes import Whole  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.whole.model import whole_model  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

ENCODER = """
import torch.nn.functional as F

class Encoder(nn.Module):
    def __init__(self, vocab=23, width=16):
        super().__init__()
        self.words, self.out = nn.Embedding(vocab, width), nn.Linear(width, width)

    def forward(self, ids):
        return F.normalize(self.out(self.words(ids).mean(1)), dim=-1)
"""
MODULE = """
class PairLoss(nn.Module):
    def __init__(self, temperature=0.05):
        super().__init__()
        self.temperature = temperature

    def forward(self, tickets, articles, article_ids):
        sim = tickets @ articles.t() / self.temperature
        same = article_ids[:, None] == article_ids[None, :]
        sim = sim.masked_fill(same & ~torch.eye(len(sim), dtype=torch.bool), float("-inf"))
        own = torch.arange(len(sim))
        return 0.5 * (F.cross_entropy(sim, own) + F.cross_entropy(sim.t(), own))
"""
FUNCTION = """
def info_nce(queries, docs, temperature=0.05):
    sim = queries @ docs.T / temperature
    own = torch.arange(len(sim))
    return (F.cross_entropy(sim, own) + F.cross_entropy(sim.T, own)) / 2
"""
DIVIDED, BOTH = "contrasts-are-divided-by-the-temperature", "contrasts-ask-in-both-directions"


@pytest.mark.parametrize(
    ("loss", "right", "wrong", "claim"),
    [
        (MODULE, "/ self.temperature", "* self.temperature", DIVIDED),
        (MODULE, "cross_entropy(sim.t(), own)", "cross_entropy(sim, own)", BOTH),
        (FUNCTION, "/ temperature", "* temperature", DIVIDED),
        (FUNCTION, "cross_entropy(sim.T, own)", "cross_entropy(sim, own)", BOTH),
    ],
)
def test_losses_of_vectors_are_those_of_pairs(made, loss, right, wrong, claim):
    assert right in loss
    for text, verdict in ((loss, "PASS"), (loss.replace(right, wrong), "FAIL")):
        impl = Whole(whole_model(made("Encoder", ENCODER + text)))
        assert run_check(CHECKS[claim], impl, "quick").verdict.name == verdict


def test_a_loss_of_scores_or_of_a_model_takes_no_vectors(made):
    others = FUNCTION.replace("queries, docs", "logits, labels") + MODULE.replace("tickets, articles", "model, batch")
    impl = Whole(whole_model(made("Encoder", ENCODER + others)))
    assert run_check(CHECKS[DIVIDED], impl, "quick").verdict.name == "NOT_PROVIDED"
