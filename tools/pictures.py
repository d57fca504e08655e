"""Make the pictures under docs/pictures: `python -m tools.pictures`. Most are one `minigrad render` command each.

Those of the interactive page are photographed by chromium, where it is installed. `mistake.svg` is the failure that
docs/tutorial.md shows, drawn as a terminal shows it.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from xml.sax.saxutils import escape

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


COLUMNS = 108
ADVANCE, LEADING, MARGIN = 7.2, 18, 14
COLOURS = {"$": "#9cdcfe", "FAIL": "#ff7b72", "-": "#ff7b72", "+": "#7ee787"}


def failure_of_the_tutorial(text: str) -> list[str]:
    """The tutorial's first run with its first failure, wrapped to COLUMNS, and the change that mends it."""
    found = re.search(
        r"^\$ (pytest .*?)(?: --claims-report \S+)?$.*?^(FAIL .*?)(?=^\S)", text, re.MULTILINE | re.DOTALL
    )
    mended = re.search(r"^```diff\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    if found is None or mended is None:
        raise ValueError("docs/tutorial.md shows no run of pytest with a failure and the change that mends it")
    lines = [f"$ {found[1]}"]
    for line in found[2].rstrip().splitlines():
        text = line.lstrip()
        before = line[: len(line) - len(text)]
        after = " " * (14 if before else 4)
        words = {"initial_indent": before, "subsequent_indent": after, "break_on_hyphens": False}
        lines += [line] if len(line) <= COLUMNS else textwrap.wrap(text, COLUMNS, **words)
    return [*lines, "", *mended[1].splitlines()]


def terminal(lines: list[str]) -> str:
    """Lines as an SVG of a terminal. Every line has its width set, so that each font gives the same columns."""
    width = COLUMNS * ADVANCE + 2 * MARGIN
    height = len(lines) * LEADING + 2 * MARGIN
    texts = []
    for row, line in enumerate(lines):
        colour = next((colour for word, colour in COLOURS.items() if line.startswith(word)), "#e6edf3")
        place = f'x="{MARGIN}" y="{MARGIN + row * LEADING + 13}" textLength="{len(line) * ADVANCE:.1f}"'
        shown = escape(line.replace(" ", "\N{NO-BREAK SPACE}"))
        texts.append(f'<text {place} lengthAdjust="spacingAndGlyphs" fill="{colour}">{shown}</text>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" role="img">',
            "<title>A mistake that the claims found</title>",
            f'<rect width="{width:.0f}" height="{height}" rx="6" fill="#0d1117"/>',
            '<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="12">',
            *texts,
            "</g></svg>\n",
        ]
    )


def main() -> int:
    """Draw all of them. Returns the exit code of the first that fails, or 0."""
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()  # it takes nothing
    FOLDER.mkdir(parents=True, exist_ok=True)
    tutorial = (FOLDER.parent / "tutorial.md").read_text(encoding="utf-8")
    (FOLDER / "mistake.svg").write_text(terminal(failure_of_the_tutorial(tutorial)), encoding="utf-8")
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
