"""Losses of rankers, recommenders and students: what is said of wrong ones, and what is left alone."""

from __future__ import annotations

import sys
from textwrap import dedent

import pytest

torch = pytest.importorskip("torch")

from wholes import Whole  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.helpers.beside import criteria_beside  # noqa: E402
from conformance.adapters.helpers.examining import examine  # noqa: E402
from conformance.adapters.whole.model import whole_model  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

LISTS, ORDER, TEACHER = (
    "losses-of-lists-keep-queries-apart",
    "orders-by-scores-begin-with-the-best",
    "distillation-is-lowest-at-the-teacher",
)
RIGHT = """
    def listwise_ce(scores, labels):
        return F.cross_entropy(scores, labels)

    def list_mle(scores, relevance, mask):
        order = scores.gather(1, relevance.argsort(1, descending=True))
        return (order.flip(1).logcumsumexp(1).flip(1) - order).sum(1).mean()

    def lambda_loss(scores, relevance):
        better = relevance[:, :, None] > relevance[:, None]
        return (F.softplus(scores[:, None] - scores[:, :, None]) * better).sum() / better.sum()

    def margin_loss(pos_scores, neg_scores, margin):
        return F.margin_ranking_loss(pos_scores, neg_scores, torch.ones_like(pos_scores), margin)

    def top_k_passages(scores, k):
        return torch.topk(scores, k).indices

    def rank(scores):  # places, not numbers of candidates
        return scores.argsort(-1, descending=True).argsort(-1)

    def kd_loss(student_logits, teacher_logits, labels, T=2.0, alpha=0.5):
        soft = F.kl_div((student_logits / T).log_softmax(-1), (teacher_logits / T).log_softmax(-1), log_target=True)
        return alpha * T * T * soft + (1 - alpha) * F.cross_entropy(student_logits, labels, label_smoothing=0.1)

    def reverse_kd(student_logits, teacher_logits):
        return F.kl_div(teacher_logits.log_softmax(-1), student_logits.softmax(-1), reduction="batchmean")

    def distil_mse(student_logits, teacher_logits):
        return F.mse_loss(student_logits, teacher_logits)
"""
WRONG = {
    "F.cross_entropy(scores, labels)": ("-scores.log_softmax(0).gather(1, labels[:, None]).mean()", LISTS),
    "order.flip(1).logcumsumexp(1)": ("order.flip(1).logcumsumexp(0)", LISTS),
    "(pos_scores, neg_scores, torch": ("(neg_scores, pos_scores, torch", "losses-of-pairs-prefer-the-true-one"),
    "torch.topk(scores, k)": ("torch.topk(scores, k, largest=False)", ORDER),
    "(student_logits / T).log_softmax(-1), (t": ("(student_logits / T).softmax(-1), (t", TEACHER),
    "(teacher_logits / T).log": ("teacher_logits.log", TEACHER),
}


@pytest.mark.parametrize("change", [("", ("", "")), *WRONG.items()], ids=lambda c: c[1][0] or "right")
def test_losses_of_lists_and_teachers(functions, change):
    right, (wrong, claim) = change
    assert RIGHT.count(right) == 1 or not right
    found = examine(functions(RIGHT.replace(right, wrong) if right else RIGHT))
    assert {w.claim for w in found.wrong} == ({claim} if claim else set())
    assert set(found.tested) >= {LISTS, ORDER, TEACHER}


