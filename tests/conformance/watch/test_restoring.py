"""What is saved of a run and never read again, where the script goes on from its checkpoint."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from conformance.mutated import run_of  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402
from conformance.watch.verdicts import results_of  # noqa: E402

SCRIPT = """
import os
import torch
from torch import nn
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.optim.lr_scheduler.ConstantLR(optimizer)
start = 0

def save(step):
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step,
             "schedule": schedule.state_dict()}
    torch.save(state, "no_folder_of_a_test.pt.tmp") if False else None

if os.path.exists("no_such_checkpoint_of_a_test.pt"):
    checkpoint = torch.load("no_such_checkpoint_of_a_test.pt")
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
    schedule.load_state_dict(checkpoint["schedule"])
    start = checkpoint["step"]
for step in range(start, 4):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.randn(5, 4)), torch.randint(3, (5,))).backward()
    optimizer.step()
    schedule.step()
"""
OPTIMIZER = '    optimizer.load_state_dict(checkpoint["optimizer"])\n'
SCHEDULE = '    schedule.load_state_dict(checkpoint["schedule"])\n'
START = '    start = checkpoint["step"]\n'
FAIL, NOT_SEEN = Verdict.FAIL, Verdict.NOT_SEEN


@pytest.mark.parametrize(
    ("left_out", "verdict"),
    [
        ([], NOT_SEEN),
        ([OPTIMIZER], FAIL),
        ([SCHEDULE], FAIL),
        ([OPTIMIZER, SCHEDULE], FAIL),  # it counts on
        ([OPTIMIZER, SCHEDULE, START], NOT_SEEN),  # the weights alone begin anew
    ],
)
def test_state_that_is_saved_and_never_read_is_told(left_out, verdict):
    text = SCRIPT
    for line in left_out:
        assert text.count(line) == 1
        text = text.replace(line, "")
    found = results_of(run_of(text, "train.py").run)["run-resuming-restores-all"]
    assert found.verdict is verdict
    if verdict is FAIL:
        assert "load_state_dict" in found.place


def test_the_epoch_of_the_best_weights_is_no_start():
    text = SCRIPT.replace(OPTIMIZER, "").replace(SCHEDULE, "").replace("start = checkpoint", "best_epoch = checkpoint")
    assert results_of(run_of(text, "train.py").run)["run-resuming-restores-all"].verdict is NOT_SEEN


AVERAGED = (
    (
        '             "schedule": schedule.state_dict()}',
        '             "schedule": schedule.state_dict(), "ema": ema.state_dict()}',
    ),
    ("start = 0\n", "start = 0\nema = nn.Linear(4, 3)\n"),
)


@pytest.mark.parametrize(("line", "verdict"), [("", FAIL), ('    ema.load_state_dict(checkpoint["ema"])\n', NOT_SEEN)])
def test_an_average_that_is_saved_is_read_where_a_run_goes_on(line, verdict):
    text = SCRIPT.replace(START, '    start, seen = checkpoint["step"], 0\n' + line)
    for old, new in AVERAGED:
        assert text.count(old) == 1
        text = text.replace(old, new)
    assert results_of(run_of(text, "train.py").run)["run-resuming-restores-all"].verdict is verdict


ANEW = "    model = nn.Linear(4, 3)\n"


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ([(OPTIMIZER, ANEW + OPTIMIZER)], FAIL),
        ([(OPTIMIZER, ANEW + "    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n")], NOT_SEEN),
        ([("start = 0\n", "start = 0\nmodel = torch.compile(model) if False else model\n")], NOT_SEEN),
        ([("    schedule.step()\n", "    schedule.step()\nmodel = nn.Linear(4, 3)\n")], NOT_SEEN),  # to be judged
        ([("torch.optim.SGD(model.parameters(), lr=0.1)", "make_optimizer(model)"), (OPTIMIZER, ANEW)], FAIL),
    ],
)
def test_a_model_is_not_made_anew_behind_its_optimizer(changes, verdict):
    text = SCRIPT
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    made = "def make_optimizer(net):\n    return torch.optim.SGD(net.parameters(), lr=0.1)\nmodel = nn.Linear(4, 3)\n"
    text = text.replace("model = nn.Linear(4, 3)\n", made, 1)
    found = results_of(run_of(text, "train.py").run)["run-optimizer-is-of-the-model-that-goes-on"]
    assert found.verdict is verdict
    if verdict is FAIL:
        assert "model = nn.Linear(4, 3)" in found.place
