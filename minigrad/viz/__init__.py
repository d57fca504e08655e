"""Pictures of graphs: one view model (`view`, `picture`) and several writers (`dot`, `svg`, PNG, `text`).

    minigrad.viz.save(graph, "step.svg", depth=2)     # the ending chooses the writer: .svg .dot .png .html .txt

A writer is a function (graph, Options) -> str or bytes, registered in WRITERS under its file's ending.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minigrad.files import write_atomically
from minigrad.later import load
from minigrad.viz.notebook import Drawing

if TYPE_CHECKING:
    from minigrad.graph import Graph
    from minigrad.viz.picture import Options

Writer = Callable[["Graph", "Options"], "str | bytes"]

WRITERS: dict[str, str] = {  # ending -> "module:function", imported when it is first needed
    ".dot": "minigrad.viz.writers:write_dot",
    ".svg": "minigrad.viz.writers:write_svg",
    ".png": "minigrad.viz.writers:write_png",
    ".html": "minigrad.viz.htmlfile:write_html",
    ".txt": "minigrad.viz.writers:write_text",
}


def writer(ending: str) -> Writer:
    """The function that writes files with this ending. Raises ValueError for one that nothing writes."""
    if ending.lower() not in WRITERS:
        raise ValueError(f"nothing writes files that end in {ending or 'nothing'!r}: use one of {', '.join(WRITERS)}")
    found: Writer = load(WRITERS[ending.lower()])
    return found


def dot(graph: Graph, **options: Any) -> str:
    return _text(writer(".dot")(graph, _options(options)))


def svg(graph: Graph, **options: Any) -> str:
    return Drawing(_text(writer(".svg")(graph, _options(options))))


def png(graph: Graph, **options: Any) -> bytes:
    made = writer(".png")(graph, _options(options))
    assert isinstance(made, bytes)
    return made


def html(graph: Graph, **options: Any) -> str:
    return _text(writer(".html")(graph, _options(options)))


def save(graph: Graph, path: str | os.PathLike[str], **options: Any) -> Path:
    """Draw `graph` into the file `path`, in the format of its ending; a file there before is replaced at once or not
    at all. Raises ValueError for another ending, LayoutError, RasterError, OSError."""
    target = Path(path)
    write = writer(target.suffix)
    return write_file(target, write(graph, _options(options)))


def write_file(path: Path, content: str | bytes) -> Path:
    """Write a file atomically: a reader sees the old one or the new one, never half of it."""
    write_atomically(path, [content.encode() if isinstance(content, str) else content], lasting=False)
    return path


def _options(given: dict[str, Any]) -> Options:
    options: Options = load("minigrad.viz.picture:Options")(**given)
    return options


def _text(made: str | bytes) -> str:
    assert isinstance(made, str)
    return made