GRADED = """
    def lambda_loss(scores, relevance, present):
        places = scores.argsort(1, descending=True).argsort(1)
        gain = 1 / torch.log2(places + 2.0) * present
        weight = (gain[:, None] - gain[:, :, None]).abs()
        better = (relevance[:, :, None] > relevance[:, None]) & present[:, :, None] & present[:, None]
        return (F.softplus(scores[:, None] - scores[:, :, None]) * weight * better).sum()

    def listnet_loss(scores, relevance, present):
        total = 0.0
        for s, r, keep in zip(scores, relevance, present):
            total = total + F.cross_entropy(s[keep], r[keep].softmax(0))
        return total / len(scores)

    def list_mle(scores, relevance, mask):
        order = scores.gather(1, relevance.argsort(1, descending=True))
        return (order.flip(1).logcumsumexp(1).flip(1) - order).sum(1).mean()

    def list_mle_loss(scores, labels):  # candidates stand in their order, the best first
        return (scores.flip(1).logcumsumexp(1).flip(1) - scores).sum(1).mean() + 0 * labels.sum()

    def ndcg(scores, relevance, k=3):
        top = scores.topk(k, 1).indices
        cut = torch.log2(torch.arange(k) + 2.0)
        return (relevance.gather(1, top) / cut).sum(1) / (relevance.topk(k, 1).values / cut).sum(1)

    def recall_at_k(scores, relevance, k=3):
        top = (relevance > 0).float().gather(1, scores.topk(k, 1).indices)
        return (top.sum(1) / (relevance > 0).sum(1)).mean()

    def dcg(scores, relevance):
        return relevance.gather(1, scores.argsort(1)).sum(1)
"""
MISSING, ANY_ORDER, ONE, ALL = (
    "losses-of-lists-leave-missing-candidates-out",
    "losses-of-lists-do-not-mind-their-order",
    "ndcg-is-one-for-the-best-order",
    "recalls-of-all-that-is-relevant-are-one",
)
WRONG_GRADED = {
    "descending=True).argsort(1)": ("descending=True)", ANY_ORDER),
    "F.cross_entropy(s[keep], r[keep].softmax(0))": ("F.cross_entropy(s, (r * keep).softmax(0))", MISSING),
    "(relevance.topk(k, 1).values": ("(relevance.topk(k, 1, largest=False).values", ONE),
    "(top.sum(1) / (relevance > 0).sum(1))": ("(top.sum(1) / k)", ALL),
}


@pytest.mark.parametrize("change", [("", ("", "")), *WRONG_GRADED.items()], ids=lambda c: c[1][0] or "right")
def test_graded_lists(functions, change):
    right, (wrong, claim) = change
    assert GRADED.count(right) == 1 or not right
    found = examine(functions(GRADED.replace(right, wrong) if right else GRADED))
    also = {"retrieval-counts-the-own-partner"} if claim == ALL else set()  # it says so, too
    assert {w.claim for w in found.wrong if w.trouble.certain} == ({claim} if claim else set()) | also
    assert set(found.tested) >= {MISSING, ANY_ORDER, ONE, ALL}


MODEL = """
    import torch.nn.functional as F

    class NextItem(nn.Module):
        def __init__(self, n_items=60, width=8, max_len=12):
            super().__init__()
            self.items, self.places = nn.Embedding(n_items + 1, width, padding_idx=0), nn.Embedding(max_len, width)
            layer = nn.TransformerEncoderLayer(width, 2, 16, 0.0, batch_first=True)
            self.stack = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

        def states(self, history):
            t = history.size(1)
            causal = torch.ones(t, t, dtype=torch.bool).triu(1)
            return self.stack(self.items(history) + self.places(torch.arange(t)), mask=causal)

        def forward(self, history):
            return self.states(history) @ self.items.weight.T

        @torch.no_grad()
        def recommend(self, history, k=5):
            scores = self(history)[:, -1]
            scores[:, 0] = -torch.inf
            return RECOMMENDED

    def bce_loss(model, history, pos, neg):
        h = model.states(history)
        better, worse = (h * model.items(pos)).sum(-1), (h * model.items(neg)).sum(-1)
        return LOSS
"""
BEST, TRUE, FITS = (
    "recommendations-are-the-best-that-are-new",
    "losses-of-samples-prefer-the-true-item",
    "losses-get-what-they-are-made-for",
)
BOTH = "F.softplus(-better).mean() + F.softplus(worse).mean()"
GIVEN = "F.binary_cross_entropy_with_logits(%s, torch.ones_like(better)) + F.softplus(worse).mean()"
TOP = "scores.topk(k).indices"


