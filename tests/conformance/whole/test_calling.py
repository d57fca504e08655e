"""Models of the field's styles, each small: how each is called, and what is said where none can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from conformance.adapters import SpecificationError, resolve  # noqa: E402


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """whole("Net", "class Net...") is the whole model that `--impl file.py:Net` gives."""
    import sys

    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)

    def make(name: str, text: str) -> Any:
        path = tmp_path / "calling_subject.py"
        path.write_text("import torch\nfrom torch import nn\nimport torch.nn.functional as F\n" + dedent(text))
        return resolve(f"{path}:{name}").whole

    yield make
    for added in set(sys.modules) - before:
        if str(getattr(sys.modules[added], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[added]


def test_the_first_reason_is_told_with_the_line_to_write(whole):
    with pytest.raises(SpecificationError) as caught:
        whole("Odd", "class Odd(nn.Module):\n    def __init__(self, widget: str):\n        super().__init__()\n")
    assert "nothing shows what widget of Odd should be" in str(caught.value)
    assert "Odd(widget=...)" in str(caught.value)
    assert str(caught.value).count("UNRESOLVED") == 1
