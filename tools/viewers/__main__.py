"""What other viewers show of five models: `python -m tools.viewers --page docs/viewers.md`.

Each viewer gets the same models. What its picture holds is read from what it made: graphviz's text, the page, the graph
that it sends to its page. A viewer that is not installed is left out, and one sentence says so.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from rich.console import Console

from tools.bench import page
from tools.viewers.models import LAYERS, MODELS
from tools.viewers.others import VIEWERS, Drawing, Viewer, timed

SHAPE = re.compile(r"1[,×x] ?1[67][,×x] ?64")
"""Of the stream that goes through every model: (1, 16, 64), with the ViT's class token 17."""
LINE = re.compile(r"models\.py[\"']?[:,](?: line)? ?\d+")


@dataclass(frozen=True)
class Row:
    """What one viewer shows of one model. parameters: the share of their names that can be read. grows: whether twice
    as many blocks make more boxes."""

    viewer: Viewer
    model: str
    drawing: Drawing
    seconds: float
    parameters: float
    grows: bool

    @property
    def shapes(self) -> bool:
        return SHAPE.search(self.drawing.text) is not None

    @property
    def lines(self) -> bool:
        return LINE.search(self.drawing.text) is not None

    @property
    def backward(self) -> bool:
        return "ackward" in self.drawing.text


def look(viewer: Viewer, name: str) -> Row:
    """Draw a model. Raises what the viewer raises."""
    make, inputs = MODELS[name]
    torch.manual_seed(0)
    model, given = make().eval(), inputs()
    viewer.draw(model, given)  # the first time imports
    drawing, seconds = timed(lambda: viewer.draw(model, given))
    twice = viewer.draw(make(2 * LAYERS).eval(), given)
    return Row(
        viewer,
        name,
        drawing,
        seconds,
        _share([path for path, _ in model.named_parameters()], drawing.text),
        twice.opened > drawing.opened,
    )


def _share(names: Sequence[str], text: str) -> float:
    return sum(name in text for name in names) / len(names)


def _cell(values: Sequence[bool]) -> str:
    return "yes" if all(values) else "no" if not any(values) else f"{sum(values)} of {len(values)}"


def table(rows: Sequence[Row], refused: dict[str, list[str]]) -> str:
    """Markdown: a line for each viewer."""
    head = ["viewer", "models drawn", "boxes as it opens", "boxes in all", "seconds", "modules as frames", "shapes"]
    head += ["names of parameters", "lines of the source", "backward pass", "blocks that repeat are drawn once"]
    lines = ["| " + " | ".join(head) + " |", "|---" + "|---:" * (len(head) - 1) + "|"]
    for viewer in VIEWERS:
        own = [row for row in rows if row.viewer is viewer]
        if not own:
            continue
        cells = [
            f"{viewer.name} {viewer.version}",
            f"{len(own)} of {len(own) + len(refused.get(viewer.name, []))}",
            ", ".join(str(row.drawing.opened) for row in own),
            ", ".join(str(row.drawing.whole) for row in own),
            f"{median(row.seconds for row in own):.2g}",
            _cell([row.drawing.frames > 0 for row in own]),
            _cell([row.shapes for row in own]),
            f"{median(row.parameters for row in own):.0%}",
            _cell([row.lines for row in own]),
            _cell([row.backward for row in own]),
            _cell([not row.grows for row in own]),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.viewers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="VIEWER", help="one viewer, such as torchview")
    parser.add_argument("--page", metavar="FILE", type=Path, help="write the table into this page (docs/viewers.md)")
    arguments = parser.parse_args(argv)
    console = Console(stderr=True)
    rows, refused = list[Row](), dict[str, list[str]]()
    chosen = [viewer for viewer in VIEWERS if arguments.only in (None, viewer.name)]
    if not chosen:
        parser.error(f"--only {arguments.only}: there are {', '.join(viewer.name for viewer in VIEWERS)}")
    with console.status("drawing") as status:
        for viewer in chosen:
            for name in MODELS:
                status.update(f"{viewer.name}: {name}")
                try:
                    rows.append(look(viewer, name))
                except ModuleNotFoundError as error:
                    console.print(f"{viewer.name} is left out: {error}")
                    break
                except Exception as error:  # a viewer may raise anything; that is a fact of the table
                    refused.setdefault(viewer.name, []).append(name)
                    console.print(f"{viewer.name} does not draw {name}: {type(error).__name__}: {str(error)[:200]}")
    made = table(rows, refused)
    if arguments.page:
        command = f"    python -m tools.viewers --page {arguments.page}"
        order = f"The models, in the order of the counts: {', '.join(MODELS)}."
        page.write(arguments.page, f"{command}\n\n{order}\n\n{made}")
    else:
        print(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
