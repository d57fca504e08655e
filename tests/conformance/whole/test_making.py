"""From what the user points at to fresh modules: constructor styles of the field, and what is refused, in one sentence.

Every subject is a file of its own, written for the test, and imported under a name of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

torch = pytest.importorskip("torch")

from conformance.adapters import _find, _load, parse  # noqa: E402
from conformance.adapters.whole.making import Made, made_of  # noqa: E402

HEAD = """
import torch
from torch import nn
"""


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., Made]]:
    """made("GPT", "class GPT...", **{"train.py": "..."}): what is made of a name (or expression) of model.py."""
    modules, path = dict(sys.modules), list(sys.path)

    def make(name: str, text: str, files: dict[str, str] | None = None, file: str = "model.py") -> Made:
        for other, content in (files or {}).items():
            (tmp_path / other).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / other).write_text(dedent(content))
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(HEAD + dedent(text))
        spec = parse(f"{tmp_path / file}:{name}")
        return made_of(_find(_load(spec, ()), spec), spec)

    yield make
    for added in sys.modules.keys() - modules.keys():
        if str(getattr(sys.modules[added], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[added]
    sys.path[:] = path


def evidence(made: Made) -> str:
    return "\n".join(map(str, made.facts))


def test_a_class_whose_parameters_have_defaults_is_called_without_arguments(made):
    gpt = made(
        "GPT", "class GPT(nn.Module):\n    def __init__(self, d=8):\n        super().__init__()\n        self.d = d"
    )
    assert gpt.fresh().d == 8
    assert "zero-argument constructor" in evidence(gpt)


def test_a_call_in_the_main_block_is_read_and_not_run(made):
    text = """
    class Net(nn.Module):
        def __init__(self, ninp, nhid):
            super().__init__()
            self.fc = nn.Linear(ninp, nhid)

    if __name__ == "__main__":
        raise SystemExit("never run")
        net = Net(6, 4 * 3)
    """
    net = made("Net", text)
    assert net.fresh().fc.weight.shape == (12, 6)
    assert "Net(6, 4 * 3)" in evidence(net)
