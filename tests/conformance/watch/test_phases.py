"""A script that trains twice is watched in both trainings, whatever the first one takes; others end where they did."""

import pytest

torch = pytest.importorskip("torch")

from conformance.watch.launching import Script  # noqa: E402
from conformance.watch.script import watched  # noqa: E402

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
