"""Batches that are cut by hand, and numbers of words that come of Python's hash: told, and nothing near them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from conformance.mutated import run_of  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402
from conformance.watch.verdicts import results_of  # noqa: E402

FAIL, NOT_SEEN = Verdict.FAIL, Verdict.NOT_SEEN
SCRIPT = """
import zlib
import torch
from torch import nn
BATCH, block_size = 4, 4
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rows, words = torch.randn(40, 4), ["one", "two"]
n_batches = len(rows) // BATCH
for epoch in range(2):
    order = torch.randperm(len(rows))
    for i in {loop}:
        x = rows[order[{cut}]]
        {more}
        loss = nn.functional.cross_entropy(model(x), x[:, :3].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def told(claim, loop="range(n_batches)", cut="i * BATCH : (i + 1) * BATCH", more="pass"):
    found = results_of(run_of(SCRIPT.format(loop=loop, cut=cut, more=more), "train.py").run)[claim]
    assert found.verdict in (FAIL, NOT_SEEN)
    return found.place.partition(": ")[2]


@pytest.mark.parametrize(
    ("loop", "cut", "is_told"),
    [
        ("range(n_batches)", "i * BATCH : (i + 1) * BATCH", False),
        ("range(n_batches)", "i : i + BATCH", True),
        ("range(len(rows) // BATCH)", "i : i + BATCH", True),
        ("range(0, len(rows), BATCH)", "i : i + BATCH", False),
        ("range(len(rows) - block_size)", "i : i + block_size", False),  # windows of a text
        ("range(len(rows) - BATCH)", "i : i + BATCH", False),
        ("[0, 4, 8]", "i : i + BATCH", False),
    ],
)
def test_batches_follow_each_other(loop, cut, is_told):
    line = f"x = rows[order[{cut}]]" if is_told else ""
    assert told("run-batches-move-on-by-their-size", loop, cut) == line


def test_a_loop_that_moves_its_number_on_is_right():
    assert told("run-batches-move-on-by-their-size", cut="i : i + BATCH", more="i += BATCH") == ""


@pytest.mark.parametrize(
    ("more", "is_told"),
    [
        ("ids = [hash(word) % 50 for word in words]", True),
        ("ids = [5 + hash(word.lower()) % 50 for word in words]", True),
        ("ids = [zlib.crc32(word.encode()) % 50 for word in words]", False),
        ("number = hash((1, 2)) % 50", False),  # of numbers, which have one hash
        ("seen = {hash(words[0])}", False),
        ("ids = [model.hash(word) % 50 for word in words] if False else 0", False),
    ],
)
def test_words_keep_their_numbers(more, is_told):
    assert told("run-words-keep-their-numbers", more=more) == (more if is_told else "")


@pytest.mark.parametrize(
    ("claim", "more"),
    [
        ("run-nearest-is-chosen-by-distance", "nearest = min([1, 5], key=lambda number: number - 4)"),
        ("run-labels-are-cut-as-their-tokens", "ids, labels = [1, 2], [3, 4]; ids, labels = ids[-1:], labels[:1]"),
    ],
)
def test_slips_of_the_text_are_told(claim, more):
    assert told(claim, more=more) == more
