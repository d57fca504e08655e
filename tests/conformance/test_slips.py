"""Slips that a file's text shows by itself: told, and nothing near them."""

from __future__ import annotations

import ast

import pytest

from conformance.slips import cut_apart, last_group_lost, moved_by_a_constant


def told(rule, text):
    return [written for written, _ in rule(ast.parse(text))]


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
        "if long:\n    tokens = tokens[-n:]\n    loss_mask = loss_mask[:n]",
    ],
)
def test_tokens_and_labels_are_cut_at_one_end(text):
    assert len(told(cut_apart, text)) == 1


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
