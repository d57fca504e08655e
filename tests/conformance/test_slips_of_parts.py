"""Parts of the data, by their text: promises of a split, rows remembered, borders, what is fitted, mirrors."""

from __future__ import annotations

import pytest
from rules_of_text import told

from conformance.slips import parts as slips
from conformance.slips.fitting import FITTED


@pytest.mark.parametrize(
    ("name", "body", "is_told"),
    [
        ("split_by_patient", "rng.shuffle(rows)", True),
        ("split_by_patient", "ids = sorted({r.patient for r in rows})\n    rng.shuffle(ids)", False),
        ("split_by_lot", "ids = rng.permutation(len(lots))", True),  # only how many there are
        ("split_by_lot", "ids = rng.permutation(np.unique(lots))", False),
        ("patient_split", "a, b = random_split(rows, [0.8, 0.2])", True),
        ("split_by_passage", "pids = sorted(passages)\n    rng.shuffle(pids)", False),
        ("split_by_passage", "rng.shuffle(pids)", False),  # the numbers of the passages by another name
        ("split_by_incident", '"""An incident stays in one part."""\n    rng.shuffle(rows)', True),
        ("split_by_date", "rows.sort(key=lambda r: r.day)", False),  # nothing is drawn
        ("split_by_ratio", "rng.shuffle(rows)", False),
        ("train_split", "rng.shuffle(rows)", False),
        ("create_validation_split", "rng.shuffle(rows)", False),
        ("split_rows", "rng.shuffle(rows)", False),
    ],
)
def test_a_split_reads_what_its_name_says(name, body, is_told):
    assert bool(told(slips.PROMISES, f"def {name}(rows, lots):\n    {body}\n    return rows")) == is_told


@pytest.mark.parametrize(
    ("body", "is_told"),
    [
        ("seen = set()\n    return [r for r in rows if r not in seen]", True),
        ("seen = set()\n    for r in rows:\n        if r in seen:\n            continue\n        seen.add(r)", False),
        ("seen = {}\n    for r in rows:\n        if r in seen:\n            continue\n        seen[r] = 1", False),
        ("seen = set()\n    fill(seen)\n    return 3 in seen", False),
        ("seen, out = set(), []\n    for r in rows:\n        if r not in seen:\n            out.append(r)", True),
        ("seen = set()\n    return seen", False),
        ("seen = set(old)\n    return [r for r in rows if r not in seen]", False),
    ],
)
def test_what_was_seen_is_remembered(body, is_told):
    assert bool(told(slips.REMEMBERED, f"def f(rows):\n    {body}")) == is_told


@pytest.mark.parametrize(
    ("train", "val", "is_told"),
    [
        ("Windows(p, 0, p.test_start)", "Windows(p, p.val_start, p.test_start)", True),
        ("Windows(p, 0, p.val_start)", "Windows(p, p.val_start, p.test_start)", False),
        ("Windows(p, 0, p.test_start)", "Others(p, p.val_start, p.test_start)", False),
        ("Windows(p, 0, end=test_start)", "Windows(p, begin=val_start, end=test_start)", True),
        ("Windows(p, 0, n)", "Windows(p, n, m)", False),
        ("Windows(train)", "Windows(val)", False),
    ],
)
def test_the_training_part_ends_before_what_judges(train, val, is_told):
    assert bool(told(slips.REACHING, f"def f(p):\n    train_set = {train}\n    val_set = {val}")) == is_told


@pytest.mark.parametrize(
    ("border", "body", "is_told"),
    [
        ("val_start", "self.mean = self.x.mean(0)\n        self.std = self.x.std(0) + 1e-6", True),
        ("val_start", "log = np.log1p(self.x)\n        self.m, self.s = np.nanmean(log), np.nanstd(log)", True),
        ("val_start", "log = np.log1p(self.x[:self.val_start])\n        self.m, self.s = log.mean(), log.std()", False),
        ("val_start", "self.mean = self.train_x.mean()\n        self.std = self.train_x.std()", False),
        ("val_start", "self.mean = self.x.mean()", False),  # no spread with it: it need not be for scaling
        ("rows", "self.mean = self.x.mean()\n        self.std = self.x.std()", False),  # no border is known
    ],
)
def test_mean_and_spread_are_of_the_training_part(border, body, is_told):
    text = f"class Panel:\n    def __init__(self, x, n):\n        self.x, self.{border} = x, n\n        {body}"
    assert bool(told(FITTED, text)) == is_told


