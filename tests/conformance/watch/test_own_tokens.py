"""A token that is its own label: a leak where its answer depends on it, and none where it is read from the token before
it, as in models of decisions."""

import pytest

torch = pytest.importorskip("torch")

from conformance.mutated import run_of  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402
from conformance.watch.verdicts import results_of  # noqa: E402

SCRIPT = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
class Decider(nn.Module):
    def __init__(self, n=9, width=16):
        super().__init__()
        self.states, self.actions = nn.Embedding(30, width), nn.Embedding(n, width)
        self.layer, self.head = nn.TransformerEncoderLayer(width, 2, 24, 0.0, batch_first=True), nn.Linear(width, n)
    def forward(self, states, actions):
        x = torch.stack([self.states(states), self.actions(actions)], 2).flatten(1, 2)
        future = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
        return self.head(self.layer(x, future)[:, {read}::2])
model = Decider()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
states, actions = torch.randint(30, (64, 7)), torch.randint(9, (64, 7))
for step in range(12):
    at = slice(8 * (step % 8), 8 * (step % 8) + 8)
    optimizer.zero_grad()
    F.cross_entropy(model(states[at], actions[at]).flatten(0, 1), actions[at].flatten()).backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("read", "verdict"), [(0, Verdict.PASS), (1, Verdict.FAIL)])
def test_an_action_is_asked_of_the_state_before_it(read, verdict):
    results = results_of(run_of(SCRIPT.format(read=read), "train.py", steps=40).run)
    assert results["run-input-does-not-hold-its-answer"].verdict is verdict
