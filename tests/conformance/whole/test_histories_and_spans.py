"""Histories of items that are split or labelled, and spans that are hidden behind sentinels: right in many forms, or
wrong."""

import inspect

import pytest

pytest.importorskip("torch")

from conformance.adapters.helpers import mending
from conformance.adapters.helpers.examining import examine
from conformance.mutants.specimens.helpers import corrupt_spans

NEXT, APART = "examples-are-labelled-with-the-next-item", "held-out-items-are-not-trained-on"
SPANS = "sentinels-stand-for-what-is-behind-them"
SAMPLE = """
    def sample_sequence(history, item_num, maxlen, rng):
        seq, pos, neg = ([0] * maxlen for _ in range(3))
        following, seen = history[-1], set(history)
        for at, item in zip(range(maxlen - 1, -1, -1), reversed(history[:-1])):
            seq[at], pos[at], neg[at] = item, LABEL, 60
            following = item
        return seq, pos, neg
"""
ROW = """
    def get_train_sequence(items, maxlen):
        def row(some):
            return torch.tensor(PADDED)
        return GIVEN
"""
LEFT, RIGHT = "[0] * (maxlen - len(some[-maxlen:])) + some[-maxlen:]", "some[:maxlen] + [0] * (maxlen - len(some))"
SHIFTED = ROW.replace("GIVEN", "row(items[:-1]), row(items[1:])")
SAME = ROW.replace("PADDED", RIGHT)
MASKED = SAME.replace("GIVEN", "row([i if n % 2 else 99 for n, i in enumerate(items)]), row(items)  # masked")
LABELLED = {
    "the next item": (SAMPLE.replace("LABEL", "following"), True),
    "the item itself": (SAMPLE.replace("LABEL", "item"), False),
    "shifted lists, padded on the left": (SHIFTED.replace("PADDED", LEFT), True),
    "shifted lists, padded on the right": (SHIFTED.replace("PADDED", RIGHT), True),
    "the item before": (SAME.replace("GIVEN", "row(items[1:]), row(items[:-1])"), False),
    "labels first": (
        SAME.replace("GIVEN", "labels, given").replace(
            "return lab", "labels, given = row(items[1:]), row(items[:-1])\n        return lab"
        ),
        True,
    ),
    "the whole history twice": (SAME.replace("GIVEN", "row(items), row(items)"), None),
    "hidden items": (MASKED, None),
    "the last item everywhere": (SAME.replace("GIVEN", "row(items[:-1]), row([items[-1] for _ in items[1:]])"), None),
    "part of a history and another": (SAME.replace("def get_train", "def augmented_view_of_get_train"), None),
}
SPLIT = """
    def data_partition(interactions):
        '''SAYS'''
        users = {}
        for user, item in interactions:
            users.setdefault(user, []).append(item)
        train, valid, test = {}, {}, {}
        for u, items in users.items():
            train[u], valid[u], test[u] = PARTS
        return train, valid, test, max(map(max, users.values()))
"""
HISTORIES = """
    def leave_one_out(histories):
        test = {user: one[-1] for user, one in histories.items()}
        return {"test": test, "train": {user: one[:END] for user, one in histories.items()}}
"""
SPLITS = {
    "the last two": (SPLIT.replace("PARTS", "items[:-2], [items[-2]], [items[-1]]"), True),
    "trained on the last but one": (SPLIT.replace("PARTS", "items[:-1], [items[-2]], [items[-1]]"), False),
    "trained on all": (SPLIT.replace("PARTS", "items, items[-2:-1], items[-1:]"), False),
    "one item for both": (SPLIT.replace("PARTS", "items[:-2], items[-1:], items[-1:]"), False),
    "with what comes before": (SPLIT.replace("PARTS", "items[:-2], items[:-1], items"), True),
    "any item": (SPLIT.replace("PARTS", "items[1:-1], items[-1:], items[:1]"), True),
    "not the last, as it says": (
        SPLIT.replace("PARTS", "items[1:-1], items[-1:], items[:1]").replace("SAYS", "The last two, in time."), False,
    ),
    "inputs and targets": (SPLIT.replace("PARTS", "items[:-2], (items[:-2], 5), (items[:-1], items[-1])"), None),
    "in a dict, of histories": (HISTORIES.replace("END", "-1"), True),
    "in a dict, all of the histories": (HISTORIES.replace("END", ""), False),
    "users apart": (SPLIT.replace("for u,", "for u in ():\n                pass\n        for u,").replace(
        "train[u], valid[u], test[u] = PARTS", "(train, valid, test)[u % 3][u] = items"), None),
}  # fmt: skip
HIDE = inspect.getsource(corrupt_spans)
PIECE = "[sentinel, *tokens[start:end]]"
PADDED = "inputs + [1] + [0] * (99 - len(inputs)), targets + [1] + [0] * (99 - len(targets))"
TENSORS = "{'input_ids': torch.tensor([inputs]), 'labels': torch.tensor([targets])}"
FORMS = {
    "as it is": ({}, True),
    "an end": ({"return inputs, targets": "return inputs + [1], targets + [sentinel, 1]"}, True),
    "padded": ({"return inputs, targets": f"return {PADDED}"}, True),
    "tensors in a dict": ({"return inputs, targets": f"return {TENSORS}"}, True),
    "behind their pieces": ({PIECE: "[*tokens[start:end], sentinel]"}, False),
    "a piece too long": ({PIECE: "[sentinel, *tokens[start:end + 1]]"}, False),
    "a piece too short": ({PIECE: "[sentinel, *tokens[start:end - 1]]"}, False),
    "a piece that stays": ({"+= tokens[at:start]": "+= tokens[at:end]"}, False),
    "the rest is lost": ({"at = end": "at = end if len(tokens) - end > 8 else len(tokens)"}, False),
    "another order": ({PIECE: "[sentinel, *tokens[start:end], *targets]", "targets +=": "targets ="}, False),
    "other sentinels": ({PIECE: "[sentinel + 1, *tokens[start:end]]"}, False),
    "one mark for all": ({"sentinel -= 1": "pass"}, None),
    "no sentinels in the targets": ({PIECE: "tokens[start:end]"}, None),
    "the text as targets": ({"return inputs, targets": "return inputs, tokens"}, None),
    "cut to a length": ({"return inputs, targets": "return inputs[:20], targets[:12]"}, None),
    "sentinels among the words": ({"first_sentinel, rng": "rng, first=40", "0, first_sentinel": "0, first"}, None),
}  # fmt: skip


