"""Losses that a script writes by hand are asked what cross-entropies are asked; right ones are not told."""

import re

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402

from conformance.mutated import run_of  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402
from conformance.watch.verdicts import results_of  # noqa: E402
from conformance.watch.written import IGNORED, labels_of  # noqa: E402

SCRIPT = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
ids = torch.randint(1, 12, (8, 10))
for row, end in zip(ids, torch.randint(4, 11, (8,))):
    row[end:] = 0
model = nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 12))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    given, y = {data}
    keep = ({keep}).float()
    {loss}
    ((loss * keep).sum() / keep.sum()).backward()
    optimizer.step()
"""
GATHER = "logp = F.log_softmax(model(given), -1); loss = -logp.gather(-1, y.unsqueeze(-1)).squeeze(-1)"
SUMMED = "logits = model(given); loss = logits.logsumexp(-1) - logits.gather(2, y[..., None])[..., 0]"
HOT = "loss = -((0.9 * F.one_hot(y, 12) + 0.1 / 12) * model(given).log_softmax(-1)).sum(-1)"
TWICE = (
    "p = F.softmax(model(given), -1)[:, :-1]; y, keep = y[:, 1:], keep[:, 1:]; "
    "loss = -p.gather(2, y[..., None])[..., 0].log()"
)
SAME, NEXT = "ids, ids.clone()", "ids[:, :-1], ids[:, 1:]"
HELD, SHIFTED, PADS = "run-input-does-not-hold-its-answer", "run-labels-are-shifted-once", "run-padding-is-in-no-loss"


@pytest.mark.parametrize(
    ("loss", "data", "keep", "told"),
    [
        (GATHER, NEXT, "y != 0", {}),
        (SUMMED, NEXT, "y != 0", {}),
        (HOT, NEXT, "y != 0", {}),
        (GATHER, SAME, "y != 0", {HELD: "given, y = ids, ids.clone()"}),
        (SUMMED, SAME, "y != 0", {HELD: "given, y = ids, ids.clone()"}),
        (HOT, SAME, "y != 0", {HELD: "given, y = ids, ids.clone()"}),
        (TWICE, NEXT, "y != 0", {SHIFTED: TWICE}),
        (GATHER, NEXT, "y >= 0", {PADS: GATHER}),
    ],
)
def test_losses_by_hand_are_asked_for_the_next_words(loss, data, keep, told):
    source = SCRIPT.format(loss=loss, data=data, keep=keep)
    results = results_of(run_of(source, "train.py", steps=2).run)
    failed = {claim: re.search(r":(\d+):", one.place) for claim, one in results.items() if one.verdict is Verdict.FAIL}
    lines = source.splitlines()
    assert {claim: lines[int(at.group(1)) - 1].strip() if at else "" for claim, at in failed.items()} == told


def test_a_gradient_tells_the_label_only_where_one_number_of_a_row_stands_out():
    picked = np.array([[0.0, -1.0, 0.0], [0.0, 0.0, 0.0], [-2.0, 0.0, 0.0]])
    assert labels_of(picked, False).tolist() == [1, IGNORED, 0]
    assert labels_of(np.array([[0.1, -0.7, 0.6], [0.4, 0.1, -0.5]]), True).tolist() == [1, 2]
    assert labels_of(np.array([[0.1, -0.7, 0.6], [0.4, 0.1, -0.5]]), False) is None  # a divergence from a teacher
    assert labels_of(np.array([[0.1, 0.7, 0.2], [0.4, 0.1, 0.5]]), True) is None  # a sum that nothing is taken from


COMPARED = """
import torch
from torch import nn
torch.manual_seed(0)
x, prices = torch.randn(16, 5), torch.randn(16)
centres = nn.Parameter(torch.randn(16))
model = nn.Linear(5, 1)
optimizer = torch.optim.SGD([*model.parameters(), centres], lr=0.1)
for step in range(2):
    optimizer.zero_grad()
    scores = model(x)
    {loss}
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("loss", "verdict"),
    [
        ("loss = (scores.squeeze(-1) - prices).square().mean()", Verdict.PASS),
        ("loss = (scores - prices[:, None]).abs().mean()", Verdict.PASS),
        ("loss = (scores - prices).square().mean()", Verdict.FAIL),
        ("loss = (prices - scores).square().mean()", Verdict.FAIL),
        ("loss = torch.relu(1 - (scores - scores.squeeze(-1))).mean()", Verdict.NOT_SEEN),  # pairs of answers
        ("loss = (x[:, :1] - centres).square().mean() + scores.mean()", Verdict.NOT_SEEN),  # and of centres
    ],
)
def test_differences_by_hand_compare_each_answer_with_its_own_target(loss, verdict):
    found = results_of(run_of(COMPARED.format(loss=loss), "train.py", steps=2).run)["run-loss-compares-like-shapes"]
    assert found.verdict is verdict
    if verdict is Verdict.FAIL:
        assert loss in found.place


JUDGED = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
ids = torch.randint(1, 12, (8, 10))
model = nn.Sequential(nn.Embedding(12, 8), nn.Linear(8, 12))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    optimizer.zero_grad()
    F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
    optimizer.step()
model.eval()
with torch.no_grad():
    {data}
    keep = asked != 3
    loss = F.cross_entropy(logits[keep], asked[keep])
model.train()
"""


@pytest.mark.parametrize(
    ("data", "verdict"),
    [
        ("logits, asked = model(ids)[:, :-1], ids[:, 1:]", Verdict.PASS),
        ("logits, asked = model(ids), ids", Verdict.FAIL),
    ],
)
def test_an_evaluation_asks_for_the_next_words_as_training_does(data, verdict):
    assert results_of(run_of(JUDGED.format(data=data), "train.py", steps=9).run)[SHIFTED].verdict is verdict


TAGGED = """
import torch
from torch import nn
torch.manual_seed(0)
rows = [torch.randint(2, 12, (n,)) for n in (5, 9, 7, 6)]
def encode(ids):
    tags = ids % 4
    tags[0] = -100
    return ids, tags
def collate(items):
    ids = nn.utils.rnn.pad_sequence([ids for ids, _ in items], batch_first=True, padding_value=1)
    tags = nn.utils.rnn.pad_sequence([tags for _, tags in items], batch_first=True, {padding})
    return ids, tags
loader = torch.utils.data.DataLoader([encode(ids) for ids in rows], batch_size=4, collate_fn=collate)
model = nn.Sequential(nn.Embedding(12, 8, padding_idx=1), nn.Linear(8, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss(ignore_index=-100)
for epoch in range(4):
    for ids, tags in loader:
        optimizer.zero_grad()
        criterion(model(ids).flatten(0, 1), tags.flatten()).backward()
        optimizer.step()
"""


@pytest.mark.parametrize(("padding", "is_told"), [("padding_value=-100", False), ("padding_value=0", True)])
def test_padding_is_asked_for_no_class(padding, is_told):
    found = results_of(run_of(TAGGED.format(padding=padding), "train.py").run)[PADS]
    assert (found.verdict is Verdict.FAIL) is is_told
    if is_told:
        assert padding in found.place