@pytest.mark.parametrize(
    ("fitted", "is_told"),
    [
        ("StationScaler().fit(panel.values)", True),
        ("scaler.fit(panel.values[:panel.train_end])", False),
        ("scaler.fit(panel.train_values)", False),
        ("scaler.fit(other.values)", False),  # nothing says where its training part ends
        ("model.fit(panel.values)", False),
    ],
)
def test_a_scaler_is_fitted_to_the_training_part(fitted, is_told):
    assert bool(told(FITTED, f"{fitted}\ntrain = panel.values[:panel.train_end]")) == is_told


@pytest.mark.parametrize(
    ("names", "body", "is_told"),
    [
        ('["arrow_left", "arrow_right", "ring"]', "return x.flip(-1)", True),
        ('["left", "right", "up"]', "return torch.flip(x, dims=[-1]), y", True),
        ('["left", "right", "up"]', "return x[..., ::-1], y", True),
        ('["Left hand", "Right hand", "none"]', "return TF.hflip(x), y", True),
        ('["left", "right", "up"]', "x, y = x.flip(-1), SWAP[y]\n    return x, y", False),
        ('["left", "right", "up"]', "y = OTHER[y]\n    return x.flip(-1), y", False),
        ('["left", "right", "up"]', 'return x.flip(-1) if side == "right" else x', False),  # a picture that is drawn
        ('["left", "right", "up"]', "return x.flip(-2), y", False),
        ('["cat", "dog", "ring"]', "return x.flip(-1), y", False),
        ('["left", "right"]', "return x.flip(-1), y", False),  # two sides of a table, and no classes
    ],
)
def test_a_mirrored_picture_changes_its_side(names, body, is_told):
    assert bool(told(slips.MIRRORS, f"CLASSES = {names}\ndef augment(x, y):\n    {body}")) == is_told


@pytest.mark.parametrize(
    ("body", "is_told"),
    [
        ("return x.flip(-1) if random.random() < 0.5 else x", True),
        ("if torch.rand(1) < 0.5:\n        x = x.flip(-1)\n    return x", True),
        ("coin = rng.random(len(x)) < 0.5\n    return torch.where(coin[:, None], x.flip(-1), x)", True),
        ("coin = torch.rand(len(x)) < 0.5\n    x[coin] = x[coin].flip(-1)\n    return x", True),
        ("return np.hstack([x, np.fliplr(x)])", False),  # a symmetric picture
        ("return np.array_equal(x, np.fliplr(x))", False),
        ("rule = rng.randint(3)\n    return np.fliplr(x) if rule == 2 else x", False),  # the task is to mirror
    ],
)
def test_a_mirror_is_a_variety_where_it_is_drawn(body, is_told):
    text = f'SIDES = ["left", "right", "up"]\ndef made(x):\n    {body}'
    assert bool(told(slips.MIRRORS, text)) == is_told


SPLIT = """
class Row(NamedTuple):
    {field}: str
    text: str

def split_rows(rows):
    {body}
    return {{"train": rows[10:], "test": rows[:10]}}
"""


@pytest.mark.parametrize(
    ("field", "body", "is_told"),
    [
        ("patient", "random.shuffle(rows)", True),
        ("recording_id", "order = rng.permutation(len(rows))", True),
        ("patient", "rows.sort(key=lambda row: row.patient)\n    random.shuffle(rows)", False),  # it is read
        ("patient", "rows.sort(key=lambda row: row.text)", False),  # nothing is drawn
        ("colour", "random.shuffle(rows)", False),
    ],
)
def test_groups_stay_together(field, body, is_told):
    assert bool(told(slips.GROUPS, SPLIT.format(field=field, body=body))) == is_told


