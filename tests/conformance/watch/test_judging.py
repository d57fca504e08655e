"""Data that judge and are made as training data are told; what is made apart, or means it so, is not."""

import ast
from unittest.mock import patch

import pytest

from conformance.watch import judging
from conformance.watch.lines import Source

ROWS = """
def rows(n, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 4, n)
    return np.stack([rng.normal(one, 1, 8) for one in labels]), labels
"""
PAIRS = """
def rows(n, seed):
    made = []
    for row in range(n):
        rng = np.random.default_rng([seed, row])
        made.append(rng.normal(size=8))
    return np.stack(made), np.arange(n)
"""
TASK = ROWS.replace("    labels", "    task = rng.normal(size=(4, 8))\n    labels")
TWO = ROWS.replace("rng.normal(one", "np.random.normal(one")


def found(of, text):
    source = Source("train.py", ast.parse(text))
    with patch.object(judging, "sources", lambda run: [source]):
        return [one.place.rpartition(":")[2] for one in of(None)]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (ROWS + "train, valid = rows(500, 3), rows(100, 3)", "6"),
        (ROWS + "train_set = TensorDataset(*rows(500, seed=3))\nval_set = TensorDataset(*rows(N_VAL, seed=3))", "7"),
        (TASK + "train = rows(500, 3)\ntest = rows(500, 3)", "8"),
        (PAIRS + "train_x, train_y = rows(500, cfg.seed)\nval_x, val_y = rows(100, cfg.seed)", "9"),
    ],
)
def test_one_seed_for_both_is_told(text, line):
    assert found(judging.same_seeds, text) == [line]


@pytest.mark.parametrize(
    "text",
    [
        ROWS + "train, valid = rows(500, 3), rows(100, 4)",
        ROWS + "train, valid = rows(500, seed), rows(100, seed)",
        ROWS + "train, more = rows(500, 3), rows(100, 3)",
        TASK + "train, valid = rows(500, 3), rows(100, 3)",
        TWO + "train, valid = rows(500, 3), rows(100, 3)",
        "train, valid = load(500, seed=3), load(100, seed=3)",
        PAIRS + "train_x, train_y = rows(500, cfg.seed)\nval_x, val_y = rows(100, cfg.seed + 1)",
        ROWS.replace("(n,", "(part, n,") + "train, valid = rows('train', 500, 3), rows('valid', 100, 3)",
    ],
)
def test_seeds_that_differ_or_have_to_be_the_same_are_not_told(text):
    assert not found(judging.same_seeds, text)


@pytest.mark.parametrize(
    ("other", "is_wrong"),
    [
        ("val_loader = DataLoader(val_set, collate_fn=Collate(augment=True))", True),
        ("test_set = Images(root, training=True)", True),
        ("test_set = Digits(root, train=True)", True),
        ("val_loader = DataLoader(val_set, collate_fn=Collate(augment=False))", False),
        ("val_set = Digits(root, train=True)", False),
        ("test_set = Subset(Digits(root, train=True), held)", False),
        ("val_tta = DataLoader(val_set, collate_fn=Collate(augment=True))", False),
        ("test_set = Others(root, train=True)", False),
    ],
)
def test_options_of_training_are_told(other, is_wrong):
    training = (
        "train_loader = DataLoader(train_set, collate_fn=Collate(augment=True))\n"
        "train_a, train_b = Images(root, training=True), Digits(root, train=True)\n"
    )
    assert found(judging.varied, training + other) == (["3"] if is_wrong else [])


OWN = """
class Shapes(Dataset):
    def __init__(self, seed, train):
        self.images, self.train = (0.1 * train, 0) if {made} else (0, 0), train
    def __getitem__(self, i):
        if self.{asked}:
            return flipped(self.images[i])
        return self.images[i]
train_set = Shapes(1, train=True)
val_set = Shapes(2, train=True)
"""


@pytest.mark.parametrize(("made", "asked", "is_wrong"), [("train", "train", True), ("train", "upright", False)])
def test_an_option_of_ones_own_that_varies_each_sample_is_for_training(made, asked, is_wrong):
    """Where it only says which part of the data is taken, the validation part is one of the training data."""
    assert found(judging.varied, OWN.format(made=made, asked=asked)) == (["10"] if is_wrong else [])
