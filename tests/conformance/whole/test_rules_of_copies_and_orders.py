"""Rules found on strangers' code: parts that name the batch first, sines before cosines, layers that a stack copied,
targets beside sources, masks that a function asks for, and gathered answers."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import math  # noqa: E402
from typing import ClassVar  # noqa: E402

from torch import nn  # noqa: E402
from wholes import pointed  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.functions import attention, positions  # noqa: E402
from conformance.adapters.whole.calling import Calling, Input  # noqa: E402
from conformance.adapters.whole.calling_parts import part_calling  # noqa: E402
from conformance.adapters.whole.kinds import kind_of  # noqa: E402
from conformance.adapters.whole.searching import calling_of  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.checks import whole_models  # noqa: E402
from conformance.evidence import true  # noqa: E402
from conformance.lookalike import _agree  # noqa: E402
from conformance.runner import run_check  # noqa: E402


class Turning(nn.Module):
    """Rotates by a table of five places; another order of axes than its own fits, too."""

    def __init__(self, width=8):
        super().__init__()
        angles = torch.outer(torch.arange(5.0), 10000 ** -(torch.arange(0, width, 2) / width))
        self.turns = torch.polar(torch.ones_like(angles), angles)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        B, T, d = x.shape
        turned = torch.view_as_complex(x.view(B, T, d // 2, 2).float()) * self.turns[None, :T]
        return self.out(torch.view_as_real(turned).flatten(-2).to(x.dtype))


def test_a_part_that_names_the_batch_first_is_called_so() -> None:
    assert part_calling(Turning()).batch_first
    assert calling_of(Turning()).batch_first


def sines_and_cosines(dim, seq_len):
    angles = torch.outer(torch.arange(seq_len), 1.0 / (10000 ** (torch.arange(0, dim, 2).float() / dim)))
    sin, cos = angles.sin(), angles.cos()
    return sin, cos


def cosines_and_sines(dim, seq_len):
    sin, cos = sines_and_cosines(dim, seq_len)
    return cos, sin


@pytest.mark.parametrize("table", [sines_and_cosines, cosines_and_sines])
def test_sines_may_stand_before_cosines(table) -> None:
    (served,) = positions.table(table)
    assert served.fits


def hides_in_place(query, key, value, mask):
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    scores.masked_fill_(mask, float("-inf"))
    return scores.softmax(-1) @ value


def keeps_in_place(query, key, value, mask):
    return hides_in_place(query, key, value, ~mask)


@pytest.mark.parametrize("function", [hides_in_place, keeps_in_place])
def test_attention_that_asks_for_a_mask_gets_an_open_one(function) -> None:
    (served,) = attention.resolve(function)
    assert served.fits


def test_answers_of_several_numbers_are_compared_by_name() -> None:
    one, same, other = (
        {"query": torch.ones(2).numpy(), "key": torch.tensor([n, 2.0]).numpy()} for n in (1.0, 1.0, 3.0)
    )
    said = [true("every gradient is finite", False, got=got) for got in (one, same, other)]
    assert _agree(said[0], said[1])
    assert not _agree(said[0], said[2])


class Copied(nn.Module):
    """Keeps the layer that its stack copied."""

    def __init__(self, width=16, kept=True):
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 2, 32, batch_first=True)
        if kept:
            self.encoder_layer = layer
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        return self.head(self.encoder(x)).mean(1)


def test_a_layer_that_a_stack_copied_is_told_as_that() -> None:
    found = run_check(CHECKS["modules-that-are-made-run"], pointed(Copied), "quick")
    assert found.verdict.name == "FAIL"
    assert "copied from" in found.diagnosis
    assert "local variable" in found.mend


class Styler(nn.Module):
    """A decoder (its mask is made by tril) that reads what it shall write beside what it shall change."""

    def __init__(self, words=37, width=16):
        super().__init__()
        self.embed, self.head = nn.Embedding(words, width), nn.Linear(width, words)

    def forward(self, inp_tokens, gold_tokens):
        causal = torch.ones(gold_tokens.shape[1], inp_tokens.shape[1]).tril()
        return self.head(causal @ self.embed(inp_tokens) + self.embed(gold_tokens))


@pytest.mark.parametrize(("beside", "kind"), [("gold_tokens", ""), ("style", "language_model")])
def test_a_model_with_a_target_beside_its_source_is_no_language_model(beside, kind) -> None:
    words = Input("ids", "inp_tokens", vocab=37)
    calling = Calling((words,), fixed={beside: lambda inputs: None}, layout="(B, T, V)", outputs=37)
    assert kind_of(Styler(), calling)[0] == kind


class Narrowed(nn.Module):
    """Remembers in which precisions it ran."""

    ran: ClassVar[set[torch.dtype]] = set()

    def __init__(self, width=16):
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(width, 2, 32, batch_first=True), 1)
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        self.ran.add(x.dtype)
        return self.head(self.encoder(x)).mean(1)


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_a_slow_model_is_not_run_in_half_precision(monkeypatch, seconds) -> None:
    monkeypatch.setattr(whole_models, "_QUICK", seconds)
    Narrowed.ran.clear()
    assert run_check(CHECKS["model-precisions-agree"], pointed(Narrowed), "quick").verdict.name == "PASS"
    assert (torch.bfloat16 in Narrowed.ran) is (seconds > 0)


class WantsMoreInTraining(nn.Module):
    """Its model hands it places, which it reads where it drops."""

    def __init__(self, dim=16, dropout=0.0):
        super().__init__()
        self.norm, self.rate, self.out = nn.LayerNorm(dim), dropout, nn.Linear(dim, dim)

    def forward(self, x, places=None):
        x = self.out(self.norm(x)).softmax(-1)
        if self.training and self.rate > 0:
            x = nn.functional.dropout(x + places.sin(), self.rate)
        return x


def test_what_a_part_wants_in_training_is_no_matter_of_its_rate() -> None:
    found = run_check(CHECKS["model-dropout-is-what-its-option-says"], pointed(WantsMoreInTraining), "quick")
    assert found.verdict.name == "NOT_PROVIDED"
