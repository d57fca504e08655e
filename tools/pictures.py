"""Make the pictures under docs/pictures: `python -m tools.pictures`. Needs graphviz's `dot`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np

import minigrad as mg
from minigrad.graph import Graph

FOLDER = Path(__file__).parent.parent / "docs" / "pictures"


def attention() -> Graph:
    """softmax(Q K^T / sqrt(d_k)) V with a causal mask, written out op by op."""
    visible = mg.tensor(np.tri(4, dtype=bool))

    def scaled_dot_product(query: mg.Tensor, key: mg.Tensor, value: mg.Tensor) -> mg.Tensor:
        scores = query @ key.transpose(-1, -2) / 8**0.5
        return scores.masked_fill(~visible, float("-inf")).softmax(-1) @ value

    return mg.trace(scaled_dot_product)(mg.randn(4, 8), mg.randn(4, 8), mg.randn(4, 8))


PICTURES = {"attention": attention}


def main() -> int:
    if shutil.which("dot") is None:
        print("graphviz's program 'dot' was not found: install it (apt install graphviz, brew install graphviz)")
        return 2
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, make in PICTURES.items():
        svg = make().svg().encode()
        (FOLDER / f"{name}.svg").write_bytes(svg)
        print(FOLDER / f"{name}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
