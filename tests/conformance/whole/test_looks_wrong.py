"""What is right in a model and looks wrong in one run: used elsewhere, kept from a first call, turned by a window."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from conformance.adapters.inference.construct import Constructor  # noqa: E402
from conformance.adapters.inference.parts import PartOf  # noqa: E402
from conformance.adapters.inference.resolve import _may_drop, resolution_of  # noqa: E402
from conformance.adapters.whole.sizes import Sizing  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402

LM = """
class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.mix, self.head = nn.Embedding(20, 8), nn.Linear(8, 8), nn.Linear(8, 20)
        MORE

    def forward(self, ids, with_loss=False):
        x = self.table(ids)
        x = x + self.mix(x.cumsum(1) / torch.arange(1, ids.size(1) + 1)[:, None])
        RUN
        return self.head(x)
"""
OF_A_LOSS = LM.replace("MORE", "self.later = nn.ModuleList([nn.Linear(8, 20), nn.Linear(8, 20)])").replace(
    "RUN", "if with_loss: return self.head(x), [head(x) for head in self.later]"
)
HANDED_ON = LM.replace("MORE", "self.generator = nn.Linear(8, 20)").replace("RUN", "pass")
RARELY = LM.replace("MORE", "pass").replace("RUN", "x = x * 2 if torch.rand(()) < 0.25 else x")
RATES = """
class Rates(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("inv_freq", 1.0 / 100 ** (torch.arange(8) / 8))

    def forward(self, length):
        return torch.outer(torch.arange(float(length)), self.inv_freq).sin()
"""
KEPT = RATES + LM.replace(
    "MORE", "self.rates = Rates(); self.register_buffer('codes', None, persistent=False)"
).replace(
    "RUN",
    "if self.codes is None or len(self.codes) < ids.size(1): "
    "self.register_buffer('codes', self.rates(40), persistent=False)\n"
    "        x = x + self.codes[: ids.size(1)]",
)
KEPT_BESIDE = RATES + LM.replace("MORE", "self.rates, self.codes, self.count = Rates(), None, 0").replace(
    "RUN",
    "if ids.size(1) > self.count: self.codes, self.count = self.rates(40), 40\n"
    "        x = x + self.codes[: ids.size(1)]",
)
IDLE = KEPT.replace("x = x + self.codes", "self.codes")
WINDOWS = """
def turned(x, start):
    places, rates = torch.arange(start, start + x.size(-2)).float(), torch.tensor([1.0, 0.1, 0.01, 0.001])
    angle = torch.outer(places, rates).repeat(1, 2)
    a, b = x.chunk(2, -1)
    return x * angle.cos() + torch.cat([-b, a], -1) * angle.sin()

class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.qkv, self.head = nn.Embedding(20, 8), nn.Linear(8, 24), nn.Linear(8, 20)

    def forward(self, ids):
        B, T = ids.shape
        x = self.table(F.pad(ids, (0, -T % 3)))
        q, k, v = (part.view(B, -1, 3, 8) for part in self.qkv(x).chunk(3, -1))
        k, v = (torch.cat([F.pad(part, (0, 0, 0, 0, 1, 0))[:, :-1], part], 2) for part in (k, v))
        q, k = turned(q, 3), turned(k, 0)
        there = (torch.arange(6) <= torch.arange(3, 6)[:, None]) & (
            (torch.arange(6) >= 3) | (torch.arange(q.size(1))[:, None, None] > 0)
        )
        scores = (q @ k.transpose(-1, -2) / 8**0.5).masked_fill(~there, float("-inf"))
        return self.head((scores.softmax(-1) @ v).reshape(B, -1, 8)[:, :T] + x[:, :T])
"""


@pytest.fixture
def subject(made: Callable[..., Any]) -> Callable[..., Any]:
    """subject("class LM...", {"train.py": "..."}): the running model."""
    from conformance.adapters.whole.model import whole_model

    return lambda text, files=None: whole_model(
        made("LM", "import torch.nn.functional as F\n" + text, files), "language_model"
    )


def verdict(slug: str, subject: Any) -> Verdict:
    import conformance.checks  # noqa: F401
    from conformance.check import CHECKS
    from conformance.runner import run_check

    impl = SimpleNamespace(build=lambda role, config: subject, variants=lambda: ())
    return run_check(CHECKS[slug], impl, "quick").verdict


def test_a_list_of_heads_may_be_run_for_a_loss_only(subject):
    assert verdict("modules-that-are-made-run", subject(OF_A_LOSS)) is Verdict.PASS
    assert verdict("modules-that-are-made-run", subject(OF_A_LOSS.replace("head in self.later", "head in []"))) is (
        Verdict.FAIL
    )


@pytest.mark.parametrize("given", ["model.generator", "self.model.generator", "head=model.generator"])
def test_a_head_may_be_handed_on_to_a_loss_of_another_file(subject, given):
    used = {"train.py": f"def step(model, ids, loss):\n    return loss(model(ids), {given})\n"}
    assert verdict("modules-that-are-made-run", subject(HANDED_ON, used)) is Verdict.PASS


def test_what_a_head_is_made_of_is_used_where_the_head_is_handed_on(subject):
    text = HANDED_ON.replace("nn.Linear(8, 20)", "nn.Sequential(nn.Linear(8, 20), nn.LogSoftmax(-1))")
    assert text != HANDED_ON
    used = {"train.py": "def step(model, ids, loss):\n    return loss(model(ids), model.generator, 2)\n"}
    assert verdict("model-every-parameter-gets-a-gradient", subject(text)) is Verdict.FAIL
    assert verdict("model-every-parameter-gets-a-gradient", subject(text, used)) is Verdict.PASS


def test_a_head_may_be_called_by_another_file(subject):
    used = {"train.py": "def write(test_model, ids):\n    return test_model.generator(test_model(ids)[:, -1])\n"}
    assert verdict("modules-that-are-made-run", subject(HANDED_ON, used)) is Verdict.PASS


def test_a_head_that_no_file_reads_is_one_that_never_runs(subject):
    kept = {"train.py": "def step(model, head):\n    model.generator = head\n"}
    assert verdict("modules-that-are-made-run", subject(HANDED_ON, kept)) is Verdict.FAIL


def test_a_draw_that_rarely_changes_an_answer_is_found(subject):
    assert subject(RARELY).draws_anew
    assert not subject(KEPT).draws_anew


def test_a_draw_of_another_library_is_found(subject):
    assert (
        subject("import random\n" + RARELY.replace("torch.rand(()) < 0.25", "random.random() < 2")).draws_anew is False
    )
    assert subject(
        "import random\n" + RARELY.replace("x * 2 if torch.rand(()) < 0.25 else x", "x * random.random()")
    ).draws_anew


def test_what_a_call_keeps_is_no_draw(subject):
    kept = LM.replace("MORE", "self.calls = 0").replace(
        "RUN", "self.calls += 1; x = x * self.calls + 0 * torch.rand(())"
    )
    assert not subject(kept).draws_anew


def test_a_table_may_be_made_of_another_in_the_first_call(subject):
    assert subject(KEPT).idle_buffers() == []
    assert subject(KEPT_BESIDE).idle_buffers() == []
    assert subject(KEPT_BESIDE.replace("x = x + self.codes", "self.codes")).idle_buffers() == ["rates.inv_freq"]
    assert subject(IDLE).idle_buffers()


def test_queries_of_a_window_are_turned_by_their_own_places(subject):
    assert verdict("attention-rotates-queries-and-keys", subject(WINDOWS)) is Verdict.PASS
    keys_alone = WINDOWS.replace("q, k = turned(q, 3), turned(k, 0)", "k = turned(k, 0)")
    assert verdict("attention-rotates-queries-and-keys", subject(keys_alone)) is Verdict.FAIL


def test_a_number_that_is_no_share_is_no_dropout():
    assert Sizing({"dropout": 0.3}).of("p", -1.0) == -1.0
    assert Sizing({"dropout": 0.3}).of("p", 0.1) == 0.3


def test_a_dropout_that_is_none_drops_nothing():
    part = torch.nn.Linear(2, 2)
    part.dropout = None
    assert not _may_drop(part)
    part.dropout = 0.0
    assert not _may_drop(part)
    part.dropout = 0.5
    assert _may_drop(part)


class Recommender(torch.nn.Module):
    """Its rate of dropout is that of its input, and of its attention where `reaches`."""

    reaches = False

    def __init__(self, n_items=20, d_model=8, n_heads=2, n_layers=1, dropout=0.1):
        super().__init__()
        self.items = torch.nn.Embedding(n_items, d_model)
        self.drop = torch.nn.Dropout(dropout)
        rate = dropout if self.reaches else 0.0
        self.attention = torch.nn.MultiheadAttention(d_model, n_heads, dropout=rate, batch_first=True)

    def forward(self, ids):
        x = self.drop(self.items(ids))
        return self.attention(x, x, x)[0] @ self.items.weight.T


class Dropping(Recommender):
    reaches = True


@pytest.mark.parametrize(("whole", "fixed"), [(Recommender, {"dropout": 0.0}), (Dropping, {})])
def test_a_rate_that_does_not_reach_a_component_is_no_option_of_it(whole, fixed):
    part = PartOf(Constructor(whole), "attention")
    found = resolution_of(torch.nn.MultiheadAttention, "multi_head_attention", part)
    assert {name: value for name, value in found.fixed.items() if name == "dropout"} == fixed
