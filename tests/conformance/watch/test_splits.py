"""Parts of the data that overlap, or are taken for others, are told; what is right and near them is not."""

import re

import pytest

torch = pytest.importorskip("torch")

from conformance.mutated import run_of  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402
from conformance.watch.verdicts import results_of  # noqa: E402

FAIL, NOT_SEEN = Verdict.FAIL, Verdict.NOT_SEEN
LOOP = """
import random
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
data, n, size, length = torch.randn(40, 4), 30, 8, 8
others = torch.randn(10, 4)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(data), data[:, :1]).backward()
    optimizer.step()
def evaluate(model, rows, *options):
    return model(rows).mean().item()
"""


def judged(claim, text, line=""):
    """The verdict of a claim on a script that has this text below its loop; with `line`, that this is named."""
    source = LOOP + text
    found = results_of(run_of(source, "train.py").run)[claim]
    if found.verdict is FAIL and line:
        number = int(re.search(r":(\d+):", found.place).group(1))
        assert source.splitlines()[number - 1].strip() == line, found.place
    return found.verdict


OVERLAP = "run-parts-are-apart"


@pytest.mark.parametrize(
    "text",
    [
        "train_data = data\nval_data = data[n:]",
        "train_rows, test_rows = data, data[:10]",
        "train_set, dev_set = data[:n], data[:5]",
        "trainX = data[5:]\ntestX = data[n:]",
        "def split():\n    train, valid = data, data[n:]\n    return train, valid",
    ],
)
def test_parts_that_overlap_are_told(text):
    assert judged(OVERLAP, text, next(one.strip() for one in text.splitlines() if "train" in one)) is FAIL


@pytest.mark.parametrize(
    "text",
    [
        "train_data = data[:n]\nval_data = data[n:]",
        "train_rows, test_rows = data[10:], data[:10]",
        "train_data = data\nval_data = others[n:]",
        "train_data = data\nval_data = data",
        "train_data = data\neval_data = data[:5]",
        "train_data = data\ntrain_val_data = data[:5]",
        "train_data, val_data = data, data[n:]\ntrain_data = data[:n]",
        "rows = [*data]\ntrain, val = rows, rows[n:]\ndel rows[n:]",
        "if n > 99:\n    train_data = data\nelse:\n    train_data, val_data = data[:n], data[n:]",
        "train_data = data[:n]\ndata = data[n:]\nval_data = data[:5]",
        "train_ids, test_ids = data[:, :2], data[:, :1]",
    ],
)
def test_parts_that_are_apart_or_whole_are_not_told(text):
    assert judged(OVERLAP, text) is NOT_SEEN


NAMED = "run-part-that-is-named-is-taken"
PARTS = "train_data, val_data = data[:n], data[n:]\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("val_loss = evaluate(model, train_data)", "val_loss = evaluate(model, train_data)"),
        ("def late():\n    test_acc = evaluate(model, DataLoader(train_data, size))", ""),
        (
            "val_loader = DataLoader(train_data, batch_size=size)",
            "val_loader = DataLoader(train_data, batch_size=size)",
        ),
        ("val_dl = DataLoader(TensorDataset(train_data), size)", ""),
        ("val_loss = 0\nfor row in train_data:\n    val_loss += evaluate(model, row)", "for row in train_data:"),
        (
            "def get(split):\n    rows = train_data\n    return rows[:2]\nfound = [get(s) for s in ('train', 'val')]",
            "rows = train_data",
        ),
        ("out = {}\nfor split in ['train', 'val']:\n    out[split] = dict(train=data, val=data).get('train')", ""),
        ("best_val_loss, train_loss = 9, 1\nif train_loss < best_val_loss:\n    best_val_loss = train_loss", ""),
    ],
)
def test_training_data_in_the_place_of_others_are_told(text, line):
    assert judged(NAMED, PARTS + text, line) is FAIL


@pytest.mark.parametrize(
    "text",
    [
        "val_loss = evaluate(model, val_data)",
        "train_loss = evaluate(model, train_data)",
        "test_acc = evaluate(model, train_data, val_data)",
        "train_batch_size = 8\nval_loss = evaluate(model, others, train_batch_size)",
        "train_data.collate = None\nval_loader = DataLoader(others, size, collate_fn=train_data.collate)",
        "val_data = train_data[:4]",
        "val_ids = torch.utils.data.SequentialSampler([1])\nval_dl = DataLoader(train_data, sampler=val_ids)",
        "out = {}\nfor split in ['train', 'val']:\n    out[split] = dict(train=data, val=data)[split]",
        "for split in ['train', 'val']:\n    rows = val_data if split == 'val' else data\n    kind = str('train')",
        "def get(split):\n    return train_data if split == 'train' else val_data\nfound = [get('train'), get('val')]",
        "def get(split):\n    return train_data\nfound = get('train')",
        "train_loss = 0\nfor row in train_data:\n    train_loss += evaluate(model, row)",
        "test_score = evaluate(model, others, train_data)",
        "best_val_loss, val_loss = 9, 1\nif val_loss < best_val_loss:\n    best_train_loss = 2",
        "val_loss = 0\nfor row in train_data:\n    for other in val_data:\n        val_loss += evaluate(model, other)",
    ],
)
def test_data_that_are_taken_as_they_are_named_are_not_told(text):
    assert judged(NAMED, PARTS + text) is NOT_SEEN


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("at = torch.randint(length, (4,))\nx = [data[i : i + length] for i in at]", FAIL),
        ("at = torch.randint(0, length, (4,))\nfor i in at:\n    x = data[i : i + length]", FAIL),
        ("at = random.randrange(length)\nx = data[at : at + length]", FAIL),
        ("at = torch.randint(len(data) - length, (4,))\nx = [data[i : i + length] for i in at]", NOT_SEEN),
        ("high = len(data) - length\nat = torch.randint(high, (4,))\nx = [data[i : i + length] for i in at]", NOT_SEEN),
        ("at = torch.randint(length, (4,))\nx = data[at]", NOT_SEEN),
        ("at = torch.randint(length, (4,))\nx = [data[i : i + length] for i in range(3)]", NOT_SEEN),
    ],
)
def test_pieces_that_begin_in_the_first_one_are_told(text, expected):
    line = next(one for one in text.splitlines() if one.startswith("at ="))
    assert judged("run-crops-begin-everywhere", text, line) is expected


