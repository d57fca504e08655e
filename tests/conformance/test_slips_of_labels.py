"""Labels behind the mask, ends that padding takes with it, and penalties that favour: by their text."""

from __future__ import annotations

import pytest
from rules_of_text import told

from conformance.slips import labels as slips

HIDE = "def hide(ids, chosen):\n    {hidden}\n    hidden[chosen] = MASK\n    labels = torch.where(chosen, ids, -100)\n"


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        (HIDE.format(hidden="hidden = ids"), True),
        (HIDE.format(hidden="hidden = ids.clone()"), False),
        (HIDE.format(hidden="hidden = ids + 0"), False),
        (
            "def f(ids, m):\n    labels = ids.clone()\n    x = ids\n    x[m] = MASK\n    return x, labels",
            False,
        ),
        ("def f(ids, m):\n    x = ids\n    labels = x[m]\n    x[m] = MASK_ID\n    return x, labels", False),
        ("def f(ids, m):\n    x = ids\n    x[m] = 0\n    labels = ids * m", False),  # nothing says that it hides
        ("def f(ids, m):\n    x = ids\n    x[m] = MASK\n    ids = ids.clone()\n    labels = ids", False),
    ],
)
def test_labels_are_read_before_the_mask_is_written(text, is_told):
    assert bool(told(slips.AFTER_MASKING, text)) == is_told


IDS = "EOS_ID = {end}\nPAD_ID = {pad}\nids = [*words, EOS_ID]\n{left_out}\n"


@pytest.mark.parametrize(
    ("end", "pad", "left_out", "is_told"),
    [
        ("2", "2", "labels[ids == PAD_ID] = -100", True),
        ("2", "EOS_ID", "labels[labels == PAD_ID] = IGNORE_INDEX", True),
        ("2", "0", "labels[ids == PAD_ID] = -100", False),
        ("2", "2", "labels[mask == 0] = -100", False),
        ("2", "2", "weights[ids == PAD_ID] = 0", False),
    ],
)
def test_the_end_is_not_left_out_as_padding(end, pad, left_out, is_told):
    assert bool(told(slips.ENDS_LEFT_OUT, IDS.format(end=end, pad=pad, left_out=left_out))) == is_told


def test_no_end_is_left_out_where_no_text_has_one():
    assert not told(slips.ENDS_LEFT_OUT, "EOS = 2\nPAD = 2\nlabels[ids == PAD] = -100")


@pytest.mark.parametrize(
    ("body", "is_told"),
    [
        ("return torch.where(seen, logits / penalty, logits)", True),
        ("logits[:, words] /= self.repetition_penalty", True),
        ("return torch.where(logits > 0, logits / penalty, logits * penalty)", False),
        ("return torch.where(logits < 0, logits * penalty, logits / penalty)", False),
        ("probs = logits.softmax(-1)\n    return logits / penalty", False),
        ("return scores / length_penalty", False),
        ("return logits / temperature", False),
    ],
)
def test_a_penalty_favours_no_word_that_was_written(body, is_told):
    assert bool(told(slips.FAVOURS, f"def penalized(logits, seen, penalty):\n    {body}\n")) == is_told


EXAMPLE = """
def encode(prompt, {second}):
    return {{"input_ids": prompt + {second}, "labels": {labels}}}

def {counts}(logits, labels):
    keep = labels != IGNORE
    return loss(logits[keep], labels[keep])
"""


@pytest.mark.parametrize(
    ("second", "labels", "counts", "is_told"),
    [
        ("reply", "prompt + reply", "reply_loss", True),
        ("reply", "[IGNORE] * len(prompt) + reply", "reply_loss", False),
        ("reply", "prompt + reply", "loss_of", False),  # all may be taught
        ("style", "prompt + style", "reply_loss", False),
    ],
)
def test_prompts_are_not_taught_where_replies_count(second, labels, counts, is_told):
    assert bool(told(slips.PROMPTS, EXAMPLE.format(second=second, labels=labels, counts=counts))) == is_told
