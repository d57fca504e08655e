"""Losses that shift within: their mask is shifted, too, in each way in which masks are written."""

import pytest

pytest.importorskip("torch")

from conformance.adapters.helpers.examining import examine

CLAIM = "masks-of-losses-are-shifted-with-the-labels"
BEHIND = "losses-of-answers-begin-behind-the-prompt"
IGNORED = """
    def lm_loss(logits, input_ids, attention_mask=None):
        labels = input_ids[:, 1:].clone()
        if attention_mask is not None:
            labels[attention_mask[:, 1:] == 0] = -100
        return F.cross_entropy(logits[:, :-1].reshape(-1, logits.size(-1)), labels.reshape(-1))
"""
WEIGHED = """
    def token_nll(pred, tokens, mask):
        '''mask: 1 for real tokens.'''
        logp = pred[:, :-1].log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]
        weight = mask[:, 1:].float()
        return -(logp * weight).sum() / weight.sum()
"""
FILLED = """
    def loss_fn(outputs, labels, pad_mask):
        labels = labels.masked_fill(pad_mask, -100)
        return F.cross_entropy(outputs[:, :-1].transpose(1, 2), labels[:, 1:])
"""
NEXT, BEFORE = "mask[:, 1:]", "mask[:, :-1]"
FORMS = {
    "ignored": (IGNORED, True),
    "ignored, of the words before": (IGNORED.replace(NEXT, BEFORE), False),
    "weighed": (WEIGHED, True),
    "weighed, of the words before": (WEIGHED.replace(NEXT, BEFORE), False),
    "weighed by both": (WEIGHED.replace(NEXT, f"({NEXT} * {BEFORE})"), True),
    "True is padding": (FILLED, True),
    "True is padding, shifted twice": (FILLED.replace("pad_mask,", "pad_mask.roll(1, 1),"), False),
    "one word too few": (WEIGHED.replace(NEXT, "F.pad(mask[:, 2:], (0, 1))"), False),
    "what is to be predicted": (WEIGHED.replace("'''mask: 1 for real tokens.'''", "").replace(NEXT, BEFORE), None),
    "padding is the end": (IGNORED.replace(NEXT, BEFORE) + "\n    pad_id = eos_id = 2\n", None),
    "labels that a caller shifts": (FILLED.replace("[:, :-1]", "").replace("labels[:, 1:]", "labels"), None),
}


ANSWERS = """
    def instruction_loss(logits, tokens, prompt_lens, pad_id=0):
        targets = tokens[:, 1:]
        places = torch.arange(1, tokens.shape[1])
        keep = (places >= prompt_lens[:, None]) & (targets != pad_id)
        lost = F.cross_entropy(logits[:, :-1].transpose(1, 2), targets, reduction="none")
        return (lost * keep).sum() / keep.sum().clamp(min=1)
"""
HIDDEN = """
    def sft_loss(logits, input_ids, prompt_length, pad_token_id=0):
        labels = input_ids.clone()
        for row, length in enumerate(prompt_length):
            labels[row, :length] = -100
        labels[input_ids == pad_token_id] = -100
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
"""
OF_ANSWERS = {
    "kept": (ANSWERS, ""),
    "hidden": (HIDDEN, ""),
    "of each text": (ANSWERS.replace(".sum() / keep.sum().clamp(min=1)", ".sum(1).div(keep.sum(1)).mean()"), ""),
    "from the second word": (ANSWERS.replace(">=", ">"), "does not teach the first word of an answer"),
    "from the last word of the prompt": (HIDDEN.replace(":length]", ":length - 1]"), "teaches a word of the prompt"),
    "by all places": (ANSWERS.replace(".sum() / keep.sum().clamp(min=1)", ".mean()"), "divides by all places"),
    "not shifted": (HIDDEN.replace("[:, :-1]", "").replace("labels[:, 1:]", "labels"), None),
}


@pytest.mark.parametrize("form", OF_ANSWERS)
def test_the_loss_of_answers(functions, form):
    text, says = OF_ANSWERS[form]
    found = examine(functions(text))
    sentences = [one.trouble.sentence for one in found.wrong if one.claim == BEHIND]
    assert (BEHIND in found.tested) is (says is not None)
    assert [says in one for one in sentences] == [True] * bool(says)


@pytest.mark.parametrize("form", FORMS)
def test_the_mask_of_a_loss_that_shifts(functions, form):
    text, expected = FORMS[form]
    found = examine(functions(text))
    wrong = [one for one in found.wrong if one.claim == CLAIM]
    assert (not wrong if CLAIM in found.tested else None) is expected
    assert all(one.trouble.certain and one.edit and one.edit.text for one in wrong)
