"""Rows that loaders share, inputs that are scaled otherwise, cosines that end elsewhere and averages that nothing asks
are told; what is near them and right is not."""

import math

import pytest

torch = pytest.importorskip("torch")

from conformance.mutants import MUTANTS  # noqa: E402
from conformance.mutants.script import FOLDER  # noqa: E402
from conformance.mutated import run_of  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402
from conformance.watch.verdicts import results_of  # noqa: E402
from conformance.watch.waves import turn_of  # noqa: E402

RIGHT = (FOLDER / "rows.py").read_text(encoding="utf-8")
LEARNS = (FOLDER / "preference.py").read_text(encoding="utf-8")
SHARED, SCALED = "run-loaders-share-no-rows", "run-inputs-are-scaled-alike"
ASKED, COMES_DOWN = "run-average-is-asked", "run-rate-of-a-cosine-comes-down"
COUNTS = "run-cosine-counts-what-it-is-stepped-with"
PARTS = "train_rows, valid_rows = Subset(rows, order[:112]), Subset(rows, order[112:])"
SETS = "train_set, valid_set = Scaled(train_rows, *known), Scaled(valid_rows, *known)"


def verdict(claim, *changes, of=RIGHT):
    source = of
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    return results_of(run_of(source, "train.py", steps=100).run)[claim].verdict


@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        ("train_rows, valid_rows = Subset(rows, order[:112]), Subset(Rows(), order[100:])", "FAIL"),
        ("train_rows, valid_rows = Subset(rows, order[:112]), Subset(rows, order[:30])", "FAIL"),
        ("train_rows, valid_rows = Subset(rows, range(112)), Subset(Subset(rows, range(90, 160)), range(50))", "FAIL"),
        ("train_rows, valid_rows = torch.utils.data.random_split(rows, [112, 48])", "PASS"),
        ("train_rows, valid_rows = rows, rows", "NOT SEEN"),
    ],
)
def test_rows_that_loaders_share_are_told(parts, wanted):
    found = verdict(SHARED, (PARTS, parts))
    assert found.value == wanted or (wanted != "FAIL" and found is not Verdict.FAIL), found


def test_rows_of_other_folds_and_of_the_training_part_are_not_told():
    folds = "for fold in range(2):\n        torch.manual_seed(1)\n        main(fold)"
    changes = [("def main():\n    torch.manual_seed(1)", "def main(fold):"), ("if __name__", "if True or __name__")]
    changes += [(PARTS, "order = sorted(order)[80 * fold :] + sorted(order)[: 80 * fold]\n    " + PARTS)]
    assert verdict(SHARED, *changes, ("    main()\n", f"    {folds}\n")) is not Verdict.FAIL
    named = [("valid_loader = DataLoader(valid_set", "monitor = DataLoader(Scaled(Subset(rows, order[90:]), *known)")]
    named += [("evaluate(", "look("), ("valid_loader", "monitor")]
    assert verdict(SHARED, *named) is not Verdict.FAIL


@pytest.mark.parametrize(
    ("sets", "wanted"),
    [
        ("train_set, valid_set = Scaled(train_rows, *known), Scaled(valid_rows, 0.0, known[1])", False),
        ("train_set, valid_set = Scaled(train_rows, *known), Scaled(valid_rows, known[0] / 99, known[1] / 99)", True),
        ("known = statistics(rows)\n    " + SETS, False),
        ("train_set, valid_set = train_rows, valid_rows", False),
        ("train_set, valid_set = Scaled(train_rows, 0.0, known[1]), Scaled(valid_rows, 0.0, known[1])", False),
    ],
)
def test_inputs_that_are_scaled_otherwise_are_told(sets, wanted):
    assert (verdict(SCALED, (SETS, sets)) is Verdict.FAIL) is wanted


def test_a_cosine_of_epochs_is_stepped_with_them():
    by_batches = ("\n        schedule.step()\n", "\n            schedule.step()\n")
    assert verdict(COUNTS, by_batches) is Verdict.FAIL
    assert verdict(COUNTS, by_batches, ("T_max=EPOCHS", "T_max=EPOCHS * len(train_loader)")) is Verdict.PASS
    assert verdict(COUNTS, ("T_max=EPOCHS", "T_max=2")) is Verdict.PASS


def test_a_wave_is_known_by_its_rates():
    half = [0.01 + 0.5 * (1 + math.cos(math.pi * k / 40)) for k in range(30)]
    assert turn_of(half) == pytest.approx(math.pi / 40)
    assert turn_of([math.cos(7 * math.pi * k / 16 / 30) for k in range(30)]) is None
    assert turn_of([0.9**k for k in range(30)]) is None
    assert turn_of([1 - k / 30 for k in range(30)]) is None
    assert turn_of([]) is None


@pytest.mark.parametrize(
    "use",
    [
        "evaluate(policy, valid_loader))\n    torch.save(average.state_dict(), '/dev/null')",
        "evaluate(policy, valid_loader))\n    policy.load_state_dict(average.state_dict())",
        "evaluate(policy, valid_loader))\n    print(evaluate(average, valid_loader))",
    ],
)
def test_averages_that_are_saved_loaded_or_run_are_asked(use):
    assert verdict(ASKED, ("evaluate(average, valid_loader))", use), of=LEARNS) is not Verdict.FAIL


def test_a_plan_for_other_steps_is_no_error_where_a_run_may_end_early():
    long = ("EPOCHS * len(train_loader), 0", "9 * EPOCHS * len(train_loader), 0")
    assert verdict(COMES_DOWN, long, of=LEARNS) is Verdict.FAIL
    assert verdict(COMES_DOWN, long, ("def main():", "def main(patience=9):"), of=LEARNS) is Verdict.NOTE


@pytest.mark.parametrize(
    ("period", "expected"),
    [
        ("EPOCHS * len(train_set)", Verdict.FAIL),
        ("len(train_loader.dataset) * EPOCHS", Verdict.FAIL),
        ("EPOCHS * len(train_loader)", Verdict.NOT_SEEN),
        ("EPOCHS * len(train_set) // 16", Verdict.NOT_SEEN),
        ("EPOCHS * (len(train_set) // 16)", Verdict.NOT_SEEN),
    ],
)
def test_a_schedule_that_is_planned_in_rows_is_told(period, expected):
    by_batches = ("\n        schedule.step()\n", "\n            schedule.step()\n")
    assert verdict("run-schedule-is-planned-in-batches", by_batches, ("T_max=EPOCHS", f"T_max={period}")) is expected


@pytest.mark.parametrize(
    ("norm", "after", "expected"),
    [
        ("BatchNorm1d(16)", "", Verdict.FAIL),
        (
            "BatchNorm1d(16)",
            "for mine, its in zip(average.buffers(), model.buffers()):\n                mine.copy_(its)",
            Verdict.NOT_SEEN,
        ),
        ("LayerNorm(16)", "", Verdict.NOT_SEEN),
    ],
)
def test_an_average_without_the_statistics_of_its_norms_is_told(norm, after, expected):
    changes = [*MUTANTS["AverageWithoutStatistics"].changes, ("BatchNorm1d(16)", norm)]
    changes.append(("alpha=0.1)\n", f"alpha=0.1)\n            {after or 'pass'}\n"))
    assert verdict("run-average-has-statistics", *changes) is expected
