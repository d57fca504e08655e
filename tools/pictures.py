"""Make the pictures under docs/pictures: `python -m tools.pictures`. Each is one `minigrad render` command."""

from __future__ import annotations

import sys
from pathlib import Path

from minigrad.cli import main as minigrad

FOLDER = Path(__file__).parent.parent / "docs" / "pictures"
PICTURES = {  # file -> the words after `minigrad render`, as docs/drawing.md shows them
    "neuron": ["--example", "neuron", "--plain", "--values"],
    "mlp": ["--example", "mlp"],
    "attention": ["--example", "attention"],
    "softmax": ["--example", "softmax", "--unfold", "softmax"],
    "multi-head-attention": ["--example", "multi-head-attention", "--values"],
    "encoder-layer": ["--example", "encoder-layer"],
    "encoder-decoder": ["--example", "encoder-decoder"],
    "llama": ["--example", "llama"],
    "gpt-train-step": ["--example", "gpt-train-step"],
}


def main() -> int:
    """Draw all of them. Returns the exit code of the first that fails, or 0."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, words in PICTURES.items():
        code = minigrad(["render", *words, "-o", str(FOLDER / f"{name}.svg")])
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