def said(functions, text, claim):
    """True where the claim is kept, False where it is broken, None where it is not asked."""
    found = examine(functions(text))
    assert all(one.trouble.certain and one.place for one in found.wrong if one.claim == claim)
    return not any(one.claim == claim for one in found.wrong) if claim in found.tested else None


@pytest.fixture(autouse=True)
def _few_mends(monkeypatch):
    """A function is mended in other tests."""
    monkeypatch.setattr(mending, "SECONDS", 0.0)


ENDLESS = """
    def left_pad(history, maxlen):
        history = list(history)[:maxlen]
        while len(history) < maxlen:
            history = [0] + history
        return history
"""


def test_an_edit_with_a_loop_that_does_not_end_is_given_up(functions, monkeypatch):
    (pad,) = functions(ENDLESS)

    def is_right(edited):
        return edited([1, 2], 4) == [0, 0, 1, 2] and edited([1, 2, 3], 2) == [2, 3]

    tried = []
    monkeypatch.setattr(mending, "SECONDS", 0.5)
    monkeypatch.setattr(mending, "SECONDS_OF_AN_EDIT", 0.01)
    mending.mended(pad, lambda edited: tried.append(edited) or is_right(edited))
    assert len(tried) > 3


@pytest.mark.parametrize("form", LABELLED)
def test_labels_of_histories(functions, form):
    text, expected = LABELLED[form]
    assert said(functions, text, NEXT) is expected


@pytest.mark.parametrize("form", SPLITS)
def test_splits_of_histories(functions, form):
    text, expected = SPLITS[form]
    assert said(functions, text, APART) is expected


@pytest.mark.parametrize("form", FORMS)
def test_spans_behind_sentinels(functions, form):
    changes, expected = FORMS[form]
    text = HIDE
    for old, new in changes.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    assert said(functions, text, SPANS) is expected
