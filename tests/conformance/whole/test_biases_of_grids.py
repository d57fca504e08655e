"""A learned bias for each distance in a picture is right in both directions; one for each place is not."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from conformance.adapters.whole.attention import attentions  # noqa: E402
from conformance.adapters.whole.attention_findings import attention_findings  # noqa: E402
from conformance.adapters.whole.record import record  # noqa: E402

DISTANCE = "attention-relative-bias-depends-on-distance"
ROWS, COLUMNS = torch.arange(12) // 4, torch.arange(12) % 4
APART = (ROWS[:, None] - ROWS + 2) * 7 + COLUMNS[:, None] - COLUMNS + 3


class Window(nn.Module):
    """Attention over 3 rows of 4 places; the last place of a row may be shifted in from elsewhere."""

    def __init__(self, index, mask):
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.relative_position_bias_table = nn.Parameter(torch.randn(144, 2))
        self.register_buffer("index", index)
        self.register_buffer("mask", mask)

    def forward(self, x):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, 2, 8).permute(2, 0, 3, 1, 4)
        bias = self.relative_position_bias_table[self.index.reshape(-1)].view(12, 12, 2).permute(2, 0, 1)
        weights = (q @ k.mT * 8**-0.5 + bias + self.mask).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


SHIFTED = torch.where((COLUMNS[:, None] < 3) == (COLUMNS < 3), 0.0, -100.0)


@pytest.mark.parametrize("mask", [torch.zeros(12, 12), SHIFTED], ids=["open", "shifted"])
@pytest.mark.parametrize(
    ("index", "expected"),
    [(APART, []), (torch.arange(12)[:, None].expand(12, 12), [DISTANCE]), (APART * COLUMNS, [DISTANCE])],
    ids=["both directions", "places of queries", "of columns"],
)
def test_biases_of_windows(index, expected, mask):
    torch.manual_seed(0)
    model = Window(index, mask)
    with torch.no_grad():
        run = record(model, lambda: model(torch.randn(2, 12, 16)))
    assert [one.claim for one in attention_findings(attentions(run)) if one.certain] == expected
