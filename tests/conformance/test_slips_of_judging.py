"""Slips of what judges or chooses a model: told, and nothing near them."""

from __future__ import annotations

import pytest
from rules_of_text import told

from conformance.slips import bits, fitting, parts, results
from conformance.slips import judging as slips


@pytest.mark.parametrize(
    ("hits", "is_told"),
    [
        ("logits >= 0.5", True),
        ("output.logits > 0.5", True),
        ("logits >= 0", False),
        ("logits.sigmoid() >= 0.5", False),
        ("probs >= 0.5", False),
    ],
)
def test_logits_are_compared_with_nought(hits, is_told):
    assert bool(told(slips.LEVELS, f"def measure(logits, output, probs):\n    return ({hits}).float()")) == is_told


def test_logits_that_became_shares_are_compared_with_a_half():
    assert not told(slips.LEVELS, "def f(logits):\n    logits = torch.sigmoid(logits)\n    return logits > 0.5")
    assert not told(slips.LEVELS, "def f(logits, a):\n    return logits > 0.5 if a else Sigmoid()(logits) > 0.5")


@pytest.mark.parametrize(
    ("metric", "greater", "is_told"),
    [
        ("f1", False, True),
        ("eval_loss", True, True),
        ("eval_f1", True, False),
        ("loss", False, False),
        ("x", True, False),
    ],
)
def test_the_better_end_of_a_measure(metric, greater, is_told):
    text = f"args = TrainingArguments('out', metric_for_best_model='{metric}', greater_is_better={greater})"
    assert bool(told(slips.BETTER, text)) == is_told


FOLDS = "def run(folds, data):\n    {before}\n    for {loop}:\n        {inside}\n        fit(model, data[train])\n"


@pytest.mark.parametrize(
    ("before", "loop", "inside", "is_told"),
    [
        ("model = Net()", "train, held in kfold.split(data)", "pass", True),
        ("model = build_model()", "k, (train, held) in enumerate(folds)", "model.train()", True),
        ("pass", "train, held in kfold.split(data)", "model = Net()", False),
        ("model = Net()", "train, held in kfold.split(data)", "model.load_state_dict(first)", False),
        ("model = Net()", "train in range(3)", "pass", False),
        ("model = args.model", "train, held in kfold.split(data)", "pass", False),
        ("model = Net()", "train in unfolded", "pass", False),
        ("model = Net()", "train, held in kfold.split(data)", "model.apply(init)", False),
    ],
)
def test_each_fold_has_its_own_model(before, loop, inside, is_told):
    assert bool(told(slips.FOLDS, FOLDS.format(before=before, loop=loop, inside=inside))) == is_told


CHOOSES = """
def learn(model, train, val_rows, test_rows):
    for epoch in range(9):
        score = measure(model, {rows})
        if {test}:
            best = score
            {keeps}
"""


@pytest.mark.parametrize(
    ("rows", "test", "keeps", "is_told"),
    [
        ("test_rows", "score > best", "state = copy.deepcopy(model.state_dict())", True),
        ("val_rows", "score > best", "state = copy.deepcopy(model.state_dict())", False),
        ("test_rows", "score > best", "print(best)", False),
        ("test_rows", "epoch > 3", "torch.save(model.state_dict(), path)", False),
    ],
)
def test_states_are_chosen_by_the_validation(rows, test, keeps, is_told):
    text = CHOOSES.format(rows=rows, test=test, keeps=keeps)
    assert bool(told(slips.CHOSEN, text)) == is_told
    assert not told(slips.CHOSEN, text.replace("val_rows", "other"))  # nothing else to choose by


@pytest.mark.parametrize(
    ("val", "test", "is_told"),
    [
        ("[r for r in rows if r.day >= a]", "[r for r in rows if r.day >= b]", True),
        ("rows[days >= a]", "rows[days > b]", True),
        ("[r for r in rows if a <= r.day < b]", "[r for r in rows if r.day >= b]", False),
        ("rows[days >= a]", "rows[weeks >= b]", False),
        ("rows[days >= a]", "rows[days < b]", False),
        ("(days >= a).float()", "(days >= b).float()", False),  # answers, and no parts
    ],
)
def test_the_validation_ends_where_the_test_begins(val, test, is_told):
    assert (
        bool(told(slips.ENDLESS, f"def cut(rows, days, weeks, a, b):\n    val = {val}\n    test = {test}")) == is_told
    )


@pytest.mark.parametrize(
    ("body", "is_told"),
    [
        ("total += error[mask].sum()\n    count += mask.numel()", True),
        ("return (error * mask).sum() / mask.numel()", True),
        ("total += error[mask].sum()\n    count += mask.sum()", False),
        ("total += error.sum()\n    count += mask.numel()", False),
        ("n = torch.sum(mask)\n    return (error * mask).sum() / mask.numel()", False),
        ("share = mask.sum() / mask.numel()\n    return (error * mask).sum() / share", False),
    ],
)
def test_sums_over_a_mask_count_what_it_takes(body, is_told):
    assert bool(told(slips.SIZES, f"def measure(error, mask, total, count):\n    {body}")) == is_told


@pytest.mark.parametrize(
    ("put", "is_told"),
    [
        ("rtg.append(target)", True),
        ("e['rtg'].append(target)", True),
        ("rtg.append(rtg[-1] - r)", False),
        ("target -= r\n        rtg.append(target)", False),
        ("states.append(target)", False),
    ],
)
def test_returns_shrink_by_rewards(put, is_told):
    head = "def roll_out(world, target, rtg, states, e):\n    for _ in range(9):"
    text = f"{head}\n        s, r, done = world.step()\n        {put}"
    assert len(told(slips.RETURNS, text)) == is_told