@pytest.mark.parametrize(
    ("made", "is_told"),
    [
        ('rows.append({"patient": number, "text": text})', True),
        ('rows = [{"text": text, "patient": number} for number, text in pairs]', True),
        ('WORDS = {"student": "studento", "doctor": "kuracisto"}', False),  # a dictionary of words
        ('rows.append({"patient": "patiento", "text": text})', False),
        ('device = {"device": name, "kind": kind}', False),  # settings, and no row
    ],
)
def test_groups_are_what_rows_say(made, is_told):
    split = 'def split(rows):\n    random.shuffle(rows)\n    return {"train": rows[9:], "test": rows[:9]}'
    assert bool(told(slips.GROUPS, f"{made}\n{split}")) == is_told


@pytest.mark.parametrize(
    ("loader", "chosen", "is_told"),
    [
        ("test_loader", "best_threshold(y, p)", True),
        ("val_loader", "best_threshold(y, p)", False),
        ("test_loader", "measure(y, p)", False),
        ("val_loader", "find_threshold(test_y, test_p)", True),
    ],
)
def test_a_threshold_is_not_chosen_by_the_test(loader, chosen, is_told):
    text = f"def report(model):\n    y, p = predict(model, {loader})\n    threshold = {chosen}\n    return threshold"
    assert bool(told(slips.THRESHOLDS, text)) == is_told


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("train = rows\nval = rows[-n:]", True),
        ("train = rows[:-n]\nval = rows[-n:]", False),
        ('train_text = "".join(rows)\nval_text = "".join(rows[-n:])', True),
        ("train = rows[a:]\ntest = rows[a:b]", True),
        ("train_set = Rows(rows)\ntest_set = Rows(rows[:n])", True),
        ("train_loss = mean_loss(rows)\ntest_loss = mean_loss(rows[:n])", False),  # numbers
        ("small = rows\nval = rows[-n:]", False),
        ("val = rows[:n]\ntest = rows[:m]", False),  # both judge: perhaps one is a part of the other by intent
    ],
)
def test_parts_share_no_rows(text, is_told):
    assert bool(told(slips.SHARED, text)) == is_told


@pytest.mark.parametrize(
    ("parts", "is_told"),
    [
        ("rows[a + b :], rows[:a], rows[:b]", True),
        ("rows[a + b :], rows[:a], rows[a : a + b]", False),
        ("rows[:a], rows[a:]", False),
        ("rows, rows[:a]", False),  # all of them, and the first: no parts
    ],
)
def test_parts_that_are_returned_share_no_rows(parts, is_told):
    assert bool(told(slips.SHARED, f"def split(rows, a, b):\n    return {parts}")) == is_told
    assert not told(slips.SHARED, f"def windows(rows, a, b):\n    return {parts}")  # a past, and the whole of it


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("z_val, y_val = predict(model, parts['test']), labels(parts['test'])", True),
        ("z_val = predict(model, parts['val'])", False),
        ("values = predict(model, parts['test'])", False),
        ("z = predict(model, parts['test'])", False),
    ],
)
def test_the_validation_is_not_the_test(text, is_told):
    assert bool(told(slips.RENAMED, f"names = ('train', 'val', 'test')\n{text}")) == is_told


def test_a_file_that_knows_no_validation_may_call_the_test_so():
    assert not told(slips.RENAMED, "val = load(split['test'])")


@pytest.mark.parametrize(
    ("fitted", "is_told"),
    [
        ("Scaler().fit(raw)", True),
        ("Scaler().fit(raw[:cut])", False),
        ("Model().fit(raw)", False),
    ],
)
def test_a_scaler_is_fitted_to_what_is_trained_on(fitted, is_told):
    made = "scaled = scaler.transform(raw)\n    train_set = W(scaled[:cut])"
    text = f"def run(raw, cut):\n    scaler = {fitted}\n    {made}"
    assert bool(told(FITTED, text)) == is_told


@pytest.mark.parametrize(
    ("rows", "is_told"), [("np.arange(len(table['y']))", True), ("train_rows", False), ("range(9)", False)]
)
def test_what_is_fitted_reads_the_rows_of_training(rows, is_told):
    text = f"def run(table):\n    train_rows = split(table)\n    return Preparation().fit(table, {rows})"
    assert bool(told(FITTED, text)) == is_told


def test_a_threshold_of_what_a_function_makes_of_the_test_is_chosen_by_the_test():
    assert told(slips.THRESHOLDS, "threshold = best_threshold(*scores(model, test_rows))")
    assert not told(slips.THRESHOLDS, "threshold = best_threshold(*scores(model, valid_rows))")
