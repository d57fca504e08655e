"""What a forward is handed beside data: a sublayer, a tensor that is called like a switch, ids in a dict."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import Tensor, nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from wholes import pointed  # noqa: E402

import conformance.checks  # noqa: E402, F401
from conformance.adapters.whole.searching import calling_of  # noqa: E402
from conformance.adapters.whole.sizes import meaning  # noqa: E402
from conformance.adapters.whole.told import told_by_forward  # noqa: E402
from conformance.check import CHECKS  # noqa: E402
from conformance.runner import run_check  # noqa: E402
from conformance.verdict import Verdict  # noqa: E402


class Sublayer(nn.Module):
    """A residual around whatever it is handed, as many code it."""

    def __init__(self, d_model=16, dropout=0.1):
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(d_model), nn.Dropout(dropout)

    def forward(self, x, sublayer):
        return x + self.dropout(sublayer(self.norm(x)))


class DropsAlways(Sublayer):
    def forward(self, x, sublayer):
        return x + F.dropout(sublayer(self.norm(x)), 0.1, True)


class OnLateDays(nn.Module):
    """Attention whose keys count more where a tensor says so."""

    def __init__(self, d_model=16, n_heads=2):
        super().__init__()
        self.n_heads, self.d_head = n_heads, d_model // n_heads
        self.width = self.d_head
        self.query, self.key, self.value, self.out = (nn.Linear(d_model, d_model) for _ in range(4))

    def split(self, x):
        return x.view(*x.shape[:2], self.n_heads, self.d_head).transpose(1, 2)

    def forward(self, x: Tensor, is_late: Tensor) -> Tensor:
        """x: (B, T, d_model). is_late: (B, T), 0 or 1."""
        q, k, v = (self.split(part(x)) for part in (self.query, self.key, self.value))
        scores = q @ k.transpose(-2, -1) / self.width**0.5 + is_late[:, None, None, :].float()
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))


class ScaledByTheModel(OnLateDays):
    """1 / sqrt(d_model) in the place of 1 / sqrt(d_head)."""

    def __init__(self, d_model=16, n_heads=2):
        super().__init__(d_model, n_heads)
        self.width = d_model


class Sales(nn.Module):
    """Its ids come in a dict, and are made whole numbers here."""

    def __init__(self, d_model=16, max_year_index=3, n_shops=5):
        super().__init__()
        self.numbers = nn.Linear(d_model, d_model)
        self.years, self.shops = nn.Embedding(max_year_index + 1, d_model), nn.Embedding(n_shops, d_model)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(d_model, 2, 32, batch_first=True) for _ in range(2))
        self.head = nn.Linear(d_model, 1)

    def forward(self, batch):
        """x: [B, L, d_model]; year: [B, L]; shop: [B]"""
        x, year = batch["x"], batch["year"].long()
        shop = batch.get("shop")
        x = self.numbers(x) + self.years(year) + self.shops(shop.long())[:, None]
        for layer in self.layers:
            x = layer(x)
        return self.head(x[:, -1])


@pytest.mark.parametrize(
    ("cls", "claim", "verdict"),
    [
        (Sublayer, "model-drops-only-in-training", Verdict.PASS),
        (DropsAlways, "model-drops-only-in-training", Verdict.FAIL),
        (Sublayer, "encoder-every-word-reaches-every-word", Verdict.NOT_PROVIDED),
        (OnLateDays, "attention-scale-is-one-over-sqrt-d-head", Verdict.PASS),
        (ScaledByTheModel, "attention-scale-is-one-over-sqrt-d-head", Verdict.FAIL),
        (Sales, "model-every-parameter-gets-a-gradient", Verdict.PASS),
    ],
)
def test_what_is_handed_in_is_found_and_the_model_is_judged(cls, claim, verdict):
    found = run_check(CHECKS[claim], pointed(cls), "quick")
    assert found.verdict is verdict, found


def test_a_tensor_is_no_switch_whatever_it_is_called():
    calling = calling_of(OnLateDays())
    assert calling.main.parameter == "x"
    assert {name: shape.sizes for name, shape in calling.beside.items()} == {"x": (2, 6, 16), "is_late": (2, 6)}


def test_ids_in_a_dict_are_whole_numbers():
    told = told_by_forward(Sales(), ["x", "year", "shop"])
    assert {name: one.dtype for name, one in told.items()} == {"x": "", "year": "int", "shop": "int"}


def test_the_largest_index_is_a_size():
    assert meaning("max_year_index") == "classes"
    assert meaning("pad_index") == "pad_id"
