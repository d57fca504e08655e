"""Right models that distil, that read numbers above zero beside their words, and that sample their false items."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from wholes import Whole  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.helpers.examining import examine  # noqa: E402
from conformance.adapters.stated import Stated  # noqa: E402
from conformance.adapters.whole.model import whole_model  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402

LM = """
    import torch.nn.functional as F

    class CausalLM(nn.Module):
        def __init__(self, vocab=50, width=8):
            super().__init__()
            self.words = nn.Embedding(vocab, width)
            self.register_buffer("places", torch.randn(16, width))
            layer = nn.TransformerEncoderLayer(width, 2, 16, 0.0, batch_first=True)
            self.stack = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

        def forward(self, ids):
            t = ids.size(1)
            causal = torch.ones(t, t, dtype=torch.bool).triu(1)
            return self.stack(self.words(ids) + self.places[:t], mask=causal) @ self.words.weight.T
"""
DISTILLER = """
    class Distiller(nn.Module):
        def __init__(self):
            super().__init__()
            self.teacher, self.student = CausalLM(), CausalLM()
            self.teacher.requires_grad_(False)

        def forward(self, ids, attention_mask):
            with torch.no_grad():
                wanted = self.teacher(ids).softmax(-1)
            logits = self.student(STUDENT)
            each = F.kl_div(logits.log_softmax(-1), wanted, reduction="none").sum(-1)
            return {"loss": (each * attention_mask).sum() / attention_mask.sum(), "logits": logits}
"""
KEPT, PADDING, CAUSAL = (
    "model-what-it-keeps-reaches-the-answer",
    "language-model-padding-changes-nothing",
    "language-model-is-causal",
)


def verdicts(found, *claims):
    return [run_check(CHECKS[claim], Whole(found), "quick").verdict.name for claim in claims]


def test_a_teacher_reaches_the_loss_and_a_mask_may_be_for_the_loss_alone(made):
    found = whole_model(made("Distiller", LM + DISTILLER.replace("STUDENT", "ids")))
    assert verdicts(found, KEPT, PADDING, CAUSAL) == ["PASS", "PASS", "PASS"]


def test_tables_that_reach_nothing_are_told(made):
    source = LM.replace("+ self.places[:t]", "+ 0 * len(self.places)")
    assert verdicts(whole_model(made("CausalLM", source)), KEPT) == ["FAIL"]


def test_times_beside_the_words_are_above_zero_where_a_logarithm_is_taken(made):
    source = (
        LM.replace("def forward(self, ids):", "def forward(self, items, dwell):")
        .replace("t = ids", "ids = items; t = ids")
        .replace("self.words(ids) +", "self.words(ids) + self.times(torch.log1p(dwell).unsqueeze(-1)) +")
        .replace("super().__init__()", "super().__init__(); self.times = nn.Linear(1, width)")
    )
    stated = Stated(input="items=2x6:int,dwell=2x6:float")
    assert verdicts(whole_model(made("CausalLM", source), stated=stated), CAUSAL) == ["PASS"]


RANKS = """
    def recall_and_ndcg(ranked, target):
        match = ranked.eq(target.unsqueeze(1))
        gain = 1 / torch.log2(torch.arange(ranked.size(1)) + 2.0)
        return match.any(1).float().mean(), (match * gain).sum(1).mean()
"""


@pytest.mark.parametrize(("log", "wrong"), [("log2", 0), ("log", 1)])
def test_gains_of_items_in_their_order(functions, log, wrong):
    found = examine(functions(RANKS.replace("log2", log)))
    assert len(found.wrong) == wrong
    assert "ndcg-discounts-by-the-rank" in found.tested


def test_what_is_called_past_and_turned_round_is_a_series_and_no_cache(made):
    source = """
    class Forecaster(nn.Module):
        def __init__(self, channels=3, width=8):
            super().__init__()
            self.embed = nn.Conv1d(channels, width, 3, padding=1)

        def forward(self, past, seen=None):
            x = past.mT
            return self.embed(x if seen is None else x * seen.mT).mT
    """
    (series,) = whole_model(made("Forecaster", source)).calling.inputs
    assert series.parameter == "past"
    assert series.shape[-1] == 3
