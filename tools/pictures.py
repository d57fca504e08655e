"""Make the pictures under docs/pictures: `python -m tools.pictures`. Each is one `minigrad render` command.

Those of the interactive page are photographed by chromium, where it is installed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
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
PAGE = ["--example", "encoder-decoder", "--backward", "--values"]
PHOTOGRAPHS = {"page": "theme=light", "page-dark": "theme=dark&search=decoder+norm", "page-step": "theme=light&step=4"}


def photograph(page: Path, state: str, target: Path) -> None:
    """Let chromium open `page` in a state that its address names, and keep what it shows as a PNG."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1400,900"]
    address = f"{page.as_uri()}#{state}"
    subprocess.run(["chromium", *flags, f"--screenshot={target}", address], check=True, capture_output=True)


def main() -> int:
    """Draw all of them. Returns the exit code of the first that fails, or 0."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, words in PICTURES.items():
        code = minigrad(["render", *words, "-o", str(FOLDER / f"{name}.svg")])
        if code:
            return code
    if shutil.which("chromium") is None:
        print("chromium is not installed: the pictures of the page stay as they are", file=sys.stderr)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "page.html"
        code = minigrad(["render", *PAGE, "-o", str(page)])
        for name, state in PHOTOGRAPHS.items() if not code else ():
            photograph(page, state, FOLDER / f"{name}.png")
            print(FOLDER / f"{name}.png")
    return code


if __name__ == "__main__":
    sys.exit(main())
