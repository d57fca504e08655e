"""What a model's author says of its labels: that they are the inputs, or that somebody has shifted them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from conformance.adapters.whole.label_probes import LabelProbes  # noqa: E402


@pytest.fixture
def says() -> Callable[[str], Any]:
    """What is read of the text of a class."""

    def read(text: str) -> Any:
        model = torch.nn.Identity()
        return LabelProbes.says_shift(SimpleNamespace(module=model, sources=lambda: [(type(model), text, "", 1)]))

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
        ("No shift happens here.", None),
        ("labels are not shifted here", None),
        ("The labels are already shifted.", 0),
        ("labels (B, T)", None),
    ],
)
def test_who_shifts_labels_is_read_of_the_text(says: Callable[[str], Any], text: str, shift: int | None) -> None:
    assert says(text) == shift
