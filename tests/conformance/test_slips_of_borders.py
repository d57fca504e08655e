"""Borders between the parts of the data, by the text of a script: what is told, and what is right."""

from __future__ import annotations

import pytest
from rules_of_text import told

from conformance.slips import borders as slips
from conformance.slips import fitting, training

CONDITIONS = """
train = [s for a, b, s in {rows} if {learned}]
valid = [s for a, b, s in rows if a >= first and b < last]
test = [s for a, b, s in rows if a >= last]
"""


@pytest.mark.parametrize(
    ("rows", "learned", "is_told"),
    [
        ("rows", "b < last", True),
        ("rows", "b < first", False),
        ("others", "b < last", False),
        ("rows", "a >= begin and b < last", False),  # nothing says where it begins
    ],
)
def test_the_training_part_ends_where_judging_begins(rows, learned, is_told):
    assert bool(told(slips.OVERLAP, CONDITIONS.format(rows=rows, learned=learned))) == is_told


@pytest.mark.parametrize(
    ("end", "is_told"), [("border + 1", True), ("border", False), ("border - horizon + 1", False), ("later + 1", False)]
)
def test_ranges_of_parts_do_not_touch(end, is_told):
    text = f"train_set = windows(range(context, {end}))\nval_set = windows(range(border, n, 24))\n"
    assert bool(told(slips.OVERLAP, text)) == is_told


GROUPED = """
def parts_of(rows, rng):
    groups = sorted({{{key} for r in rows}})
    rng.shuffle({drawn})
    train, test = {parts}
    return train, test, len(groups)
"""
BY_ROWS, BY_GROUPS = (
    "rows[:40], rows[40:]",
    "[[r for r in rows if r['pid'] in part] for part in (groups[:9], groups[9:])]",
)


@pytest.mark.parametrize(
    ("key", "drawn", "parts", "is_told"),
    [
        ("r['pid']", "rows", BY_ROWS, True),
        ("r.patient_id", "rows", BY_ROWS, True),
        ("r['pid']", "groups", BY_GROUPS, False),
        ("r['pid']", "rows", BY_GROUPS, False),
        ("r['label']", "rows", BY_ROWS, False),
    ],
)
def test_groups_are_drawn_and_not_their_rows(key, drawn, parts, is_told):
    text = GROUPED.format(key=key, drawn=drawn, parts=parts)
    assert bool(told(slips.WITHOUT_THEIR_GROUP, text)) == is_told


SCALED = """
def main(args):
    loads = {loads}
    val_start = loads.shape[1] - 100
    scaler = SeriesScaler().fit({fitted})
    scaled = scaler.transform({scaled})
    return scaled, val_start
"""


@pytest.mark.parametrize(
    ("loads", "fitted", "scaled", "is_told"),
    [
        ("simulate(args)", "loads", "loads", True),
        ("simulate(args)", "loads[:, :val_start]", "loads", False),
        ("simulate(args)", "train_loads", "train_loads", False),
        ("simulate(args)[:, :900]", "loads", "loads", False),
        ("simulate(args)", "loads", "others", False),
    ],
)
def test_a_scaler_is_fitted_before_the_border(loads, fitted, scaled, is_told):
    text = SCALED.format(loads=loads, fitted=fitted, scaled=scaled)
    assert bool(told(fitting.FITTED, text)) == is_told


@pytest.mark.parametrize(
    ("fitted", "is_told"),
    [("BPE().fit(docs, 90)", True), ("BPE().fit(train_docs, 90)", False), ("Index().fit(docs)", False)],
)
def test_a_tokenizer_is_fitted_to_the_training_part(fitted, is_told):
    split = "    train_docs, val_docs = split_docs(docs)\n"
    assert bool(told(fitting.FITTED, f"def main(docs):\n{split}    bpe = {fitted}\n")) == is_told
    assert not told(fitting.FITTED, f"def main(docs):\n    bpe = {fitted}\n{split}")  # nothing is split yet


@pytest.mark.parametrize(
    ("seed", "is_told"), [("c.seed", True), ("c.seed + epoch", False), ("step // per_epoch", False)]
)
def test_orders_are_drawn_from_other_seeds(seed, is_told):
    text = f"""
    def train(c, x, total, per_epoch, step=0):
        while step < total:
            epoch = step // per_epoch
            order = torch.randperm(len(x), generator=torch.Generator().manual_seed({seed}))
            loss(x[order]).backward()
            step += 1
    """
    assert bool(told(training.epochs_alike, text)) == is_told


@pytest.mark.parametrize(
    ("row", "split", "is_told"),
    [
        ('{"id": len(rows), "ticket": ticket}', 'group_split(rows, "id", rng)', True),
        ('{"id": len(rows), "ticket": ticket}', 'group_split(rows, "ticket", rng)', False),
        ('{"id": ticket, "text": text}', 'group_split(rows, "id", rng)', False),
        ('{"id": len(rows), "ticket": ticket}', 'sort_by(rows, "id")', False),
    ],
)
def test_groups_hold_several_rows(row, split, is_told):
    text = f"def main(tickets, rng, rows):\n    for ticket, text in tickets:\n        rows.append({row})\n"
    text += f"    return {split}\n"
    assert bool(told(slips.EACH_ROW_A_GROUP, text)) == is_told


@pytest.mark.parametrize(
    ("learned", "is_told"), [("tasks[:320]", True), ("train[:320]", False), ("others[:320]", False)]
)
def test_what_teaches_is_of_the_training_part(learned, is_told):
    split = "    val, test, train = tasks[:9], tasks[9:18], tasks[18:]\n"
    run = f"    fit(model, pairs_of({learned}), pairs_of(val))\n"
    assert bool(told(slips.WHOLE_BEHIND_PARTS, f"def main(model, tasks, others):\n{split}{run}")) == is_told
    assert not told(slips.WHOLE_BEHIND_PARTS, f"def main(model, tasks, others, val):\n{run}{split}")
    assert not told(slips.WHOLE_BEHIND_PARTS, f"def main(tasks):\n{split}    print(tasks[:3], val[:3])\n")
