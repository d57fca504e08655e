"""A forward that takes a mapping is given what the functions that make batches put into it."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from wholes import pointed  # noqa: E402

from conformance.adapters.whole.collating import told_by_batches  # noqa: E402
from conformance.adapters.whole.told import Told  # noqa: E402


class Histories(nn.Module):
    """Codes with the day of each, numbers of the patient, and which pairs of entries belong together."""

    def __init__(self, codes=23, static=3, width=16):
        super().__init__()
        self.codes, self.static = nn.Embedding(codes, width), nn.Linear(static, width)
        self.day, self.pairs = nn.Linear(1, width), nn.Embedding(4, 2)
        self.layers = nn.ModuleList([nn.MultiheadAttention(width, 2, batch_first=True)])
        self.head = nn.Linear(width, codes)

    def encode(self, batch):
        x = self.codes(batch["codes"]) + self.day(batch["days"][..., None]) + self.static(batch["static"])[:, None]
        bias = self.pairs(batch["pairs"]).permute(0, 3, 1, 2).flatten(0, 1)
        bias = bias.masked_fill(~batch["mask"].repeat_interleave(2, 0)[:, None], -1e9)
        bias = bias + torch.full_like(bias[0], -1e9).triu(1)
        for layer in self.layers:
            x = x + layer(x, x, x, attn_mask=bias, need_weights=False)[0]
        return x

    def forward(self, batch):
        """The scores of what comes next, as a GPT gives them."""
        return self.head(self.encode(batch))


class Collate:
    def __call__(self, rows):
        b, t = len(rows), max(len(row["codes"]) for row in rows)
        codes = torch.zeros(b, t, dtype=torch.long)
        days = torch.full((b, t), float("nan"))
        pairs = torch.zeros((b, t, t), dtype=torch.int64)
        for i, row in enumerate(rows):
            codes[i, : len(row["codes"])] = torch.tensor(row["codes"])
        static = torch.tensor([row["static"] for row in rows], dtype=torch.float)
        return {"codes": codes, "days": days, "pairs": pairs, "static": static, "mask": codes != 0}


def test_batches_tell_axes_and_dtypes():
    assert told_by_batches(Histories, ["codes", "days", "static", "pairs", "mask", "label"]) == {
        "codes": Told(("b", "t"), "int"),
        "days": Told(("b", "t"), "float"),
        "static": Told((), "float"),
        "pairs": Told(("b", "t", "t"), "int"),
        "mask": Told(("b", "t"), "bool"),
    }
    assert told_by_batches(nn.Linear, ["codes", "days"]) == {}
    assert told_by_batches(Histories, ["codes", "words"]) == {}  # one key may be by chance


def test_a_model_of_such_batches_is_called():
    calling = pointed(Histories).whole.calling
    assert (calling.main.parameter, calling.main.vocab, calling.outputs) == ("codes", 23, 23)
    shapes = {name: calling.fixed[name].shape for name in ("days", "static", "pairs")}
    assert [len(shape.sizes) for shape in shapes.values()] == [2, 2, 3]
    assert [shape.dtype for shape in shapes.values()] == ["float", "float", "int"]
