"""Figures that a script's own functions give: wrong ones are told, and right ones in other forms are not."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from conformance.mutated import run_of  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402
from conformance.watch.verdicts import results_of  # noqa: E402

SCRIPT = """
import math
from collections import Counter
import torch
from torch import nn

{function}

model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in torch.randn(3, 8, 4):
    loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
BLEU = """
def ngrams(words, n):
    return Counter(tuple(words[i:i + n]) for i in range(len(words) - n + 1))

def {name}({parameters}):
    match, total = [0] * 4, [0] * 4
    for hyp, ref in zip(hyps, refs):
        hyp, ref = {words}
        for n in range(4):
            h, r = ngrams(hyp, n + 1), ngrams(ref, n + 1)
            match[n] += {count}
            total[n] += sum(h.values())
    if min(match) == 0:
        return 0.0
    brevity = min(0.0, 1 - sum(map(len, refs)) / sum(map(len, hyps)))
    return 100 * math.exp(sum(math.log(m / t) for m, t in zip(match, total)) / 4 + brevity)
"""
CLIPPED, PLAIN = "sum(min(c, r[g]) for g, c in h.items())", "sum(c for g, c in h.items() if g in r)"


def verdict(claim, function):
    found = results_of(run_of(SCRIPT.format(function=function), "train.py").run)[claim].verdict
    assert found in (Verdict.FAIL, Verdict.NOT_SEEN)
    return found is Verdict.FAIL


@pytest.mark.parametrize("parameters", ["hyps, refs", "refs, hyps", "hyps, refs, max_n=4"])
@pytest.mark.parametrize("words", ["hyp, ref", "hyp.split(), ref.split()", "hyp, ref[0]"])
@pytest.mark.parametrize(("count", "is_told"), [(CLIPPED, False), (PLAIN, True)])
def test_bleu(parameters, words, count, is_told):
    function = BLEU.format(name="corpus_bleu", parameters=parameters, words=words, count=count)
    assert verdict("run-functions-keep-the-claim-of-their-kind", function) == is_told


@pytest.mark.parametrize("name", ["overlap", "print_bleu_of"])
def test_what_is_called_otherwise_or_prints_is_not_called(name):
    text = BLEU.format(name=name, parameters="hyps, refs", words="hyp, ref", count=PLAIN)
    text = text.replace("    match, total", "    print(hyps)\n    match, total", 1) if "print" in name else text
    assert not verdict("run-functions-keep-the-claim-of-their-kind", text)


SPANS = """
def spans(tags):
    return [(n, i, tag[2:]) for n, row in enumerate(tags) for i, tag in enumerate(row) if tag[0] == "B"]

def {name}(gold_tags, pred_tags):
    gold, pred = ({{{kept} for n, i, kind in spans(tags)}} for tags in (gold_tags, pred_tags))
    hits = len(gold & pred)
    p, r = hits / max(1, len(pred)), hits / max(1, len(gold))
    return {{"precision": p, "recall": r, "f1": 2 * p * r / (p + r) if hits else 0.0, "support": len(gold)}}
"""


@pytest.mark.parametrize(
    ("name", "kept", "is_told"),
    [
        ("entity_f1", "(n, i, kind)", False),
        ("entity_f1", "(n, i)", True),
        ("entity_f1", "(i, kind)", True),
        ("unlabeled_span_f1", "(n, i)", False),
    ],
)
def test_spans_of_tags(name, kept, is_told):
    assert verdict("run-spans-are-told-apart", SPANS.format(name=name, kept=kept)) == is_told


MACRO = """
def {name}({parameters}):
    scores = []
    for c in {classes}:
        hits = sum(int(g == p == c) for g, p in zip(labels, preds))
        count = sum(int(g == c) for g in labels) + sum(int(p == c) for p in preds)
        scores.append(2 * hits / max(1, count))
    return {mean}
"""
OVER_ALL, OVER_HITS = "sum(scores) / len(scores)", "sum(scores) / max(1, sum(s > 0 for s in scores))"


@pytest.mark.parametrize(
    ("parameters", "classes"),
    [("preds, labels, n_classes", "range(n_classes)"), ("labels, preds", "sorted({int(g) for g in labels})")],
)
@pytest.mark.parametrize(("mean", "is_told"), [(OVER_ALL, False), (OVER_HITS, True)])
def test_means_over_classes(parameters, classes, mean, is_told):
    text = MACRO.format(name="macro_f1", parameters=parameters, classes=classes, mean=mean)
    assert verdict("run-means-over-classes-count-each", text) == is_told
    assert not verdict("run-means-over-classes-count-each", text.replace("def macro_f1", "def figure"))


RATE = """
def distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            before, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, before + (x != y))
    return row[-1]

def {name}({parameters}):
    {body}
"""
OF_TEXTS = (
    "return 100 * sum(distance({0}, {1}) for h, r in zip(hyps, refs)) / sum(len({2}) for h, r in zip(hyps, refs))"
)


@pytest.mark.parametrize(
    ("parameters", "body", "is_told"),
    [
        ("hyp, ref", "return distance(hyp, ref) / len(ref)", False),
        ("ref, hyp", "return distance(hyp.split(), ref.split()) / len(ref.split())", False),
        ("hyps, refs", OF_TEXTS.format("h", "r", "r"), False),
        ("hyp, ref", "return distance(hyp, ref) / len(hyp)", True),
        ("hyp, ref", "return distance(hyp, ref) / max(len(hyp), len(ref))", True),
        ("hyps, refs", OF_TEXTS.format("h.split()", "r.split()", "h.split()"), True),
    ],
)
def test_error_rates(parameters, body, is_told):
    text = RATE.format(name="wer", parameters=parameters, body=body)
    assert verdict("run-errors-are-shares-of-the-reference", text) == is_told


@pytest.mark.parametrize(
    ("body", "is_told"),
    [
        ("((pred - target) ** 2).mean().sqrt().item()", False),
        ("math.sqrt(float(((pred - target) ** 2).mean()))", False),
        ("((pred - target) ** 2).mean(0).sqrt()", False),  # one for each column
        ("((pred - target) ** 2).mean().item()", True),
        ("((pred - target) ** 2).mean(-1).sqrt().mean()", True),
    ],
)
def test_roots_of_mean_errors(body, is_told):
    assert verdict("run-roots-are-taken-of-the-mean", f"def rmse(pred, target):\n    return {body}\n") == is_told
