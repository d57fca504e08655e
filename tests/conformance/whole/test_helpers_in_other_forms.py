"""Right helpers that are written in another form than most: each has a mistake of its own form that is found."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from conformance.adapters.functions.losses import resolve  # noqa: E402
from conformance.adapters.helpers.examining import examine  # noqa: E402
from conformance.protocol import NotProvided  # noqa: E402

TIME_FIRST = """
    BLANK = 0

    def greedy_decode(log_probs, lengths):
        best, path = log_probs.max(dim=-1)  # (T, B)
        texts = []
        for b, n in enumerate(lengths.tolist()):
            merged = torch.unique_consecutive(path[:n, b])
            texts.append(merged[merged != BLANK].tolist())
        return texts, best.sum(0)
"""
RIGHT_ALIGNED = """
    def pad_left(items, length):
        '''the newest `length` items, right-aligned'''
        row = [0] * length
        items = items[-length:]
        row[-len(items):] = items
        return row
"""
WITHOUT_PADDING = """
    PAD = 0

    def token_accuracy(logits, gold):
        real = gold != PAD
        hits = (logits.argmax(dim=-1) == gold) & real
        return hits.sum().item() / max(1, real.sum().item())

    def accuracy(logits, labels, pad_id=1):
        real = labels != pad_id
        return ((logits.argmax(-1) == labels) & real).sum() / real.sum()
"""
CTC, HISTORY = "paths-of-ctc-merge-repeats-and-drop-blanks", "histories-keep-the-last-items"
ACCURACY = "accuracy-is-the-share-of-right-answers"


@pytest.mark.parametrize(
    ("text", "right", "wrong", "claim"),
    [
        (TIME_FIRST, "path[:n, b]", "path[:, b]", CTC),
        (TIME_FIRST, "torch.unique_consecutive(path[:n, b])", "path[:n, b]", CTC),
        (RIGHT_ALIGNED, "row[-len(items):]", "row[:len(items)]", HISTORY),
        (WITHOUT_PADDING, "max(1, real.sum().item())", "gold.numel()", ACCURACY),
        (WITHOUT_PADDING, "& real).sum() / real.sum()", ").float().mean()", ACCURACY),
    ],
)
def test_another_form_is_right_and_its_mistake_is_found(functions, text, right, wrong, claim):
    assert right in text
    found = examine(functions(text))
    assert claim in found.tested
    assert found.wrong == []
    assert [one.claim for one in examine(functions(text.replace(right, wrong))).wrong] == [claim]


def test_a_loss_that_shares_its_rest_out_among_other_words_is_not_asked_with_two(functions):
    (smoothed,) = functions("""
        def smoothed_cross_entropy(logits, target, eps=0.1):
            logp = logits.log_softmax(-1)
            truth = torch.full_like(logp, eps / (logits.shape[-1] - 2))
            truth.scatter_(1, target[:, None], 1.0 - eps)
            return -(truth * logp).sum(-1).mean()
    """)
    compute = resolve(smoothed)[0].make(
        {"label_smoothing": 0.1, "smoothing_over": "others", "ignore_index": None, "reduction": "mean"}
    )
    labels = torch.zeros(4, dtype=torch.long)
    assert compute(False, logits=torch.zeros(4, 5), targets=labels)
    with pytest.raises(NotProvided, match="of two it has none"):
        compute(False, logits=torch.zeros(4, 2), targets=labels)
