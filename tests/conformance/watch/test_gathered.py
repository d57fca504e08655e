"""Functions that gather answers to a loader are evaluations, whatever they are called."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from conformance.mutated import run_of  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402
from conformance.watch.verdicts import results_of  # noqa: E402

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader

def joined(net, rows):
    {mode}
    found = []
    with {without}:
        for x in DataLoader(rows, batch_size=8):
            found.append(net(x){kept})
    return torch.cat(found)

torch.manual_seed(0)
rows = torch.randn(24, 4)
net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for epoch in range(3):
    net.train()
    for x in rows.split(8):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), x[:, :3].argmax(1)).backward()
        optimizer.step()
    print(joined(net, rows).mean())
"""


@pytest.mark.parametrize(
    ("mode", "without", "kept", "is_told"),
    [
        ("pass", "torch.no_grad()", "", True),
        ("net.eval()", "torch.no_grad()", "", False),
        ("net.train()", "torch.no_grad()", "", False),  # it is meant so
        ("pass", "torch.enable_grad()", ".detach()", False),
    ],
)
def test_answers_that_are_gathered_are_those_of_evaluation(mode, without, kept, is_told):
    results = results_of(run_of(SCRIPT.format(mode=mode, without=without, kept=kept), "train.py").run)
    assert (results["run-evaluation-is-in-evaluation-mode"].verdict is Verdict.FAIL) is is_told
