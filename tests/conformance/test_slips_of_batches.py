"""What becomes of rows on the way into batches: changes, flips, orders, labels of parts, trainers."""

from __future__ import annotations

import pytest
from rules_of_text import told

from conformance.slips import batches as slips


@pytest.mark.parametrize(
    ("option", "loaded", "is_told"),
    [
        ("augment=True", "DataLoader(dev, collate_fn=collate)", True),
        ("augment=True", "DataLoader(train, collate_fn=collate)", False),
        ("augment=True", "DataLoader(values, collate_fn=collate)", False),
        ("augment=True", "DataLoader(args.devSet, collate_fn=collate)", True),
        ("augment=False", "DataLoader(dev, collate_fn=collate)", False),
        ("pad=True", "DataLoader(dev, collate_fn=collate)", False),
        ("augment=True", "DataLoader(dev, collate_fn=partial(collate, augment=False))", False),
    ],
)
def test_what_judges_is_not_changed_by_default(option, loaded, is_told):
    assert bool(told(slips.CHANGED, f"def collate(rows, {option}):\n    return rows\nloader = {loaded}")) == is_told


@pytest.mark.parametrize(
    ("done", "is_told"), [("rows = noisy(rows, rng.random())", True), ("rows = labelled(rows)", False)]
)
def test_an_option_for_training_may_say_something_else(done, is_told):
    text = f"def collate(rows, train=True):\n    if train:\n        {done}\n    return rows\n"
    assert bool(told(slips.CHANGED, f"{text}DataLoader(dev, collate_fn=collate)")) == is_told


@pytest.mark.parametrize(
    ("made", "is_told"),
    [
        ("val_set = Pictures(val_rows)", True),
        ("val_set = Pictures(val_rows, False)", False),
        ("val_set = Pictures(val_rows, augment=False)", False),
        ("train_set = Pictures(train_rows)", False),
        ("val_set = Pictures(val_rows, **options)", False),
    ],
)
def test_a_dataset_of_what_judges_is_told_to_change_nothing(made, is_told):
    text = f"class Pictures(Dataset):\n    def __init__(self, rows, augment=True):\n        pass\n{made}"
    assert bool(told(slips.CHANGED, text)) == is_told


@pytest.mark.parametrize(
    ("first", "second", "is_told"),
    [
        ("x.flip(-1)", "x.flip(0)", True),
        ("torch.flip(x, [2])", "torch.flip(x, [-3])", True),
        ("x.flip(-1)", "x.flip(-2)", False),
        ("x.flip(0)", "x", False),  # a row of numbers, perhaps
        ("x.flip(-1)", "y.flip(0)", False),
    ],
)
def test_pictures_are_not_flipped_over_their_colours(first, second, is_told):
    text = f"def augment(x, y):\n    if torch.rand(()) < 0.5:\n        x = {first}\n    return {second}"
    assert bool(told(slips.COLOURS, f"{text} - mean.view(3, 1, 1)")) == is_told
    assert not told(slips.COLOURS, text)  # a picture without colours has its rows first


@pytest.mark.parametrize(
    ("drawn", "is_told"),
    [
        ("shuffled = rng.choices(range(len(x)), k=len(x))", True),
        ("shuffled = rng.sample(range(len(x)), len(x))", False),
        ("bootstrap = rng.choices(range(len(x)), k=len(x))", False),
        ("order = rng.choices(x, k=5)", False),
    ],
)
def test_an_order_has_each_row_once(drawn, is_told):
    assert bool(told(slips.REPEATS, drawn)) == is_told


@pytest.mark.parametrize(
    ("over", "calls", "is_told"),
    [
        ("dict.fromkeys(t for _, t in rows)", "encode(train_rows), encode(test_rows)", True),
        ("sorted({t for _, t in rows})", "encode(train_rows), encode(test_rows)", False),
        ("dict.fromkeys(t for _, t in rows)", "encode(train_rows)", False),
        ("NAMES", "encode(train_rows), encode(test_rows)", False),
    ],
)
def test_parts_number_their_labels_by_one_table(over, calls, is_told):
    text = f"def encode(rows):\n    label2id = {{t: i for i, t in enumerate({over})}}\n    return rows\n{calls}"
    assert bool(told(slips.NUMBERED, text)) == is_told


@pytest.mark.parametrize(
    ("given", "options", "is_told"),
    [
        ("test_set", "load_best_model_at_end=True", True),
        ("valid_set", "load_best_model_at_end=True", False),
        ("test_set", "load_best_model_at_end=False", False),
    ],
)
def test_a_trainer_chooses_by_the_validation(given, options, is_told):
    text = f"args = TrainingArguments({options})\nTrainer(model, args, eval_dataset={given})\nprint(valid_set)"
    assert bool(told(slips.TRAINERS, text)) == is_told
