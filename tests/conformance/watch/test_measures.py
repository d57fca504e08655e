"""Measures of other places or of the last batch, and mixtures that are none, are told; what is right is not."""

import ast
import re

import pytest

torch = pytest.importorskip("torch")

from conformance.mutated import run_of  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402
from conformance.watch import measures  # noqa: E402
from conformance.watch.lines import Source  # noqa: E402
from conformance.watch.verdicts import results_of  # noqa: E402

FAIL, NOT_SEEN = Verdict.FAIL, Verdict.NOT_SEEN
LOOP = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
PAD = 0
model = nn.Linear(4, 5)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
batches = [(torch.randn(3, 6, 4), torch.randint(1, 5, (3, 6))) for _ in range(3)]
ignored = {ignored}
for _, y in batches:
    y[:, {tail}:] = ignored
for x, y in batches:
    optimizer.zero_grad()
    F.cross_entropy(model(x).flatten(0, 1), y.flatten(), ignore_index=ignored).backward()
    optimizer.step()
@torch.no_grad()
def evaluate(model, batches):
    hits, places, total, losses, rows, found = 0, 0, 0.0, [], [], 0.0
    for x, y in batches:
        logits = model(x)
        mask = y != -100
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=ignored)
        {text}
    {after}
evaluate(model, batches)
"""


def judged(claim, text, after, line="", ignored=-100, tail=4):
    """The verdict of a claim on a script with an evaluation of this text; with `line`, that this is named."""
    source = LOOP.format(text="\n        ".join(text.splitlines()), after=after, ignored=ignored, tail=tail)
    found = results_of(run_of(source, "train.py").run)[claim]
    if found.verdict is FAIL and line:
        number = int(re.search(r":(\d+):", found.place).group(1))
        assert source.splitlines()[number - 1].strip() == line, found.place
    return found.verdict


HITS, AFTER = "run-hits-are-counted-where-labels-count", "return hits / places"


@pytest.mark.parametrize(
    ("text", "after", "line"),
    [
        ("hits += (logits.argmax(-1) == y).sum().item()\nplaces += y.numel()", AFTER, "places += y.numel()"),
        (
            "pred = logits.argmax(-1)\nhits += pred.eq(y).sum().item()\nplaces += y.numel()",
            AFTER,
            "places += y.numel()",
        ),
        ("found += (logits.argmax(-1) == y).float().mean().item()", "return found / len(batches)", ""),
        ("hits += ((logits.argmax(-1) == y) & mask).sum()\nplaces += y.size(0) * y.size(1)", AFTER, ""),
        (
            "given = x[..., 0]\nhits += (logits.argmax(-1) == given).sum().item()\nplaces += mask.sum().item()",
            AFTER,
            "",
        ),
        (
            "hits += (logits.argmax(-1)[mask] == y[mask]).sum().item()\nplaces += (x[..., 0] < 9).sum().item()",
            AFTER,
            "places += (x[..., 0] < 9).sum().item()",
        ),
    ],
)
def test_hits_at_other_places_are_told(text, after, line):
    assert judged(HITS, text, after, line) is FAIL


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("hits += (logits.argmax(-1) == y).sum().item()\nplaces += mask.sum().item()", AFTER),
        ("hits += (logits.argmax(-1)[mask] == y[mask]).sum().item()\nplaces += mask.sum().item()", AFTER),
        ("hits += (logits.argmax(-1)[mask] == y[mask]).float().mean().item()\nplaces += 1", AFTER),
        ("hits += (logits.argmax(-1)[mask] == y[mask]).sum().item()\nplaces += (y != -100).sum().item()", AFTER),
        ("hits += ((logits.argmax(-1) == y) & mask).sum().item()\nplaces += mask.sum().item()", AFTER),
        ("wanted = y[mask]\nhits += (logits.argmax(-1)[mask] == wanted).sum()\nplaces += wanted.numel()", AFTER),
        ("hits += (logits.argmax(-1) == x[..., 0]).sum().item()\nplaces += x[..., 0].numel()", AFTER),
    ],
)
def test_hits_that_are_counted_alike_are_not_told(text, after):
    assert judged(HITS, text, after) is NOT_SEEN


def test_all_places_count_where_no_label_is_ignored():
    text = "hits += (logits.argmax(-1) == y).sum().item()\nplaces += y.numel()"
    assert judged(HITS, text, AFTER, tail=6) is NOT_SEEN
    assert judged(HITS, text, AFTER, ignored="PAD") is FAIL


LAST = "run-measures-are-of-all-batches"


@pytest.mark.parametrize(
    ("text", "after", "line"),
    [
        ("acc = (logits.argmax(-1) == y).float().mean()", "return acc.item()", ""),
        ("total = loss.item()", "return total / len(batches)", "total = loss.item()"),
        ("losses = [loss.item()]", "return sum(losses) / len(losses)", "losses = [loss.item()]"),
        ("losses, rows = [loss.item()], [len(y)]", "losses = sum(losses) / sum(rows)\n    return losses", ""),
        ("pass", "return loss.item()", ""),
        ("hits = rows = 0\nhits += 1\nrows += len(y)", "return hits / rows", "hits = rows = 0"),
    ],
)
def test_a_measure_of_the_last_batch_is_told(text, after, line):
    assert judged(LAST, text, after, line) is FAIL


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("total += loss.item()", "return total / len(batches)"),
        ("total = total + loss.item()", "return total / len(batches)"),
        ("losses.append(loss.item())", "return sum(losses) / len(losses)"),
        ("losses.append(loss.item())", "return sum(losses) / len(losses), loss.item()"),
        ("total = loss.item()\nlosses.append(total)", "return losses"),
        ("example = (x, logits)", "return example"),
        ("pred = logits.argmax(-1)\ntotal += loss.item()", "return total, pred"),
        ("total = loss.item()\nif total > 0:\n    break", "return total"),
        ("if loss > total:\n    total = loss", "return total"),
        ("losses = [*losses, loss.item()]", "return sum(losses)"),
        ("hits = 0\nfor one in y:\n    hits += 1", "return hits"),  # of the last batch, and perhaps an example
        ("hits = 0\nhits += len(y)\nlosses.append(hits)", "return losses, hits"),
    ],
)
def test_measures_that_are_collected_or_examples_are_not_told(text, after):
    assert judged(LAST, text, after) is NOT_SEEN


MIX = "order, share = torch.randperm(len(x)), 0.3\nmixed = share * x + (1 - share) * x[order]\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("t = (1 - share) * soft + share * soft[order]", FAIL),
        ("t = share * soft + (1 - share) * soft", FAIL),
        ("a, b = soft, soft[order]\nt = (1.0 - share) * a + share * b", FAIL),
        ("t = (1 - share) * soft[order] + share * soft", NOT_SEEN),
        ("t = soft * share + soft[order] * (1 - share)", NOT_SEEN),
        ("a, b = soft, soft[order]\nt = share * a + (1.0 - share) * b", NOT_SEEN),
        ("other = 0.1\nt = (1 - other) * soft + other * soft[order]", NOT_SEEN),
        ("t = other * soft + (1 - other) * soft", NOT_SEEN),
    ],
)
def test_mixtures_of_one_or_in_other_shares_are_told(text, expected):
    text = MIX + "soft, other = F.one_hot(y.clamp(0), 5).float(), 0.2\n" + text
    line = text.splitlines()[-1]
    assert judged("run-mixtures-keep-their-shares", text, "return t", line) is expected


MIXUP = """
def mixup(x, y):
    share, order = 0.3, torch.randperm(len(x))
    mixed = share * x + (1 - share) * x[{order}]
    return mixed, {labels}, share
