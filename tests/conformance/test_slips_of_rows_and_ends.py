"""Slips that a file's text shows by itself: figures that are kept by their worse end, what is calibrated, counted or
fitted with other rows than it may be, weekdays, histories, gains, shuffled tables. Told, and nothing near them."""

from __future__ import annotations

import pytest
from rules_of_text import told

from conformance.slips import data, fitting, judging, measures, orders, parts, results, states

STOPPER = """
class Stopper:
    def update(self, value, model):
        if value > self.best:
            self.best, self.state = value, copy.deepcopy(model.state_dict())
"""


@pytest.mark.parametrize(
    ("call", "is_told"),
    [
        ('stopper.update(v["loss"], model)', True),
        ("stopper.update(val_perplexity, model)", True),
        ('stopper.update(v["macro_f1"], model)', False),
        ('stopper.update(-v["loss"], model)', False),
        ("stopper.update(1 - val_error, model)", False),
        ("stopper.update(-accuracy, model)", True),
        ('stopper.update(v["f1_loss"], model)', False),  # which of the two it is nobody knows
        ('meter.add(v["loss"], model)', False),
    ],
)
def test_a_state_is_kept_by_the_better_end(call, is_told):
    assert bool(told(judging.STOPPED, f"{STOPPER}\n\ndef run(stopper, meter, v, model):\n    {call}")) == is_told
    smallest = STOPPER.replace(">", "<")
    assert not told(judging.STOPPED, f"{smallest}\n\ndef run(s, v, model):\n    s.update(v['loss'], model)")


@pytest.mark.parametrize(
    ("lines", "is_told"),
    [
        ("s, y = scores(net, train_loader)\n    a = fit_platt(s, y)", True),
        ("s, y = scores(net, train_loader)\n    s, y = scores(net, valid_loader)\n    a = fit_platt(s, y)", False),
        ("s, y = scores(net, train_loader)\n    a = best_epoch(s, y)", False),
    ],
)
def test_probabilities_are_calibrated_with_other_rows(lines, is_told):
    assert bool(told(judging.CALIBRATED, f"def run(net, train_loader, valid_loader):\n    {lines}")) == is_told


THRESHOLD = "def run(net, valid_loader, test_loader):\n    "


@pytest.mark.parametrize(
    ("lines", "is_told"),
    [
        ("rows = predict(net, test_loader)\n    cut = choose_threshold(rows)", True),
        ("rows = predict(net, test_loader)\n    r = score(rows, choose_threshold(rows))", True),
        (
            "rows = predict(net, valid_loader)\n    cut = choose_threshold(rows)\n    rows = predict(net, test_loader)",
            False,
        ),
    ],
)
def test_a_threshold_is_chosen_by_what_a_name_held_then(lines, is_told):
    assert bool(told(parts.THRESHOLDS, THRESHOLD + lines)) == is_told


@pytest.mark.parametrize(("by", "is_told"), [("pred == k", True), ("labels == k", False), ("pred == 3", False)])
def test_the_accuracy_of_a_class_is_over_its_rows(by, is_told):
    text = f"def class_accuracy(pred, labels, k):\n    of_k = {by}\n    return (labels[of_k] == k).float().mean()"
    assert bool(told(measures.OF_CLASSES, text)) == is_told


@pytest.mark.parametrize(("key", "is_told"), [("predicted * k + labels", True), ("labels * k + predicted", False)])
def test_a_table_that_one_function_fills_is_read_by_another_as_it_is_filled(key, is_told):
    fills = f"def confusion(predicted, labels, k):\n    return torch.bincount({key}).view(k, k)\n\n\n"
    reads = "def scores(m):\n    precision = m.diag() / m.sum(0).clamp(min=1)\n    recall = m.diag() / m.sum(1)\n"
    assert bool(told(measures.TABLES, fills + reads)) == is_told


@pytest.mark.parametrize(("days", "is_told"), [("t % 7", True), ("t // 24 % 7", False), ("day % 7", False)])
def test_weekdays_are_counted_in_days(days, is_told):
    assert bool(told(data.WEEKDAYS, f"def f(t, day):\n    hour = t % 24\n    dow = {days}")) == is_told


@pytest.mark.parametrize(
    ("cut", "pads", "is_told"),
    [
        ("row[:n]", "block[i, n - len(row):] = torch.tensor(row)", True),
        ("row[:n]", "out.append([0] * (n - len(row)) + row)", True),
        ("row[-n:]", "out.append([0] * (n - len(row)) + row)", False),
        ("row[:n]", "out.append(row + [0] * (n - len(row)))", False),
    ],
)
def test_what_is_padded_in_front_keeps_its_end(cut, pads, is_told):
    assert bool(told(data.NEWEST, f"def f(row, n, block, i, out):\n    row = {cut}\n    {pads}")) == is_told


