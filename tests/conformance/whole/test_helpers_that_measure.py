"""Helpers that measure: areas, overlaps, shares of classes, quantiles with gaps; and forms that are left alone."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from conformance.adapters.helpers.examining import examine  # noqa: E402

AREA = """
def binary_auc(scores, positive):
    "{says}"
    positive = torch.as_tensor(positive).bool()
    _, inverse, counts = torch.unique(torch.as_tensor(scores), return_inverse=True, return_counts=True)
    ranks = ({ranks})[inverse]
    n = positive.sum()
    return float((ranks[positive].sum() - n * (n + 1) / 2) / (n * (~positive).sum()))
"""
BY_ORDER = """
def auc(scores, labels):
    order = torch.as_tensor(scores).argsort()
    ranks = torch.empty(len(order)).index_put((order,), torch.arange(1.0, len(order) + 1))
    positive = torch.as_tensor(labels) == 1
    n = positive.sum()
    return float((ranks[positive].sum() - n * (n + 1) / 2) / (n * (~positive).sum()))
"""


@pytest.mark.parametrize(
    ("ranks", "is_wrong"),
    [("counts.cumsum(0) - (counts - 1) / 2", False), ("counts.cumsum(0)", True), ("-counts.cumsum(0)", True)],
)
def test_equal_scores_share_their_rank(functions, ranks, is_wrong):
    found = examine(functions(AREA.format(says="Equal scores share a rank.", ranks=ranks)))
    assert [one.claim for one in found.wrong] == ["areas-under-the-curve-count-pairs"] * is_wrong
    assert list(found.tested) == ["areas-under-the-curve-count-pairs"]


def test_who_does_not_speak_of_equal_scores_is_not_blamed(functions):
    (found,) = examine(functions(BY_ORDER)).wrong or [None]
    assert found is None or not found.trouble.certain
    (turned,) = examine(functions(BY_ORDER.replace("argsort()", "argsort(descending=True)"))).wrong
    assert turned.trouble.certain


CLASSES = """
def confusion(logits, y, k):
    "Rows are true classes, columns predicted ones."
    return torch.bincount(y * k + logits.argmax(1), minlength=k * k).view(k, k)

def {name}(cm):
    return cm.diag() / cm.sum(dim={axis}).clamp(min=1)
"""


@pytest.mark.parametrize(
    ("name", "axis", "is_wrong"),
    [
        ("recall_per_class", 1, False),
        ("recall_per_class", 0, True),
        ("precision_per_class", 0, False),
        ("precision_per_class", 1, True),
    ],
)
def test_a_share_of_each_class(functions, name, axis, is_wrong):
    found = examine(functions(CLASSES.format(name=name, axis=axis)))
    assert [one.function for one in found.wrong] == [name] * is_wrong


def test_two_measures_and_the_accuracy_of_each_class_are_no_single_ones(functions):
    text = """
    def class_accuracy(logits, y):
        guess = logits.argmax(1)
        return [float((guess[y == k] == k).float().mean()) for k in range(3)]

    def accuracy_and_macro_f1(y_true, y_pred):
        scores = []
        for k in range(3):
            hits = int(((y_pred == k) & (y_true == k)).sum())
            scores.append(2 * hits / max(1, int((y_pred == k).sum() + (y_true == k).sum())))
        return float((y_true == y_pred).float().mean()), sum(scores) / 3, scores
    """
    assert examine(functions(text)).wrong == []


QUANTILES = """
def pinball_loss(pred, target, quantiles):
    known = torch.isfinite(target)
    error = torch.where(known, target, 0.0)[..., None] - pred
    loss = torch.maximum(torch.as_tensor(quantiles) * error, (torch.as_tensor(quantiles) - 1) * error)
    weight = known[..., None].expand_as(loss)
    return {mean}
"""


@pytest.mark.parametrize(("mean", "is_wrong"), [("(loss * weight).sum() / weight.sum()", False), ("loss.mean()", True)])
def test_targets_that_are_missing_do_not_count(functions, mean, is_wrong):
    found = examine(functions(QUANTILES.format(mean=mean)))
    assert [one.claim for one in found.wrong] == ["quantile-losses-are-lowest-at-the-quantile"] * is_wrong


BLOCKS = """
def block_ngrams(logp, seqs, n):
    for row, seq in enumerate(seqs.tolist()):
        tail = {tail}
        for i in range(len(seq) - n + 1):
            if seq[i : i + n - 1] == tail:
                logp[row, seq[i + n - 1]] = float("-inf")
    return logp
"""


@pytest.mark.parametrize(("tail", "is_wrong"), [("seq[len(seq) - n + 1 :]", False), ("seq[-n:]", True)])
def test_what_forbids_nothing_is_told(functions, tail, is_wrong):
    found = examine(functions(BLOCKS.format(tail=tail)))
    assert [one.claim for one in found.wrong] == ["forbidden-words-would-repeat-an-n-gram"] * is_wrong


def test_a_warm_up_may_be_a_share_of_all_steps(functions):
    text = """
    def linear_schedule(optimizer, total, warmup_frac):
        warm = max(1, int(total * warmup_frac))
        def factor(step):
            return (step + 1) / warm if step < warm else max(0.0, (total - step) / max(1, total - warm))
        return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    """
    found = examine(functions(text))
    assert found.wrong == []
    assert list(found.tested) == ["schedules-rise-in-warm-up-and-then-fall"]


def test_measures_of_what_is_found_or_not_are_of_two_classes(functions):
    text = """
    def f1_score(pred, labels):
        pred, labels = pred.bool(), labels.bool()
        hits = int((pred & labels).sum())
        precision, recall = hits / max(int(pred.sum()), 1), hits / max(int(labels.sum()), 1)
        return {"precision": precision, "recall": recall, "f1": 2 * hits / max(int(pred.sum() + labels.sum()), 1)}
    """
    assert examine(functions(text)).wrong == []


def test_a_loss_with_quantiles_of_its_own_is_not_held_to_others(functions):
    text = """
    QUANTILES = (0.1, 0.5, 0.9)

    def pinball(pred, y):
        error = y[..., None] - pred
        return torch.maximum(torch.tensor(QUANTILES) * error, (torch.tensor(QUANTILES) - 1) * error)
    """
    assert examine(functions(text)).wrong == []
