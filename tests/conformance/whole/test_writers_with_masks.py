"""A chat model whose file names no kind: what it writes, and how its loss is shifted, say that it is a language model.
Its writer is handed the mask of padding, which stands in front."""

from __future__ import annotations

import importlib
import linecache
import sys

import pytest

torch = pytest.importorskip("torch")

from wholes import Whole  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.whole.class_source import heading_of  # noqa: E402
from conformance.adapters.whole.kinds import kind_of  # noqa: E402
from conformance.adapters.whole.model import whole_model  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

SAYS = "    # Batches are padded on the LEFT.\n"
MODEL = """
class Desk(nn.Module):
    def __init__(self, vocab=23, width=16):
        super().__init__()
        self.embed, self.places = nn.Embedding(vocab, width), nn.Embedding(40, width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.head = nn.Linear(width, vocab)

    def forward(self, tokens, mask=None, pos=None):
        mask = torch.ones_like(tokens) if mask is None else mask
        pos = (mask.long().cumsum(-1) - 1).clamp(min=0) if pos is None else pos
        steps = torch.arange(tokens.shape[1])
        seen = ((steps[None, :] <= steps[:, None]) & mask.bool()[:, None, :]) | (steps[None, :] == steps[:, None])
        x = self.embed(tokens) + self.places(pos)
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~seen, torch.finfo(q.dtype).min)
        return self.head(x + self.out(scores.softmax(-1) @ v))

    @torch.no_grad()
    def reply(self, tokens, mask, steps=8):
        self.eval()
        out = []
        for _ in range(steps):
            pos = (mask.long().cumsum(-1) - 1).clamp(min=0)
            best = self(tokens, mask, pos)[:, -1].argmax(-1)
            out.append(best)
            tokens = torch.cat([tokens, best[:, None]], 1)
            mask = torch.cat([mask, mask.new_ones(len(mask), 1)], 1)
        return torch.stack(out, 1)
"""
LOSS = """
def tuning_loss(model, tokens, mask, labels):
    logits = model(tokens, mask)
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
"""
COUNTS = "pos = (mask.long().cumsum(-1) - 1).clamp(min=0)\n            best"
COLUMNS = "pos = torch.arange(mask.shape[1]).expand(len(mask), -1)\n            best"


@pytest.fixture
def desk(made):
    """desk(text): the running model of a file of this text."""
    return lambda text: whole_model(made("Desk", text))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (MODEL, "its method reply writes word by word"),
        (MODEL.partition("    @torch.no_grad")[0] + LOSS, "its loss compares logits[:, :-1] with labels[:, 1:]"),
    ],
)
def test_what_it_writes_and_its_loss_say_what_it_is(desk, text, why):
    found = desk(text)
    kind, [fact] = kind_of(found.module, found.calling)
    assert kind == "language_model"
    assert why in fact.evidence


def test_a_model_of_which_nothing_speaks_stays_open(desk):
    found = desk(MODEL.partition("    @torch.no_grad")[0])
    assert kind_of(found.module, found.calling)[0] == ""


def test_its_writer_is_handed_the_mask_that_forward_takes(desk):
    [writer] = desk(MODEL).writers()
    assert writer.options == {"count": "steps"}
    found = desk(MODEL)
    assert writer.write(found, found.example(2, 5), 3).new.shape == (2, 3)


@pytest.mark.parametrize(
    ("says", "places", "verdict"),
    [
        (SAYS, COUNTS, "PASS"),
        (SAYS, COLUMNS, "FAIL"),
        ("", COLUMNS, "NOT_PROVIDED"),  # nobody says that padding may stand there
    ],
)
def test_padding_in_front_changes_nothing_that_is_written(desk, says, places, verdict):
    assert COUNTS in MODEL
    impl = Whole(desk(MODEL.replace("    def __init__", says + "    def __init__").replace(COUNTS, places)))
    assert run_check(CHECKS["model-left-padding-changes-nothing-where-said"], impl, "quick").verdict.name == verdict


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("#!/usr/bin/env python\n# A chat model.\nimport os\n# more\n", "A chat model."),
        ('"""A chat model.\n\nMore."""\n', "A chat model.\n\nMore."),
        ("import os\n# more\n", ""),
    ],
)
def test_a_file_says_first_what_its_comment_or_docstring_says(tmp_path, monkeypatch, text, said):
    (tmp_path / "said_first.py").write_text(text + "class Chat:\n    pass\n")
    linecache.checkcache()
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    module = importlib.import_module("said_first")
    assert heading_of(module.Chat) == said
    del sys.modules["said_first"]
