"""What forward takes beside plain token ids: places to answer at, ids that it fills up, data with odd names."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent
from typing import Any

import pytest

torch = pytest.importorskip("torch")

HEAD = "import torch.nn.functional as F\n"


@pytest.fixture
def whole(made: Callable[..., Any]) -> Callable[..., Any]:
    """whole("Net", "class Net...") is the running model that is made of a class of this text."""
    from conformance.adapters.whole.model import whole_model

    return lambda name, text: whole_model(made(name, HEAD + dedent(text)))


def test_a_masked_model_is_asked_at_every_position(whole):
    found = whole(
        "BERT",
        """
        class BERT(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.types = nn.Embedding(20, 8), nn.Embedding(2, 8)
                self.head = nn.Linear(8, 20)

            def forward(self, input_ids, segment_ids, masked_pos):
                x = self.words(input_ids) + self.types(segment_ids)
                x = x + x.mean(1, keepdim=True)
                chosen = masked_pos[:, :, None].expand(-1, -1, x.size(-1))
                return self.head(torch.gather(x, 1, chosen)), x[:, 0]
        """,
    )
    assert found.kind == "masked_language_model"
    assert found(**found.example(2, 5))["out"].shape == (2, 5, 20)


@pytest.mark.parametrize("side", ["(0, pad)", "(pad, 0)"])
def test_ids_that_are_filled_up_to_whole_windows_are_still_ids(whole, side):
    found = whole(
        "WindowGPT",
        f"""
        class WindowGPT(nn.Module):
            def __init__(self):
                super().__init__()
                self.words, self.head = nn.Embedding(20, 8), nn.Linear(8, 20)

            def forward(self, ids):
                pad = -ids.size(1) % 4
                x = self.words(F.pad(ids, {side}, value=0).reshape(len(ids), -1, 4)).flatten(1, 2)
                x = x[:, pad:] if {side}[0] else x[:, :ids.size(1)]
                return self.head(x.cumsum(1))
        """,
    )
    assert found.calling.main.vocab == 20
    assert found.kind == "language_model"


def test_what_is_called_a_mask_is_the_data_where_nothing_else_is(whole):
    found = whole(
        "Net",
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.patches, self.head = nn.Conv2d(3, 8, 8, 8), nn.Linear(8, 5)

            def forward(self, masked_img):
                return self.head(self.patches(masked_img).flatten(2).mean(2))
        """,
    )
    assert found.kind == "classifier"
    assert found.calling.main.parameter == "masked_img"