mixed, a, b, share = mixup(torch.randn(6, 4), torch.arange(6) % 5)
t = share * F.cross_entropy(mixed @ torch.ones(4, 5), a) + (1 - share) * F.cross_entropy(mixed @ torch.ones(4, 5), b)
"""


@pytest.mark.parametrize(
    ("order", "labels", "line"),
    [
        ("order", "y, y[order]", None),
        ("order", "y[order], y", "return mixed, y[order], y, share"),
        ("order", "y, y", "return mixed, y, y, share"),
        ("torch.randperm(len(x))", "y, y[order]", "mixed = share * x + (1 - share) * x[torch.randperm(len(x))]"),
    ],
)
def test_rows_and_labels_that_a_function_mixes_apart_are_told(order, labels, line):
    text = MIXUP.format(order=order, labels=labels)
    assert judged("run-mixtures-keep-their-shares", text, "", line) is (FAIL if line else NOT_SEEN)


ALIKE = "run-measures-weigh-rows-alike"
UNEVEN = "evaluate(model, [(torch.randn(n, 6, 4), torch.randint(1, 5, (n, 6))) for n in (3, 3, 2)])"


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        ("hits += (logits.argmax(-1) == y).sum().item()\nplaces += BATCH", AFTER, FAIL),
        ("hits += (logits.argmax(-1) == y).sum().item()\nplaces += len(y)", AFTER, NOT_SEEN),
        ("batch = len(y)\nhits += (logits.argmax(-1) == y).sum().item()\nplaces += batch", AFTER, NOT_SEEN),
        ("rows.append(((logits[..., 0] - y) ** 2).mean().sqrt())\nrmse = rows", "return sum(rows)", NOT_SEEN),
        ("rmse = (logits[..., 0] - y).square().mean().sqrt()\nfound += rmse", "return found / len(batches)", NOT_SEEN),
        ("losses.append(((logits[..., 0] - y).square().sum(), len(y)))",
         "outputs = losses\n    return {'rmse': sum((s / n) ** 0.5 for s, n in outputs) / len(outputs)}", FAIL),
        ("losses.append(((logits[..., 0] - y).square().sum(), len(y)))",
         "outputs = losses\n    return {'rmse': sum((o[0] / o[1]) ** 0.5 for o in outputs) / len(outputs)}", FAIL),
        ("losses.append(((logits[..., 0] - y).square().sum(), len(y)))",
         "rows = sum(n for _, n in losses)\n    return {'rmse': (sum(s for s, _ in losses) / rows) ** 0.5}", NOT_SEEN),
    ],
)  # fmt: skip
def test_a_number_of_rows_is_no_number_of_full_batches_and_a_mean_of_roots_no_root(text, after, expected):
    source = LOOP.format(text="\n        ".join(text.splitlines()), after=after, ignored=-100, tail=6)
    source = source.replace("PAD = 0", "PAD, BATCH = 0, 3") + UNEVEN
    assert results_of(run_of(source, "train.py").run)[ALIKE].verdict is expected


@pytest.mark.parametrize(
    ("collected", "after", "is_told"),
    [
        ("scores.append(f1_score(y, p))", "np.mean(scores)", True),
        ('scores.append(report(y, p)["macro_f1"])', "sum(scores) / len(scores)", True),
        ("scores.append(report(y, p).recall)", "np.mean(scores)", True),
        ("total += macro_f1(y, p)", "total / len(loader)", True),
        ("total += macro_f1(y, p)", "total / 3", False),  # of three runs, and not of batches
        ("total += accuracy(y, p)", "total / len(loader)", False),
        ('scores.append(report(y, p)["loss"])', "np.mean(scores)", False),
        ('scores.append(report(y, p)["macro_f1"])', "max(scores)", False),
    ],
)
def test_a_measure_that_is_no_mean_over_rows_is_not_averaged_over_batches(collected, after, is_told):
    tree = ast.parse(f"def evaluate(loader):\n    for y, p in loader:\n        {collected}\n    return {after}")
    source = Source("evaluate.py", tree)
    told = [found for node in source.nodes for found in measures._means_of_ratios(source, node)]
    assert bool(told) == is_told