SCALED = "mean, std = data.mean(), data.std()\ntrain_x = (data[:n] - mean) / std\n"
COMPOSED = (
    "class Compose(list):\n    def __init__(self, steps):\n        super().__init__(steps)\n"
    "Normalize = ToTensor = str\ntrain_transform = Compose([ToTensor(), Normalize()])\n"
)
FITTED = (
    "class Scaler:\n    def fit_transform(self, x):\n        return x\n    transform = fit_transform\n"
    "scaler = Scaler()\ntrain_x = scaler.fit_transform(data[:n])\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SCALED + "val_x = data[n:]", FAIL),
        (SCALED + "val_x = (data[n:] - mean) / std", NOT_SEEN),
        (SCALED + "val_x = data[n:]\nval_x = (val_x - mean) / std", NOT_SEEN),
        (SCALED + "val_x = data[n:]\nready = (val_x - mean) / std", NOT_SEEN),
        (SCALED + "val_y = others[n:]", NOT_SEEN),
        (COMPOSED + "test_transform = Compose([ToTensor()])", FAIL),
        (COMPOSED + "test_transform = Compose([ToTensor(), Normalize()])", NOT_SEEN),
        (COMPOSED + "test_target_transform = Compose([ToTensor()])", NOT_SEEN),
        (FITTED + "test_x = scaler.fit_transform(data[n:])", FAIL),
        (FITTED + "test_x = scaler.transform(data[n:])", NOT_SEEN),
    ],
)
def test_parts_that_are_scaled_otherwise_are_told(text, expected):
    assert judged("run-parts-are-scaled-alike", text, text.splitlines()[-1]) is expected


@pytest.mark.parametrize(
    ("given", "parts", "expected"),
    [
        ("train_x[:9], train_y[:9]", "val_x, val_y = data[n:], data[n:]", FAIL),
        ("train_x, train_y", "val_x, val_y = data[n:], data[n:]", FAIL),
        ("val_x, val_y", "val_x, val_y = data[n:], data[n:]", NOT_SEEN),
        ("train_x[-9:], train_y[-9:]", "kept = data[n:]", NOT_SEEN),  # its own way of keeping some apart
    ],
)
def test_a_measure_of_pieces_of_the_training_data_is_told(given, parts, expected):
    text = f"train_x, train_y = data[:n], data[:n]\n{parts}\nvalidation_loss = evaluate\n"
    line = f"val = validation_loss(model, {given})"
    assert judged("run-part-that-is-named-is-taken", text + line, line) is expected


FITS = (
    "class Scaler:\n    def fit(self, x):\n        return self\n    def transform(self, x):\n        return x\n"
    "scaler = Scaler().fit({0})\nvalues = scaler.transform(data)\n{1}"
)
CUT, CALLED = (
    "train_x, test_x = values[:n], values[n:]",
    "train_set, val_set = torch.utils.data.random_split(values, [30, 10])",
)


@pytest.mark.parametrize(
    ("fitted", "cut", "expected"),
    [
        ("data", CUT, FAIL),
        ("data", CALLED, FAIL),
        ("data", "train_x = data[:n]\nval_x = data[n:]", FAIL),
        ("data[:n]", CUT, NOT_SEEN),
        ("train_x", CUT.replace("values", "data"), NOT_SEEN),
        ("data", "train_x = values\ntest_x = scaler.transform(others)", NOT_SEEN),
    ],
)
def test_a_scaler_that_is_fitted_to_all_is_told(fitted, cut, expected):
    before = "train_x = data[:n]\n" if fitted == "train_x" else ""
    text = before + FITS.format(fitted, cut)
    assert judged("run-scaling-is-fitted-in-training", text, f"scaler = Scaler().fit({fitted})") is expected


@pytest.mark.parametrize(("fitted", "expected"), [("data[train]", NOT_SEEN), ("data", FAIL), ("data[order]", NOT_SEEN)])
def test_a_scaler_that_is_fitted_to_all_beside_one_of_the_training_rows_is_told(fitted, expected):
    text = FITS.partition("scaler")[0] + (
        "order = torch.randperm(len(data))\nval, train = order[:4], order[4:]\nlabels = data[:, :1]\n"
        f"x_scaler = Scaler().fit({fitted})\ny_scaler = Scaler().fit(labels[train])\n"
        "def rows(which):\n    return x_scaler.transform(data[which]), y_scaler.transform(labels[which])\n"
    )
    line = f"x_scaler = Scaler().fit({fitted})"
    assert judged("run-scaling-is-fitted-in-training", text, line) is expected
