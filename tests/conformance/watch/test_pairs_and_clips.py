"""Pairs whose logarithms are taken along the columns, and groups of an optimizer that are clipped apart."""

import pytest

torch = pytest.importorskip("torch")

from conformance.mutated import run_of  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402
from conformance.watch.verdicts import results_of  # noqa: E402

PASS, FAIL, NOTE, NOT_SEEN = Verdict.PASS, Verdict.FAIL, Verdict.NOTE, Verdict.NOT_SEEN

# --- pairs whose logarithms are taken along the columns -----------------------------------------------

DIRECTIONS, LOGARITHMS = "run-both-directions-are-asked", "run-likelihood-gets-log-probabilities"
PAIRS = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
first, second = nn.Linear(6, 8), nn.Linear(6, 8)
optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=1e-3)
for step in range(6):
    x = torch.randn(8, 6)
    scores = F.normalize(first(x), dim=-1) @ F.normalize(second(x), dim=-1).T / 0.1
    own = torch.arange(8)
    loss = F.nll_loss(scores.log_softmax(1), own) + F.nll_loss({other}, own)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("other", "directions", "logarithms"),
    [
        ("scores.log_softmax(0)", PASS, PASS),
        ("scores.T.log_softmax(1)", PASS, PASS),
        ("scores.T.log_softmax(0)", FAIL, PASS),
        ("scores.log_softmax(1)", FAIL, PASS),
        ("scores.T", NOT_SEEN, FAIL),
    ],
)
def test_logarithms_of_pairs_may_be_taken_along_the_columns(other, directions, logarithms):
    found = results_of(run_of(PAIRS.format(other=other), "train.py").run)
    assert found[LOGARITHMS].verdict is logarithms
    assert directions is NOT_SEEN or found[DIRECTIONS].verdict is directions


# --- clipping of groups ---------------------------------------------------------------------------------

CLIPS = """
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 3))
matrices, biases = ([p for p in model.parameters() if (p.dim() > 1) is big] for big in (True, False))
groups = [{{"params": matrices, "lr": {rate}}}, {{"params": biases, "weight_decay": 0.0}}]
optimizer = torch.optim.AdamW(groups, lr=1e-3)
for step in range(6):
    x = torch.randn(8, 6)
    optimizer.zero_grad()
    F.cross_entropy(model(x), x[:, :3].argmax(1)).backward()
    {clip}
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("rate", "clip", "verdict"),
    [
        ("1e-3", "nn.utils.clip_grad_norm_(model.parameters(), 1.0)", PASS),
        ("1e-3", "nn.utils.clip_grad_norm_(optimizer.param_groups[0]['params'], 1.0)", FAIL),
        ("1e-2", "nn.utils.clip_grad_norm_(matrices, 1.0)", NOTE),  # groups that learn otherwise
        ("1e-3", "[nn.utils.clip_grad_norm_(one, 1.0) for one in (matrices, biases)]", PASS),
    ],
)
def test_groups_that_differ_in_their_decay_are_clipped_together(rate, clip, verdict):
    found = results_of(run_of(CLIPS.format(rate=rate, clip=clip), "train.py").run)["run-clipping-is-of-the-global-norm"]
    assert found.verdict is verdict
