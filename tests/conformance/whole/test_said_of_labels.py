"""What a model's author says of its labels: that they are the inputs, or that somebody has shifted them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from wholes import Whole  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.whole.label_probes import LabelProbes  # noqa: E402
from conformance.adapters.whole.model import whole_model  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402


@pytest.fixture
def says() -> Callable[[str], Any]:
    """What is read of the text of a class."""

    def read(text: str) -> Any:
        model = torch.nn.Identity()
        calling = SimpleNamespace(labels="")
        sources = lambda: [(type(model), text, "", 1)]  # noqa: E731
        return LabelProbes.says_shift(SimpleNamespace(module=model, sources=sources, calling=calling))

    return read


@pytest.mark.parametrize(
    ("text", "shift"),
    [
        ("labels are the input ids themselves (-100 = ignored), the shift happens here.", 1),
        ("labels = input_ids", 1),
        ("labels: the tokens themselves", 1),
        ("The shift takes place inside.", 1),
        ("labels are the input ids, shifted inside", 1),
        ("labels are the input ids shifted by one", None),
        ("labels: input_ids that are shifted to the left", None),
        ("`labels` are aligned with `tokens`; the shift happens in here.", 1),
        ("targets: aligned with the inputs", 1),
        ("`targets` are token ids aligned with `ids`, -100 is ignored", 1),
        ("labels are aligned from the loader", 0),
        ("No shift happens here.", None),
        ("no shift happens in here", None),
        ("labels are not shifted here", None),
        ("The labels are already shifted.", 0),
        ("The labels are shifted by the caller.", 0),
        ("The labels are *not* shifted by the caller.", 1),
        ("labels (B, T)", None),
        ("labels: same layout as ids, not shifted, IGNORE where no loss is wanted", 1),
        ("targets: (B, T), unshifted", 1),
        ("labels: (B, T), not shifted here", None),
    ],
)
def test_who_shifts_labels_is_read_of_the_text(says: Callable[[str], Any], text: str, shift: int | None) -> None:
    assert says(text) == shift


CAPTIONS = """
class Captioner(nn.Module):
    def __init__(self, vocab_size=40):
        super().__init__()
        self.see = nn.Conv2d(3, 8, 4, 4)
        self.words = nn.Embedding(vocab_size, 8)
        self.block = nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.head = nn.Linear(8, vocab_size)

    def forward(self, pixel_values=None, input_ids=None, labels=None):
        seen = self.see(pixel_values).flatten(2).transpose(1, 2)
        future = torch.ones(input_ids.shape[1], input_ids.shape[1]).triu(1).bool()
        logits = self.head(self.block(self.words(input_ids), seen, future))
        loss = None if labels is None else F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return {"logits": logits, "loss": loss}

    def generate(self, pixel_values, ids):
        return ids

def collate(rows):
    input_ids = torch.stack(rows)
    return {"input_ids": input_ids, "labels": input_ids.clone()}
"""
TAUGHT = "language-model-loss-teaches-the-next-token"


@pytest.mark.parametrize(
    ("right", "wrong", "verdict"),
    [
        ("", "", "PASS"),
        ("logits[:, :-1].flatten(0, 1), labels[:, 1:]", "logits.flatten(0, 1), labels", "FAIL"),
        ("input_ids.clone()", "input_ids.clone().roll(-1, 1)", "PASS"),
    ],
)
def test_a_function_that_makes_batches_says_who_shifts(made: Any, right: str, wrong: str, verdict: str) -> None:
    model = whole_model(made("Captioner", "import torch.nn.functional as F\n" + CAPTIONS.replace(right, wrong)))
    assert run_check(CHECKS[TAUGHT], Whole(model), "quick").verdict.name == verdict


WRITER = """
class GPT(nn.Module):
    def __init__(self, vocab_size=40):
        super().__init__()
        self.words = nn.Embedding(vocab_size, 8)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.head = nn.Linear(8, vocab_size)

    def forward(self, idx, targets=None):
        future = torch.ones(idx.shape[1], idx.shape[1]).triu(1).bool()
        logits = self.head(self.block(self.words(idx), future))
        loss = None if targets is None else F.cross_entropy(logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten())
        return logits, loss

def train(model, batches, optimizer):
    for batch in batches:
        model(batch, targets=batch)[1].backward()
        optimizer.step()
"""
ROLLED = {"logits[:, :-1].flatten(0, 1), targets[:, 1:]": "logits.flatten(0, 1), targets.roll(-1, 1)"}
UNSHIFTED = {"logits[:, :-1].flatten(0, 1), targets[:, 1:]": "logits.flatten(0, 1), targets"}


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "PASS"),
        (ROLLED, "PASS"),  # the last token is taught the first one
        (UNSHIFTED, "FAIL"),
        (UNSHIFTED | {"targets=batch)": "targets=batch.roll(-1, 1))"}, "PASS"),
        (UNSHIFTED | {"        optimizer.step()\n": ""}, "PASS"),
        (UNSHIFTED | {"model(batch, targets=batch)": "model(idx=batch, targets=batch)"}, "FAIL"),
    ],
)
def test_a_call_that_hands_the_inputs_in_as_labels_says_who_shifts(made: Any, changes: dict, verdict: str) -> None:
    text = "import torch.nn.functional as F\n" + WRITER
    for old, new in changes.items():
        text = text.replace(old, new)
    model = whole_model(made("GPT", text))
    assert run_check(CHECKS[TAUGHT], Whole(model), "quick").verdict.name == verdict


def test_the_loss_of_a_forward_whose_inputs_may_all_be_left_out_is_run(made: Any) -> None:
    model = whole_model(made("Captioner", "import torch.nn.functional as F\n" + CAPTIONS))
    assert [run.name for run in model.loss_runs()] == ["forward"]