@pytest.mark.parametrize(
    ("loss", "recommended", "failed"),
    [
        (BOTH, TOP, set()),
        (GIVEN % "better", "scores.argsort(-1, descending=True)[:, :k]", set()),
        (GIVEN % "better.sigmoid()[:, :]", "scores.argsort(-1)[:, :k]", {FITS, BEST}),
        ("F.softplus(-better).mean()", "scores.topk(k, largest=False).indices", {TRUE, BEST}),
    ],
)
def test_recommenders(made, loss, recommended, failed):
    source = dedent(MODEL).replace("LOSS", loss).replace("RECOMMENDED", recommended)
    implementation = Whole(whole_model(made("NextItem", source)))
    found = {claim: run_check(CHECKS[claim], implementation, "quick").verdict.name for claim in (BEST, TRUE, FITS)}
    assert {claim for claim, verdict in found.items() if verdict == "FAIL"} == failed
    assert {BEST, TRUE} <= {claim for claim, verdict in found.items() if verdict in ("PASS", "FAIL")}


CRITERIA = """
    class ListNetLoss(nn.Module):
        def __init__(self, temperature=1.0):
            super().__init__()
            self.temperature = temperature
        def forward(self, scores, relevance, present):
            low = torch.finfo(scores.dtype).min
            wanted = (relevance / self.temperature).masked_fill(~present, low).softmax(-1)
            return -(wanted * LIKELY.log_softmax(-1)).sum(-1).mean()

    class KDLoss(nn.Module):
        def __init__(self, T=2.0):
            super().__init__()
            self.T = T
        def forward(self, student_logits, teacher_logits):
            taught = (teacher_logits / self.T).softmax(-1)
            return F.kl_div(STUDENT, taught, reduction="batchmean") * self.T**2

    class WeightedLoss(nn.Module):
        def __init__(self, weights):
            super().__init__()
"""


@pytest.mark.parametrize(
    ("likely", "student", "claims"),
    [
        ("scores.masked_fill(~present, low)", "(student_logits / self.T).log_softmax(-1)", set()),
        ("scores", "(student_logits / self.T).softmax(-1)", {MISSING, TEACHER}),
    ],
)
def test_losses_that_are_modules(functions, likely, student, claims):
    functions("from torch import nn\n" + dedent(CRITERIA).replace("LIKELY", likely).replace("STUDENT", student))
    found = examine(criteria_beside(sys.modules["helpers_of_a_test"].KDLoss))
    assert {w.claim for w in found.wrong} == claims
    assert set(found.tested) >= {MISSING, TEACHER}


TRIPLET, FOCAL = "triplets-draw-the-positive-near", "focal-losses-weigh-what-is-known-less"
VECTORS = """
    def triplet_loss(a, p, n, margin=1.0):
        return F.triplet_margin_loss(a, p, n, margin)

    def cosine_triplet(anchor, pos_emb, neg_emb):
        return F.softplus(F.cosine_similarity(anchor, neg_emb) - F.cosine_similarity(anchor, pos_emb)).mean()

    def triplet_accuracy(anchors, labels):
        return (anchors.argmax(-1) == labels).float().mean()

    def focal_loss(logits, targets, gamma=2.0, alpha=0.25):
        p = logits.sigmoid()
        ce = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
        known = p * targets + (1 - p) * (1 - targets)
        return (alpha * targets + (1 - alpha) * (1 - targets)).mul(ce * (1 - known) ** gamma).mean()

    def focal(inputs, labels, gamma=2):
        logp = inputs.log_softmax(1).gather(1, labels[:, None])
        return -((1 - logp.exp()).pow(gamma) * logp).mean()
"""


@pytest.mark.parametrize(
    ("right", "wrong", "claims"),
    [
        ("", "", set()),
        ("(a, p, n, margin)", "(a, n, p, margin)", {TRIPLET}),
        ("(1 - known) ** gamma", "known ** gamma", {FOCAL}),
        ("(1 - logp.exp())", "logp.exp()", {FOCAL}),
    ],
)
def test_triplets_and_focal_losses(functions, right, wrong, claims):
    found = examine(functions(VECTORS.replace(right, wrong) if right else VECTORS))
    assert {w.claim for w in found.wrong} == claims
    assert {claim: len(found.tested[claim]) for claim in (TRIPLET, FOCAL)} == {TRIPLET: 2, FOCAL: 2}
