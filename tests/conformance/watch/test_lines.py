"""The line that a FAIL names is the line of the mistake, not the one where it shows."""

import re

import pytest

torch = pytest.importorskip("torch")

import conformance.mutants  # noqa: E402, F401 (registers them)
from conformance.mutants.base import MUTANTS  # noqa: E402
from conformance.mutants.script import ScriptMutant  # noqa: E402
from conformance.mutated import implementation_of, run_of  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402
from conformance.watch.verdicts import results_of  # noqa: E402

LANGUAGE = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
V, T = 17, 8
data = torch.randint(V, (4000,))
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        x = data[i * T : i * T + T]
        y = data[i * T + 1 : i * T + 1 + T]
        return x, y
def batch(size):
    at = torch.randint(3000, (size,))
    x = torch.stack([data[i : i + T] for i in at])
    y = torch.stack([data[i + 1 : i + 1 + T] for i in at])
    return x, y
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.inner, self.head = nn.Embedding(V, 16), nn.Linear(16, 16), nn.Linear(16, V)
        self.drop = nn.Dropout(0.1)
    def forward(self, ids):
        x = self.drop(self.table(ids))
        x = torch.relu(self.inner(x))
        return self.head(x)
@torch.no_grad()
def evaluate(model):
    model.eval()
    x, y = batch(4)
    loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
    model.train()
    return loss.item()
def rate(step):
    return min(1.0, (step + 1) / 4)
model = Net()
weights = [p for p in model.parameters()]
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.AdamW(weights, lr=1e-2)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
loader = torch.utils.data.DataLoader(Rows(), batch_size=8, shuffle=True)
for step, (x, y) in enumerate(loader):
    for part in range(2):
        logits = model(x)
        loss = criterion(logits.flatten(0, 1), y.flatten())
        loss = loss / 2
        loss.backward()
    nn.utils.clip_grad_norm_(weights, 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    if step % 4 == 0:
        evaluate(model)
"""

FROM_BATCH = ("for step, (x, y) in enumerate(loader):\n", "for step in range(8):\n    x, y = batch(8)\n")
CASES = {
    "labels of a dataset": ("data[i * T + 1 : i * T + 1 + T]", "data[i * T : i * T + T]", "hold-its-answer"),
    "labels of a function": ("data[i + 1 : i + 1 + T] for", "data[i : i + T] for", "hold-its-answer", FROM_BATCH),
    "the labels of the loop": ("y.flatten())\n        loss =", "x.flatten())\n        loss =", "hold-its-answer"),
    "probabilities": ("return self.head(x)", "return self.head(x).softmax(-1)", "gets-logits"),
    "the graph is cut": ("torch.relu(self.inner(x))", "torch.relu(self.inner(x).detach())", "get-gradients"),
    "dead units": ("torch.relu(self.inner(x))", "torch.relu(self.inner(x) - 1e4)", "not-zero"),
    "not divided": ("        loss = loss / 2\n", "        loss = loss * 1\n", "is-divided"),
    "listed twice": ("[p for p in model.parameters()]", "[*model.parameters(), model.head.bias]", "in-one-optimizer"),
    "the rate": ("min(1.0, (step + 1) / 4)", "min(1, step // 4000)", "not-zero"),
    "copied after the optimizer": (
        "loader = torch",
        "import copy\nmodel = copy.deepcopy(model)\nloader = torch",
        "holds-the-model",
    ),
    "not set back": ("    model.train()\n    return", "    pass\n    return", "in-training-mode"),
    "never set": ("    model.eval()\n", "    model.train()\n", "in-evaluation-mode"),
    "seeded in the loop": (
        "        logits = model(x)",
        "        torch.manual_seed(1)\n        logits = model(x)",
        "draws-anew",
    ),
    "smoothing": ("CrossEntropyLoss()", "CrossEntropyLoss(label_smoothing=0.9)", "keeps-the-label"),
    "used up": ("[p for p in model.parameters()]", "model.parameters()", "clipping-has-gradients"),
    "flattened": ("logits.flatten(0, 1)", "logits.transpose(0, 1).flatten(0, 1)", "flattened-alike"),
    "not finite": ("        loss = loss / 2\n", "        loss = loss / 0\n", "loss-is-finite"),
}


@pytest.mark.parametrize("name", CASES)
def test_the_line_of_a_mistake_is_named(name):
    old, new, claim, *more = CASES[name]
    text = LANGUAGE
    for before, after in (*more, (old, new)):
        assert text.count(before) == 1
        begin = text[: text.index(before)].count("\n") + 1
        text = text.replace(before, after)
    wanted = {begin + number for number in range(new.rstrip("\n").count("\n") + 1)}
    failed = {s: r for s, r in results_of(run_of(text, "train.py").run).items() if r.verdict is Verdict.FAIL}
    [result] = [r for slug, r in failed.items() if slug.endswith(claim)]
    assert line(result.place) in wanted, (result.place, result.also)
    assert result.place.rpartition(": ")[2] in text


WRITER = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(17, 16), nn.Linear(16, 17)
    def generate(self, ids):
        logits = self(ids)[:, -1]
        best = logits.topk(3).values
        logits = logits.masked_fill(logits < best[:, -1:], float("-inf"))
        return torch.cat([ids, torch.multinomial(logits.softmax(-1), 1)], 1)
    def forward(self, ids):
        x = self.table(ids)
        scores = x @ x.mT / 4
        sees = torch.ones(ids.shape[1], ids.shape[1]).tril(diagonal=0)
        scores = scores.masked_fill(sees == 0, -1e9)
        return self.head(x + scores.softmax(-1) @ x)
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
ids = torch.randint(17, (8, 9))
for step in range(3):
    optimizer.zero_grad()
    F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
    optimizer.step()
"""


def test_the_line_of_a_mask_is_none_that_hides_scores_of_words():
    results = results_of(run_of(WRITER.replace("diagonal=0", "diagonal=1"), "train.py", steps=9).run)
    found = results["run-future-is-hidden"]
    assert found.verdict is Verdict.FAIL
    assert any("tril" in place for place in [found.place, *found.also])
    assert not any("best" in place for place in [found.place, *found.also])


def line(place):
    return int(re.match(r".*?\.py:(\d+)", place)[1])


@pytest.mark.deep
def test_most_mutants_are_told_their_line():
    first, total = 0, 0
    for mutant in MUTANTS.values():
        if isinstance(mutant, ScriptMutant):
            results, lines = results_of(implementation_of(mutant).run), mutant.lines()
            failed = [results[claim] for claim in mutant.breaks if results[claim].verdict is Verdict.FAIL]
            first += bool(failed) and any(line(result.place) in lines for result in failed)
            total += bool(failed)
    assert first >= 0.9 * total, (first, total)
