"""Padding and end signs of a batch's labels: batches that are right in many forms, and batches that are wrong."""

import pytest

pytest.importorskip("torch")

from conformance.adapters.helpers.examining import examine

PADDED, ENDED = "labels-are-padded-with-what-the-loss-ignores", "targets-of-a-batch-have-their-end"
COLLATE = """
    PAD = 0

    def collate(batch):
        width = max(map(len, batch)) - 1
        inputs, targets = torch.full((len(batch), width), PAD), torch.full((len(batch), width), FILL)
        for row, text in enumerate(batch):
            inputs[row, :len(text) - 1], targets[row, :len(text) - 1] = torch.tensor(text[:-1]), torch.tensor(text[1:])
        return inputs, targets

    def loss_of(logits, targets):
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)
"""
TAUGHT = COLLATE.replace("FILL", "PAD")
NAMED = TAUGHT.replace("=-100", "=IGNORE").replace("PAD = 0", "PAD = 0\n    IGNORE = -100")
TOLD = TAUGHT.replace("(batch)", "(batch, label_pad)").replace("width), PAD)\n", "width), label_pad)\n")
PROMISED = TAUGHT.replace(", ignore_index=-100", "").replace(
    "collate(batch):", "collate(batch):\n        '''Targets of padding are -100.'''"
)
LABELS = {
    "what the loss ignores": (COLLATE.replace("FILL", "-100"), True),
    "a word": (TAUGHT, False),
    "a word that the loss ignores": (TAUGHT.replace("ignore_index=-100", "ignore_index=PAD"), None),
    "one of the losses ignores it": (TAUGHT + "\n    other = torch.nn.CrossEntropyLoss(ignore_index=PAD)\n", None),
    "labels are made so later": (TAUGHT.replace("return F", "targets[targets == PAD] = -100\n        return F"), None),
    "the loss is weighed": (TAUGHT.replace("=-100)", "=-100, reduction='none')"), None),
    "nothing says what is ignored": (TAUGHT.replace(", ignore_index=-100", ""), None),
    "a name for what is ignored": (NAMED, False),
    "its caller says the padding": (TOLD, None),
    "its text promises it": (PROMISED, False),
}
PAIRS = """
    def collate(batch, bos_id=1, eos_id=2, pad_id=0):
        sources = [[*s, eos_id] for s, _ in batch]
        targets = [TARGET for _, t in batch]
        return rows(sources, pad_id), rows(targets, pad_id)

    def rows(texts, pad):
        longest = max(map(len, texts))
        return torch.tensor([text + [pad] * (longest - len(text)) for text in texts])
"""
TWO = PAIRS.replace("targets = [TARGET for", "given = [[bos_id, *t] for").replace(
    "return", "labels = [LABEL for _, t in batch]\n        return rows(given, pad_id), rows(labels, pad_id),", 1
)
TWO = TWO.replace(", rows(sources, pad_id), rows(targets, pad_id)", ", rows(sources, pad_id)")
WITHOUT = PAIRS.replace("TARGET", "[bos_id, *t]")
TARGETS = {
    "a start and an end": (PAIRS.replace("TARGET", "[bos_id, *t, eos_id]"), True),
    "a start alone": (WITHOUT, False),
    "no start, no end": (PAIRS.replace("TARGET", "list(t)"), None),
    "an end in the labels alone": (TWO.replace("LABEL", "[*t, eos_id]"), True),
    "no end in the labels": (TWO.replace("LABEL", "list(t)"), False),
    "texts that have their end": (WITHOUT + "\n    def encode(text, eos):\n        return [*text, eos]\n", True),
    "targets that are only begun": (WITHOUT.replace("def collate(", "def collate_for_generation("), None),
    "no end that is known": (WITHOUT.replace(", eos_id=2", "").replace("[*s, eos_id]", "list(s)"), None),
}


def said(functions, text, claim):
    """True where the claim is kept, False where it is broken, with a line and a mend; None where it is not asked."""
    found = examine(functions(text))
    wrong = [one for one in found.wrong if one.claim == claim]
    assert all(one.trouble.certain and one.edit and one.edit.text for one in wrong)
    return not wrong if claim in found.tested else None


@pytest.mark.parametrize("form", LABELS)
def test_padding_of_labels(functions, form):
    text, expected = LABELS[form]
    assert said(functions, text, PADDED) is expected


@pytest.mark.parametrize("form", TARGETS)
def test_ends_of_targets(functions, form):
    text, expected = TARGETS[form]
    assert said(functions, text, ENDED) is expected
