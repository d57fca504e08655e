"""Slips that a file's text shows by itself: told, and nothing near them."""

from __future__ import annotations

import pytest
from rules_of_text import told

from conformance.slips.axes import AXES, heads_joined_in_place
from conformance.slips.orders import (
    COLUMNS,
    NAMES,
    cut_apart,
    last_group_lost,
    moved_by_a_constant,
    ranks_off_by_one,
    starts_written_over,
)
from conformance.slips.training import plateau_turned_round


@pytest.mark.parametrize(
    "text",
    [
        "(q - 0.5).argmin()",
        "torch.argmin(q - 3)",
        "min(xs, key=lambda v: v - t)",
        "sorted(xs, key=lambda v: v - t[0])",
    ],
)
def test_a_number_that_all_have_in_common_chooses_nothing(text):
    assert told(moved_by_a_constant, f"at = {text}") == [text]


@pytest.mark.parametrize(
    "text",
    [
        "(q - 0.5).abs().argmin()",
        "(q - middle).argmin()",  # it may be a tensor
        "min(xs, key=lambda v: abs(v - t))",
        "min(xs, key=lambda v: v[0] - v[1])",
        "(q * 2).argmin()",
        "(1 - mask).argmin(-1)",  # the first that is not hidden
        "sorted(xs, key=lambda v: t - v)",
        "min(a - 1, b)",
        "argmin()",
    ],
)
def test_what_is_chosen_by_its_distance_is_not_told(text):
    assert told(moved_by_a_constant, f"at = {text}") == []


