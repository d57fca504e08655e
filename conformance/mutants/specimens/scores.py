"""Measures as they stand beside models: shares, ranks, errors, edits, spans, overlaps. All are correct."""

import math
from collections import Counter

import torch


def accuracy(logits, labels, k=1):
    """The share of rows whose label is among the k best."""
    return (logits.topk(k, -1).indices == labels[:, None]).any(-1).float().mean()


def class_report(probs, labels):
    """Accuracy, and the means over classes of recall and F1."""
    count = probs.shape[-1]
    pairs = torch.bincount(labels * count + probs.argmax(-1), minlength=count**2).view(count, count).double()
    hits, support, said = pairs.diagonal(), pairs.sum(1), pairs.sum(0)
    return {
        "accuracy": float(hits.sum() / pairs.sum()),
        "balanced_accuracy": float((hits / support.clamp(min=1)).mean()),
        "macro_f1": float((2 * hits / (support + said).clamp(min=1)).mean()),
    }


def perplexity(mean_loss):
    """Of the mean loss of a word."""
    return math.exp(mean_loss)


def recall_at_k(queries, docs, k):
    """The share of queries whose own document is among the k most similar ones."""
    best = (queries @ docs.t()).topk(k, -1).indices
    return (best == torch.arange(len(queries))[:, None]).any(-1).float().mean().item()


def ndcg_at_k(scores, target, k=10):
    """Of one true item in each row."""
    rank = (scores > scores.gather(1, target[:, None])).sum(1)
    return torch.where(rank < k, 1 / torch.log2(rank + 2.0), torch.zeros(())).mean()


def mase(forecast, target, past, season=1):
    """The mean absolute error over that of the seasonal naive forecast."""
    naive = (past[:, season:] - past[:, :-season]).abs().mean()
    return (forecast - target).abs().mean() / naive


def edit_distance(ref, hyp):
    """The fewest insertions, deletions and exchanges."""
    row = list(range(len(hyp) + 1))
    for i, a in enumerate(ref, 1):
        before, row[0] = row[0], i
        for j, b in enumerate(hyp, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (a != b))
    return row[-1]


def rank_documents(scores, k=3):
    """The numbers of the best candidates."""
    return scores.argsort(-1, descending=True)[..., :k]


def relevant_recall_at_k(scores, relevant, k=3):
    """The share of each query's relevant candidates that is among its best k."""
    found = relevant.gather(1, rank_documents(scores, k)).float().sum(1)
    return (found / relevant.sum(1)).mean()


def graded_ndcg(scores, relevance, k=10):
    """A mean over the queries."""
    gains = relevance.exp2() - 1
    discount = 1 / torch.log2(torch.arange(min(k, scores.shape[1])) + 2.0)
    found = gains.gather(1, scores.argsort(-1, descending=True))[:, :k]
    ideal = gains.sort(-1, descending=True).values[:, :k]
    return ((found * discount).sum(-1) / (ideal * discount).sum(-1)).mean()


def extract_spans(tags):
    """BIO tags to (kind, start, end), the end exclusive."""
    spans, start, kind = [], 0, ""
    for at, tag in enumerate([*tags, "O"]):
        if kind and tag != f"I-{kind}":
            spans.append((kind, start, at))
            kind = ""
        if tag[0] == "B":
            start, kind = at, tag[2:]
    return spans


def corpus_bleu(hypotheses, references, order=4):
    """Of lists of words: the geometric mean of the shares of n-grams that the reference has, too; short texts lose."""
    hits, said = [0] * order, [0] * order
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        for n in range(1, order + 1):
            given, wanted = (
                Counter(tuple(words[at : at + n]) for at in range(len(words) - n + 1))
                for words in (hypothesis, reference)
            )
            hits[n - 1] += sum(min(count, wanted[gram]) for gram, count in given.items())
            said[n - 1] += sum(given.values())
    if min(hits) == 0:
        return 0.0
    longer = sum(map(len, references)) / sum(map(len, hypotheses))
    shares = sum(math.log(hit / all_) for hit, all_ in zip(hits, said, strict=True)) / order
    return 100 * math.exp(shares + min(0.0, 1 - longer))


def roc_auc(scores, labels):
    """Of scores (N,) and labels (N,) in {0, 1}: equal scores share their average rank."""
    _, inverse, counts = scores.unique(return_inverse=True, return_counts=True)
    ranks = (counts.cumsum(0) - (counts - 1) / 2)[inverse]
    positive = labels == 1
    pairs = positive.sum() * (~positive).sum()
    return ((ranks[positive].sum() - positive.sum() * (positive.sum() + 1) / 2) / pairs).item()
