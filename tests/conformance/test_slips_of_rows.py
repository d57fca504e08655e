"""Single rows: what is changed where it is kept, tensors in sets, rows of one item, promises, parts, by their text."""

from __future__ import annotations

import pytest
from rules_of_text import told

from conformance.slips import rows as slips

ITEM = "class Rows:\n    def __getitem__(self, i):\n        x = {taken}\n        {changed}\n        return x\n"


@pytest.mark.parametrize(
    ("taken", "changed", "is_told"),
    [
        ("self.x[i]", "x += 0.1 * torch.randn_like(x)", True),
        ("self.x[i]", "x[3] = 0.0", True),
        ("self.x[i]", "x.mul_(2)", True),
        ("self.x[i].clone()", "x += torch.randn(3)", False),
        ("self.x[i]", "x = x + torch.randn(3)", False),
        ("self.texts[i]", "x += ' .'", False),  # a text is never changed
        ("self.x[i]", "y = x.mul(2)", False),
        ("self.x[i].float() / 255", "x[3] = 0.0", False),
    ],
)
def test_a_row_is_changed_as_a_copy(taken, changed, is_told):
    assert bool(told(slips.CHANGED_IN_PLACE, ITEM.format(taken=taken, changed=changed))) == is_told


@pytest.mark.parametrize(
    ("rows", "held", "is_told"),
    [
        ("[torch.tensor(one) for one in texts]", "self.rows", True),
        ("[torch.tensor(one) for one in texts]", "data.rows", True),
        ("[tuple(one) for one in texts]", "self.rows", False),
        ("[torch.tensor(one) for one in texts]", "texts", False),
    ],
)
def test_a_set_holds_no_tensors(rows, held, is_told):
    text = f"class Data:\n    def __init__(self, texts):\n        self.rows = {rows}\n\n\nknown = set({held})\n"
    assert bool(told(slips.SETS_OF_TENSORS, text)) == is_told


PARTS = """
def rows_of(items):
    return {made}


def split(items, rng):
    pool = {pool}
    rng.shuffle(pool)
    train = pool[:10]
    test = pool[10:]
    return train, test
"""


@pytest.mark.parametrize(
    ("made", "pool", "is_told"),
    [
        ("[(form, target(one)) for one in items for form in forms(one)]", "rows_of(items)", True),
        ("[(form, target(one)) for one in items for form in forms(one)]", "list(items)", False),
        ("[(form, form) for one in items for form in forms(one)]", "rows_of(items)", False),
        ("[(one, target(one)) for one in items]", "rows_of(items)", False),
    ],
)
def test_rows_of_one_item_are_in_one_part(made, pool, is_told):
    assert bool(told(slips.DEALT_OUT, PARTS.format(made=made, pool=pool))) == is_told


NAMES = '''
def names(count):
    """{said}"""
    found = {held}
    while len(found) < count:
        {kept}
    return list(found)
'''


@pytest.mark.parametrize(
    ("said", "held", "kept", "is_told"),
    [
        ("Distinct names.", "[]", "found.append(draw())", True),
        ("Names without repeats, sorted.", "[]", "found.append(draw())", True),
        ("Names.", "[]", "found.append(draw())", False),
        ("Distinct names.", "set()", "found.add(draw())", False),
        ("Distinct names.", "[]", "found.append(next(x for x in pool if x not in found))", False),
    ],
)
def test_rows_that_are_said_to_differ_do(said, held, kept, is_told):
    assert bool(told(slips.REPEATED, NAMES.format(said=said, held=held, kept=kept))) == is_told


@pytest.mark.parametrize(
    ("left_out", "is_told"),
    [("valid_keys", True), ("valid_keys | test_keys", False), ("judging", False), ("test_keys", True)],
)
def test_training_leaves_out_all_that_judges(left_out, is_told):
    text = f"""
    valid = [r for r in rows if r.key in valid_keys]
    test = [r for r in rows if r.key in test_keys]
    train = [r for r in rows if r.key not in {left_out}]
    """
    assert bool(told(slips.ONE_LEFT_OUT, text)) == is_told


def test_two_parts_need_no_third():
    text = "valid = [r for r in rows if r.key in keys]\ntrain = [r for r in rows if r.key not in keys]\n"
    assert not told(slips.ONE_LEFT_OUT, text)