@pytest.mark.parametrize(
    "text",
    [
        "ids = ids[-n:]\nlabels = labels[:n]",
        "input_ids = input_ids[:n]\nprint(n)\nlabels = labels[-n:]",
        "i, l = i[-n:], l[:n]",
        "rows.append((ids[-n:], labels[:n]))",
        "row = {'input_ids': ids[:n], 'labels': labels[-n:]}",
        "if long:\n    tokens = tokens[-n:]\n    loss_mask = loss_mask[:n]",
    ],
)
def test_tokens_and_labels_are_cut_at_one_end(text):
    assert len(set(told(cut_apart, text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "ids = ids[-n:]\nlabels = labels[-n:]",
        "ids = ids[:-1]\nlabels = labels[1:]",
        "ids = ids[-n:]\nlabels = labels[:m]",  # it says nothing of n
        "prompt_ids = prompt_ids[-n:]\nanswer_ids = answer_ids[:n]",
        "i = i[-n:]\nl = l[:n]",
        "past = past[-n:]\nfuture = future[:n]",
        "ids[-n:] = labels[:n]",
        "if left:\n    ids = ids[-n:]\nelse:\n    labels = labels[:n]",
    ],
)
def test_other_cuts_are_not_told(text):
    assert told(cut_apart, text) == []


GROUPS = """
def batches(rows, most):
    groups, group, width = [], [], 0
    for row in rows:
        if group and width + len(row) > most:
            {hand_on}
            group, width = [], 0
        group.append(row)
        width += len(row)
    {behind}
"""
BEFORE = """
def batches(rows, size):
    group = []
    for row in rows:
        group.append(row)
        if len(group) == size:
            yield group
            group = []
"""


@pytest.mark.parametrize(
    ("hand_on", "behind", "is_told"),
    [
        ("groups.append(group)", "return groups", True),
        ("yield group", "print(len(groups))", True),
        ("yield collate(group)", "pass", True),
        ("groups.append(group)", "return groups + [group]", False),
        ("yield group", "if group: yield group", False),
        ("print(len(group))", "return groups", False),  # nothing is handed on
    ],
)
def test_the_last_group_is_handed_on(hand_on, behind, is_told):
    assert bool(told(last_group_lost, GROUPS.format(hand_on=hand_on, behind=behind))) == is_told


def test_groups_that_are_full_when_they_are_handed_on_may_leave_a_rest():
    assert told(last_group_lost, BEFORE) == []


@pytest.mark.parametrize(
    ("mode", "measure", "is_told"),
    [
        ("", "val_loss", False),
        (', mode="max"', "val_loss", True),
        (', "max"', "mae", True),
        ("", "f1", True),
        (', mode="max"', "accuracy", False),
        (', mode="max"', "-val_loss", False),
        (", mode=how", "val_loss", False),
        (', mode="max"', "score", False),
        (', mode="max"', "answer_f1", False),  # wer is no part of it
        (', mode="max"', "power", False),
        (', mode="max"', "val_wer", True),
    ],
)
def test_a_plateau_is_looked_for_the_right_way(mode, measure, is_told):
    text = f"plan = optim.lr_scheduler.ReduceLROnPlateau(opt{mode})\nplan.step({measure})"
    assert bool(told(plateau_turned_round, text)) == is_told


@pytest.mark.parametrize(
    ("rank", "compared", "is_told"),
    [
        ("(s > own).sum(1)", "rank < k", False),
        ("(s > own).sum(1)", "rank <= k", True),
        ("(s > own).sum(1).float()", "rank <= k", True),
        ("(s > own).sum(1) + 1", "rank <= k", False),
        ("1 + (s > own).sum(1)", "rank < k", True),
        ("(s >= own).sum(1)", "rank <= k", False),
        ("(s >= own).sum(1) + 1", "rank <= k", True),  # the own one is counted twice
        ("(s > own).sum(1)", "rank <= limit", False),
        ("order.argmax(1)", "rank <= k", False),
        ("(s > own).sum(1)\n    rank = rank + 1", "rank <= k", False),
        ("(s > own).sum(1)\n    rank += 1", "rank <= k", False),
    ],
)
def test_ranks_count_the_first(rank, compared, is_told):
    text = f"def recall(s, own, k):\n    rank = {rank}\n    return {compared}"
    assert bool(told(ranks_off_by_one, text)) == is_told


@pytest.mark.parametrize(
    ("joined", "is_told"),
    [
        ("(w @ v).transpose(1, 2).reshape(b, n, d)", False),
        ("(w @ v).reshape(b, n, d)", True),
        ("F.scaled_dot_product_attention(q, k, v).view(b, n, d)", True),
        ("rearranged(w @ v)", False),
        ("x.reshape(b, n, d)", False),
        ("0\n    if fast:\n        y = w @ v\n    y = y.transpose(1, 2)\n    return y.reshape(b, n, d)", False),
        ("0\n    y = w @ v\n    return y.reshape(b, n, d)", True),
    ],
)
@pytest.mark.parametrize(
    "split", ["x.view(b, n, h, d // h).transpose(1, 2)", "x.reshape(b, n, h, -1).permute(0, 2, 1, 3)"]
)
def test_heads_are_moved_back(split, joined, is_told):
    joined = f"return {joined}" if "return" not in joined else f"y = {joined}"
    text = f"def attend(x):\n    q = k = v = {split}\n    w = q @ k.mT\n    {joined}"
    assert bool(told(heads_joined_in_place, text)) == is_told
    assert told(heads_joined_in_place, text.replace(split, "x")) == []  # one head has no axis of its own


INIT = """
class GPT(nn.Module):
    def __init__(self, n_layers):
        {first}
        {second}

    def _init_weights(self, part):
        if isinstance(part, {kind}):
            nn.init.normal_(part.weight, std=0.02)
"""
SCALED = "for name, p in self.named_parameters(): nn.init.normal_(p, std=0.02 / math.sqrt(2 * n_layers))"
APPLIED = "self.apply(self._init_weights)"


@pytest.mark.parametrize(
    ("first", "second", "kind", "is_told"),
    [
        (APPLIED, SCALED, "nn.Linear", False),
        (SCALED, APPLIED, "nn.Linear", True),
        (SCALED, APPLIED, "nn.Embedding", False),
        (SCALED.replace("n_layers", "width"), APPLIED, "nn.Linear", False),
    ],
)
def test_what_starts_smaller_gets_no_other_numbers(first, second, kind, is_told):
    assert bool(told(starts_written_over, INIT.format(first=first, second=second, kind=kind))) == is_told


@pytest.mark.parametrize(
    ("first", "second", "is_told"),
    [
        ("sorted(names)", "names", True),
        ("names", "set(names)", True),
        ("names", "names[::-1]", True),
        ("names", "names, 1", True),
        ("names", "names", False),
        ("names", "list(names)", False),
        ("sorted(names)", "sorted(names)", False),
        ("names", "others", False),
        ("table.keys()", "table", False),
    ],
)
def test_two_tables_of_names_count_in_one_order(first, second, is_told):
    text = f"""
label2id = {{name: n for n, name in enumerate({first})}}
id2label = {{n: name for n, name in enumerate({second})}}
"""
    assert bool(told(NAMES, text)) == is_told
    assert not told(NAMES, text.replace("id2label", "id2color"))


def test_tables_of_letters_count_in_one_order():
    text = "stoi = {c: i for i, c in enumerate(chars)}\nitos = dict(enumerate(sorted(chars)))"
    assert told(NAMES, text)
    assert not told(NAMES, "chars = ['a', 'b']\n" + text)
    assert not told(NAMES, "itos = {i: c for c, i in stoi.items()}\n" + text.partition("\n")[0])


@pytest.mark.parametrize(
    ("made", "is_told"),
    [
        ("x.reshape(b, t, c * f)", True),
        ("x.view(b * t, c, f)", True),
        ("x.transpose(1, 2).reshape(b, c, t * f)", True),
        ("x.transpose(1, 2).reshape(b, t, c * f)", False),
        ("x.transpose(1, 2).reshape(b, t, f * c)", False),
        ("x.permute(0, 2, 1, 3).contiguous().view(b, t, c * f)", False),
        ("x.reshape(b, c, t * f)", False),
        ("x.reshape(b, t, -1)", False),
        ("x[:, :1].reshape(b, t, c * f)", False),
    ],
)
def test_a_new_shape_names_axes_as_they_stand(made, is_told):
    assert bool(told(AXES, f"def fold(x):\n    b, c, t, f = x.shape\n    return {made}")) == is_told
    assert not told(AXES, f"def fold(x):\n    b, c, t, f = x.shape\n    x = moved(x)\n    return {made}")


def test_axes_are_followed_through_transpositions_of_a_name():
    text = "def fold(x):\n    b, c, t, f = x.size()\n    x = x.transpose(1, 2)\n    return x.view(b, {}, f)"
    assert told(AXES, text.format("c, t"))
    assert not told(AXES, text.format("t, c"))
    assert not told(AXES, text.format("t * c"))


@pytest.mark.parametrize(
    ("starts", "is_told"),
    [
        ("torch.cumsum(cards, 0) - cards", True),
        ("cards.cumsum(0)", True),
        ("list(accumulate(cards))", True),
        ("torch.cumsum(sizes, 0) - sizes", False),
        ("torch.cumsum(sizes[:-1], 0)", False),
        ("torch.cumsum(lengths, 0)", False),
    ],
)
def test_columns_that_share_rows_of_one_table_are_told(starts, is_told):
    table = f"sizes = cards + 1\n    starts = {starts}\n    return nn.Embedding(int(sizes.sum()), 8), starts"
    assert bool(told(COLUMNS, f"def table(cards):\n    {table}")) == is_told


@pytest.mark.parametrize(
    ("test", "discount", "is_told"),
    [
        ("rank <= k", "rank + 2", True),
        ("rank < k", "rank + 2", False),
        ("rank < k", "rank + 1", True),
        ("rank <= k", "rank + 1", False),
        ("rank <= k", "other + 2", False),
    ],
)
def test_gains_tell_what_ranks_count_from(test, discount, is_told):
    text = f"def f(rank, other, k):\n    hit = {test}\n    return hit, hit / torch.log2({discount})\n"
    assert bool(told(ranks_off_by_one, text)) == is_told
