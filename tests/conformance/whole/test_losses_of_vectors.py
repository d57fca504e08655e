"""Losses beside an encoder that take the vectors of pairs: functions, and modules that learn a scale at most."""

from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch")
from wholes import Whole  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters import SpecificationError, resolve  # noqa: E402
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
LEARNED = """
class PairLoss(nn.Module):
    def __init__(self, temperature=0.05):
        super().__init__()
        self.log_scale = nn.Parameter(torch.tensor(1 / temperature).log())

    def forward(self, tickets, articles):
        sim = tickets @ articles.t() * self.log_scale.exp()
        own = torch.arange(len(sim))
        return 0.5 * (F.cross_entropy(sim, own) + F.cross_entropy(sim.t(), own))
"""
DIVIDED, BOTH = "contrasts-are-divided-by-the-temperature", "contrasts-ask-in-both-directions"


@pytest.mark.parametrize(
    ("loss", "right", "wrong", "claim"),
    [
        (MODULE, "/ self.temperature", "* self.temperature", DIVIDED),
        (MODULE, "cross_entropy(sim.t(), own)", "cross_entropy(sim, own)", BOTH),
        (FUNCTION, "/ temperature", "* temperature", DIVIDED),
        (LEARNED, "* self.log_scale.exp()", "/ self.log_scale.exp()", DIVIDED),
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


DISTILLATION = """
import torch
from torch import nn
import torch.nn.functional as F

class DistillationLoss(nn.Module):
    def __init__(self, temperature=3.0, alpha=0.5):
        super().__init__()
        self.temperature, self.alpha = temperature, alpha

    def forward(self, student_logits, teacher_logits, labels):
        student = F.log_softmax(student_logits / self.temperature, dim=-1)
        teacher = F.softmax(teacher_logits / self.temperature, dim=-1)
        soft = F.kl_div(student, teacher, reduction="batchmean") * self.temperature**2
        return self.alpha * F.cross_entropy(student_logits, labels) + (1 - self.alpha) * soft


class OtherLoss(nn.Module):
    def forward(self, first, second):
        return (first - second).sum()
"""


@pytest.mark.parametrize(("teacher", "is_right"), [("teacher = F.softmax", True), ("teacher = F.log_softmax", False)])
def test_a_loss_that_is_pointed_at_is_tested_as_the_helper_that_it_is(tmp_path, monkeypatch, teacher, is_right):
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = tmp_path / f"losses_of_a_test_{is_right}.py"
    path.write_text(DISTILLATION.replace("teacher = F.softmax", teacher))
    impl = resolve(f"{path}:DistillationLoss")
    claim = "distillation-is-lowest-at-the-teacher"
    assert run_check(CHECKS[claim], impl, "quick").verdict.name == ("PASS" if is_right else "FAIL")
    with pytest.raises(SpecificationError, match="OtherLoss"):
        resolve(f"{path}:OtherLoss")
