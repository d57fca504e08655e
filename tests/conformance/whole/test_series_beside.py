"""What stands beside a model of series: a function that fills batches up, and one that trains.

Beside each right function stands one with a mistake. What a method fills in has the units of the series.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from wholes import pointed, told  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.helpers.examining import examine  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.mutants.source import IMPUTER  # noqa: E402
from conformance.runner import run_check  # noqa: E402

FILLED = """
    def collate(items):
        longest = max(item.shape[0] for item in items)
        x = torch.zeros(len(items), longest, items[0].shape[1])
        valid = torch.zeros(len(items), longest, dtype=torch.bool)
        for i, item in enumerate(items):
            x[i, : item.shape[0]] = item
            valid[i, : item.shape[0]] = True
        return x, valid
"""
MARKS, KEEPS = "valid[i, : item.shape[0]] = True", "padded-batches-keep-their-texts"


def test_series_without_labels_are_filled_up(functions):
    found = examine(functions(FILLED))
    assert found.tested == {KEEPS: ["collate"]}
    assert not found.wrong


def test_a_mask_of_series_that_marks_all_is_found(functions):
    """What another order of the results would hide is no mend: by their names they are told apart."""
    (wrong,) = examine(functions(FILLED.replace(MARKS, "valid[i] = True"))).wrong
    assert (wrong.claim, "valid does not end" in wrong.trouble.sentence) == (KEEPS, True)
    assert wrong.edit is None or not wrong.edit.text


# --- data that are changed at random

HIDES = """
    def augment(x, width=3):
        '''SAYS'''
        out = xCOPIED
        start = int(torch.randint(0, x.shape[1] - width, ()))
        out[:, start : start + width] = 0.0
        return out
"""
COPIES = "augmented-data-are-copies-where-said"


@pytest.mark.parametrize(
    ("says", "copied", "found"),
    [
        ("A copy of the frames with a stretch of zeros.", ".clone()", [False]),
        ("A copy of the frames with a stretch of zeros.", "", [True]),
        ("Zeroes a stretch in place. Makes no copy.", "", []),
        ("Zeroes a stretch, without a copy.", "", []),
        ("Zeroes a stretch.", "", []),
    ],
)
def test_what_says_that_it_gives_a_copy_leaves_its_data(functions, says, copied, found):
    examined = examine(functions(HIDES.replace("SAYS", says).replace("COPIED", copied)))
    assert [bool(examined.wrong) for claim in examined.tested if claim == COPIES] == found


# --- a schedule that is planned for all steps


class Learns(nn.Module):
    """It is trained on a list of series."""

    def __init__(self, channels=3, size=4):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.enter, self.leave = nn.Linear(channels, 8), nn.Linear(8, size)
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x):
        return self.leave(self.blocks(self.enter(x)).mean(1))

    def of_steps(self, schedule):
        schedule.step()

    def of_epochs(self, schedule):
        pass

    def planned(self, epochs, items, batch_size):
        return epochs * -(-len(items) // batch_size)

    def pretrain(self, items, epochs=5, batch_size=8, lr=1e-3):
        optimizer = torch.optim.SGD(self.parameters(), lr=lr)
        steps = self.planned(epochs, items, batch_size)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=lr, total_steps=steps)
        for _ in range(epochs):
            for i in range(0, len(items), batch_size):
                optimizer.zero_grad()
                self(torch.stack([*items[i : i + batch_size]])).square().mean().backward()
                optimizer.step()
                self.of_steps(schedule)
            self.of_epochs(schedule)


class LearnsInWarmUpOnly(Learns):
    pretrain = Learns.pretrain

    def of_steps(self, schedule):
        pass

    def of_epochs(self, schedule):
        schedule.step()


class LearnsByEpochs(LearnsInWarmUpOnly):
    pretrain = Learns.pretrain

    def planned(self, epochs, items, batch_size):
        return epochs


@pytest.mark.parametrize(("cls", "verdict"), [(Learns, "PASS"), (LearnsInWarmUpOnly, "FAIL"), (LearnsByEpochs, "PASS")])
def test_a_schedule_that_is_planned_for_all_steps_moves_with_each(cls, verdict):
    claim = "functions-that-train-move-their-rate-with-the-steps"
    assert run_check(CHECKS[claim], pointed(cls), "quick").verdict.name == verdict


# --- missing steps that are filled in

GUESS, KEPT = "guess = self.rebuild(states) * std + mean", "torch.where(missing[..., None], guess, x)"
MEAN = "        mean = (x * seen).sum(1, keepdim=True) / count\n"


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "PASS"),
        ({"def impute(self, x, valid, missing)": "def fill_gaps(self, x, missing, valid)"}, "PASS"),
        ({GUESS: "guess = self.rebuild(states)"}, "FAIL"),
        ({GUESS: "guess = self.rebuild(states)", KEPT: "guess"}, "NOT_PROVIDED"),  # all of it in the model's units
        ({GUESS: "guess = self.rebuild(states)", MEAN: f"{MEAN}        mean = 0.0 * mean\n"}, "NOT_PROVIDED"),
        ({"impute(self, x, valid, missing)": "impute(self, x, valid, where)"}, "NOT_PROVIDED"),
    ],
)
def test_what_is_filled_in_has_the_units_of_the_series(made, changes, verdict):
    assert told(made, IMPUTER, "imputed-values-follow-the-series", changes) == verdict
