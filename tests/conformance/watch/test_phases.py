"""A script that trains twice is watched in both trainings, whatever the first one takes; others end where they did."""

from textwrap import indent

import pytest

torch = pytest.importorskip("torch")

from conformance.mutated import run_of as run_of_text  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402
from conformance.watch.launching import Script  # noqa: E402
from conformance.watch.script import watched  # noqa: E402
from conformance.watch.verdicts import results_of  # noqa: E402

TRAINING = """
def {name}(model, steps):
    {made}
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).square().mean().backward()
        optimizer.step()

"""
SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
CALLS = "model = torch.nn.Linear(4, 2)\npretrain(model, 40)\n"


def run_of(tmp_path, second, calls, **limits):
    text = "import torch\n" + TRAINING.format(name="pretrain", made=SGD) + TRAINING.format(name="tune", made=second)
    path = tmp_path / "train.py"
    path.write_text(f"{text}\n{CALLS}{calls}", encoding="utf-8")
    return watched(Script(str(path)), **limits)


@pytest.mark.parametrize(
    ("second", "calls", "limits", "steps", "optimizers"),
    [
        (SGD, "tune(model, 40)", {"steps": 9, "least": 5}, 49, 2),
        (SGD, "", {"steps": 9, "least": 5}, 9, 1),  # it is never called
        ("optimizer = model.optimizer", "tune(model, 40)", {"steps": 9, "least": 5}, 9, 1),  # it makes no other one
        (SGD, "tune(model, 40)", {"steps": 9}, 9, 1),  # so many steps were asked for
        (SGD, "tune(model, 4)", {"steps": 9, "least": 5}, 44, 2),  # it ends before
    ],
)
def test_a_second_training_is_watched(tmp_path, second, calls, limits, steps, optimizers):
    run = run_of(tmp_path, second, calls, **limits)
    assert (run.steps, len(run.optimizers)) == (steps, optimizers)


def test_what_is_waited_for_is_asked_once(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("conformance.watch.watcher.trains_once_more", lambda run: not asked.append(run.steps))
    assert run_of(tmp_path, SGD, "tune(model, 40)", steps=9, least=5).steps == 80
    assert asked == [9, 49]


GROUPS = """
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 99)
for group in [2, 2, 2, 2, 2, 1] * 2:
    optimizer.zero_grad()
    for _ in range(group):
        (model(torch.randn(3, 4)).square().mean() / group).backward()
{inner}
    optimizer.step()
{outer}
"""


@pytest.mark.parametrize("is_right", [True, False])
def test_the_schedule_of_the_second_training_is_looked_at(is_right):
    """The first one advances once a step. The last group of each epoch is a batch alone."""
    step = "schedule.step()"
    inner, outer = ("", indent(step, "    ")) if is_right else (indent(step, " " * 8), "")
    first = GROUPS.format(inner="", outer=indent(step, "    "))
    text = f"import torch\nmodel = torch.nn.Linear(4, 2)\n{SGD}\n{first}\n{SGD}\n"
    results = results_of(run_of_text(text + GROUPS.format(inner=inner, outer=outer), "train.py", steps=40).run)
    expected = Verdict.PASS if is_right else Verdict.FAIL
    assert results["run-schedule-advances-once-a-step"].verdict is expected