@pytest.mark.parametrize(
    ("past", "is_told"), [("x[s, a + 1:o + 1]", True), ("x[s, a:o]", False), ("z[s, a + 1:o + 1]", False)]
)
def test_windows_of_one_of_several_series_end_before_their_target(past, is_told):
    assert bool(told(data.WINDOWS, f"def f(x, z, s, a, o):\n    past = {past}\n    future = x[s, o:o + 9]")) == is_told


@pytest.mark.parametrize(
    ("counts", "gain", "is_told"),
    [
        ("(scores > own).sum(1) + 1", "ranks + 2", True),
        ("(scores > own).sum(1) + 1", "ranks + 1", False),
        ("(scores > own).sum(1)", "ranks + 2", False),
    ],
)
def test_gains_begin_with_one(counts, gain, is_told):
    text = f"def rank_of(scores, own):\n    return {counts}\n\n\ndef ndcg(ranks):\n    return 1 / torch.log2({gain})"
    assert bool(told(results.FIRST_GAINS, text)) == is_told


@pytest.mark.parametrize(
    ("shuffle", "gives", "is_told"),
    [
        (True, "torch.cat([teacher(x) for x in loader])", True),
        (False, "torch.cat([teacher(x) for x in loader])", False),
        (True, "torch.cat([teacher(x) for x in rows])", False),
        (True, "torch.cat(out), torch.cat(labels)", False),  # each answer beside its label
    ],
)
def test_tables_of_answers_keep_the_order_of_rows(shuffle, gives, is_told):
    text = (
        f"def table(teacher, rows, out, labels):\n    loader = DataLoader(rows, shuffle={shuffle})\n    return {gives}"
    )
    assert bool(told(orders.SHUFFLED, text)) == is_told


@pytest.mark.parametrize(("of", "is_told"), [("net", True), ("ema.model", False), ("ema", False)])
def test_an_average_gets_its_own_state_back(of, is_told):
    keeps = f"best_state = copy.deepcopy({of}.state_dict())"
    text = f"def f(net, ema):\n    {keeps}\n    ema.model.load_state_dict(best_state)"
    assert bool(told(states.OTHERS, text)) == is_told


@pytest.mark.parametrize(
    ("train", "is_told"), [("g == 0", True), ("(g == 0) & (t < end)", False), ("make_mask(g)", False)]
)
def test_the_training_part_has_an_end(train, is_told):
    judge = "valid = (g == 1) & (t >= end)\n    test = (g == 2) & (t >= last)"
    text = f"def f(g, t, end, last):\n    train = {train}\n    {judge}"
    assert bool(told(parts.UNENDING, text)) == is_told


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("prep = Preprocessor().fit(table, train_rows | valid_rows | test_rows)", True),
        ("prep = Preprocessor().fit(table, train_rows)", False),
        ("for s in train + valid + test:\n    for i in s:\n        counts[i] += 1", True),
        ("for s in train:\n    for i in s:\n        counts[i] += 1", False),
        ("for s in train + valid + test:\n    for w in s:\n        numbers[w] += 1", False),
    ],
)
def test_fitted_and_counted_is_the_training_part(text, is_told):
    assert bool(told(fitting.FITTED, text)) == is_told


@pytest.mark.parametrize(("past", "is_told"), [("loads", True), ("loads[:, :train_end]", False)])
def test_a_scaler_that_knows_where_training_ends_cuts_all_series(past, is_told):
    text = f"""
class Scaler:
    def __init__(self, loads, warmth, train_end):
        past = {past}
        self.mean, self.std = np.nanmean(past, axis=1), np.nanstd(past, axis=1)
        self.warm, self.spread = warmth[:train_end].mean(), warmth[:train_end].std()
"""
    assert bool(told(fitting.FITTED, text)) == is_told


@pytest.mark.parametrize(
    ("name", "axis", "is_told"), [("__getitem__", 2, True), ("__getitem__", 1, False), ("f", 2, False)]
)
def test_one_picture_is_mirrored_along_its_last_axis(name, axis, is_told):
    text = f"""
KINDS = ["disc", "arrow_left", "arrow_right"]


class Pictures:
    def {name}(self, i):
        img = self.x[i]
        if torch.rand(1).item() < 0.5:
            img = torch.flip(img, dims=[{axis}])
        return img, self.y[i]
"""
    assert bool(told(parts.MIRRORS, text)) == is_told
