"""What is made and never read: masks of losses, batches and pairs, parts of batches, tables that a model keeps."""

from __future__ import annotations

import pytest
from rules_of_text import told

from conformance.slips import idle as slips


@pytest.mark.parametrize(
    ("text", "is_told"),
    [
        ("def pinball(pred, target, ok):\n    return (pred - target).abs().mean()", True),
        ("def masked_loss(pred, target, mask):\n    return ((pred - target) * mask).mean()", False),
        ("def loss(pred, target, mask=None):\n    return (pred - target).mean()", False),
        ("def loss(pred, target, mask):\n    raise NotImplementedError", False),
        ("def attend(q, k, mask):\n    return q @ k", False),
    ],
)
def test_a_loss_reads_the_mask_that_it_is_handed(text, is_told):
    assert bool(told(slips.UNREAD, text)) == is_told


@pytest.mark.parametrize(
    ("taken", "given", "is_told"),
    [
        ("ids, labels, seg", "ids", True),
        ("ids, labels, seg", "ids, seg", False),
        ("ids, labels, padding_mask", "ids", True),
        ("ids, labels, _", "ids", False),
        ("ids, labels, names", "ids", False),
    ],
)
def test_what_a_batch_says_of_its_words_is_read(taken, given, is_told):
    text = f"def loss_of(model, batch):\n    {taken} = batch\n    return loss(model({given}), labels)"
    assert bool(told(slips.APART, text)) == is_told


BATCHES = """
def collate(rows):
    return {{"ids": pad(rows), "mask": real(rows)}}
def learn(model, batch):
    return model(batch["ids"]{more})
"""


@pytest.mark.parametrize(
    ("more", "is_told"),
    [
        ("", True),
        (", batch['mask']", False),
        (", mask=real(batch['ids'])", False),
        (", batch['ids'] != PAD", False),
        (", **batch", False),
    ],
)
def test_the_mask_of_a_batch_is_read(more, is_told):
    assert bool(told(slips.VAIN, BATCHES.format(more=more))) == is_told


def test_lengths_may_stand_for_a_mask():
    text = BATCHES.format(more=", batch['lens']")
    assert not told(slips.VAIN, text.replace('"mask"', '"lens": lengths(rows), "mask"'))


@pytest.mark.parametrize(
    ("made", "used", "is_told"),
    [
        ("seg[:, :, None] == seg[:, None, :]", "causal", True),
        ("seg[:, :, None] == seg[:, None, :]", "causal & same", False),
        ("torch.ones(9, 9).tril()", "causal", True),
        ("len(seg) == 9", "causal", False),
        ("seg is None or len(seg) == 9", "causal", False),
        ("seg[:, None] + 1", "causal", False),
    ],
)
def test_a_mask_of_pairs_is_read(made, used, is_told):
    assert bool(told(slips.STAYS, f"def f(seg, causal):\n    same = {made}\n    return {used}")) == is_told


@pytest.mark.parametrize(
    ("made", "used", "is_told"),
    [
        ("first", "codes", True),
        ("first", "codes + self.first", False),
        ("first", "codes + getattr(self, 'first')", False),
        ("self.table", "codes", False),  # it is read by its other name
    ],
)
def test_a_table_that_a_model_keeps_is_read(made, used, is_told):
    text = f"""
class M:
    def __init__(self, first):
        self.register_buffer("first", {made})
    def forward(self, codes):
        return self.rows({used})
"""
    assert bool(told(slips.BUFFERS, text)) == is_told


WRITES = """
class Translator(nn.Module):
    def forward(self, source, target):
        memory, pad = self.encode(source)
        return self.decode(memory, pad, target)

    def greedy(self, source, words):
        memory, {made} = self.encode(source)
        return self.decode(memory, {given}, words)
"""


@pytest.mark.parametrize(
    ("made", "given", "is_told"),
    [("pad", "None", True), ("pad", "pad", False), ("_", "None", False), ("mask", "make_mask(mask)", False)],
)
def test_a_mask_is_handed_on_in_writing_too(made, given, is_told):
    assert bool(told(slips.LEFT_OUT_IN_WRITING, WRITES.format(made=made, given=given))) == is_told


DROPS = """
class {name}(nn.Module):
    def forward(self, x):
        {asks}
        gate = torch.rand(len(x), 1, 1) < self.keep
        return x * gate / self.keep
"""


@pytest.mark.parametrize(
    ("name", "asks", "is_told"),
    [
        ("DropPath", "pass", True),
        ("DropPath", "if not self.training: return x", False),
        ("Sampler", "pass", False),
        ("RandomDrops", "pass", False),  # of a picture, before it is learned from
    ],
)
def test_a_layer_that_drops_asks_for_the_mode(name, asks, is_told):
    text = DROPS.format(name=name, asks=asks)
    assert bool(told(slips.MODES, text)) == is_told
    asked = "def run(self, x):\n    return self.drop_path(x) if self.training else x\n"
    assert not told(slips.MODES, f"{text}\n{asked}")