@pytest.mark.parametrize(
    ("body", "is_told"),
    [
        ("scores = scores.masked_fill(hidden, 0.0)\n    return scores.softmax(-1)", True),
        ("scores = scores.masked_fill(hidden, 0)\n    return F.softmax(scores, -1)", True),
        ("return torch.softmax(scores.masked_fill(hidden, 0), -1)", True),
        ("scores = scores.masked_fill(hidden, -1e9)\n    return scores.softmax(-1)", False),
        ("weights = scores.softmax(-1).masked_fill(hidden, 0.0)\n    return weights", False),
        ("scores = scores.masked_fill(hidden, 0)\n    scores = scores + bias\n    return scores.softmax(-1)", False),
        (
            "scores = scores.masked_fill(hidden, -math.inf)\n    scores = scores.masked_fill(empty, 0.0)\n"
            "    return scores.softmax(-1)",
            False,
        ),
        (
            "scores = scores.masked_fill(hidden, -math.inf)\n    return scores.masked_fill(empty, 0.0).softmax(-1)",
            False,
        ),
        ("scores = scores + mask\n    scores = scores.masked_fill(empty, 0)\n    return scores.softmax(-1)", False),
    ],
)
def test_hidden_scores_are_minus_infinity(body, is_told):
    assert bool(told(results.NOUGHT, f"def attend(scores, hidden, bias):\n    {body}")) == is_told


@pytest.mark.parametrize(
    ("body", "is_told"),
    [
        ("kept = path[path != BLANK]\n    return torch.unique_consecutive(kept)", True),
        ("return [c for c, _ in groupby([p for p in path if p != self.blank])]", True),
        ("merged = torch.unique_consecutive(path)\n    return merged[merged != BLANK]", False),
        ("return [c for c, _ in groupby(path) if c != blank]", False),
    ],
)
def test_paths_are_merged_before_blanks_are_dropped(body, is_told):
    assert bool(told(results.BLANKS, f"def decode(path):\n    {body}")) == is_told


@pytest.mark.parametrize(
    ("name", "value", "is_told"),
    [
        ("bits_per_char", "nats / chars", True),
        ("bpc", "loss_sum / chars", True),
        ("bits_per_char", "nats / chars / math.log(2)", False),
        ("nats_per_char", "nats / chars", False),
    ],
)
def test_figures_in_bits_are_in_bits(name, value, is_told):
    text = f"def {name}(nats, loss_sum, chars):\n    return {value}\n"
    assert bool(told(bits.NATS, text + "uniform = math.log(27) / math.log(2)")) == is_told
    assert not told(bits.NATS, text + f"figure = {name}(1.0, 1.0, 2) / math.log(2)")


@pytest.mark.parametrize(
    ("made", "is_told"),
    [
        ("Scaler(rows)", True),
        ("fit_scaler(rows)", True),
        ("Scaler(train)", False),
        ("Model(rows)", False),
        ("make_state(rows)", False),
    ],
)
def test_a_scaler_is_made_of_the_training_part(made, is_told):
    text = f"def main(rows):\n    train, val, test = split_by_day(rows)\n    scaler = {made}"
    assert bool(told(fitting.FITTED, text)) == is_told


def test_a_threshold_is_not_chosen_by_what_is_held_out():
    text = "def main(y, oof, held, val):\n    level = best_threshold(y[{part}], oof[{part}])"
    assert told(parts.THRESHOLDS, text.format(part="held"))
    assert not told(parts.THRESHOLDS, text.format(part="val"))


def test_what_may_be_no_validation_is_none_to_choose_by():
    text = CHOOSES.format(rows="test_rows", test="score > best", keeps="torch.save(model.state_dict(), path)")
    elsewhere = text.replace("train, val_rows, test_rows", "train, test_rows, val_rows")
    for other in ("dev", "dev_id", "val", "val_loss"):
        assert not told(slips.CHOSEN, elsewhere.replace("val_rows", other))
    for part in ("dev", "val", "valid_set"):  # it stands between the two others
        assert told(slips.CHOSEN, text.replace("val_rows", part))
    config = (
        "def run(folds):\n    model_config = Config()\n    for fold in folds:\n        train_fold(fold, model_config)"
    )
    assert not told(slips.FOLDS, config)


@pytest.mark.parametrize(
    ("data", "is_told"),
    [("test_dl", True), ("val_dl", False)],
)
def test_a_figure_that_is_made_of_answers_chooses_by_the_validation(data, is_told):
    text = f"""
    val_dl, test_dl = loaders()
    for epoch in range(9):
        probs, truth = predict(model, {data})
        f1 = macro_f1(probs.argmax(-1), truth)
        if f1 > best_f1:
            best_f1, best = f1, copy.deepcopy(model.state_dict())
    """
    assert bool(told(slips.states_of_the_test, text)) == is_told


@pytest.mark.parametrize(
    ("count", "is_told"),
    [("w.numel()", True), ("w.sum().item()", False)],
)
def test_weights_of_what_was_observed_are_counted(count, is_told):
    text = f"""
    def evaluate(loader):
        for b in loader:
            w = b["observed"].float()
            error += ((b["y"] - b["x"]).abs() * w).sum()
            n += {count}
        return error / n
    """
    assert bool(told(slips.whole_masks_counted, text)) == is_told
