"""Attention as pictures: who looks at whom, for every layer and head, in the terminal and as SVG.

    with collecting(model) as maps:
        model(ids)
    print(text(maps["layers.0.self_attn"][0, 2], tokens))                # one head in block characters
    svg(maps["layers.0.self_attn"][0], tokens)                           # all heads of a layer
    sheet([Layer(path, weights[0], tokens, tokens) for path, weights in maps.items()])

`python -m transformer attention` does all this for a trained model.

The terminal's picture is that of document 002, section on visualising attention. Labels may be of any script.
"""

from __future__ import annotations

import inspect
import unicodedata
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from minigrad import nn
from minigrad.viz.format import clean
from minigrad.viz.metrics import width
from minigrad.viz.notebook import Drawing
from transformer.attention import MultiHeadAttention

BLOCKS = " ░▒▓█"
WIDEST = 10  # columns of a label in the terminal
JOINERS = "\u200c\u200d"  # part of how some scripts are written
MARKS = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"}
FAMILY = "Helvetica, Arial, 'Noto Sans', 'Noto Sans CJK SC', 'Noto Sans Arabic', 'Noto Sans Devanagari', sans-serif"
CELL, SIZE, GAP = 18, 11, 26  # of the SVG, in pixels
WEIGHTS = (0, 0.05, 0.1, 0.25, 0.5, 1)  # whose colours are shown


@contextmanager
def collecting(model: nn.Module) -> Iterator[dict[str, np.ndarray]]:
    """Path of every attention module -> its last weights ``(B, H, Tq, Tk)``, filled while `model` runs inside."""
    found: dict[str, np.ndarray] = {}
    modules = [(path, module) for path, module in model.named_modules() if isinstance(module, MultiHeadAttention)]
    try:
        for path, module in modules:
            object.__setattr__(module, "forward", _noting(module.forward, path, found))
        yield found
    finally:
        for _, module in modules:
            module.__dict__.pop("forward", None)


def _noting(forward: Any, path: str, found: dict[str, np.ndarray]) -> Any:
    signature = inspect.signature(forward)

    def call(*arguments: Any, **keywords: Any) -> Any:
        bound = signature.bind(*arguments, **keywords)
        asked = bound.arguments.get("need_weights", False)
        bound.arguments["need_weights"] = True
        out, weights = forward(*bound.args, **bound.kwargs)
        found[path] = np.array(weights.numpy())
        return (out, weights) if asked else out

    return call


def text(weights: np.ndarray, queries: Sequence[str], keys: Sequence[str] | None = None, numbers: bool = False) -> str:
    """One head's weights ``(Tq, Tk)`` in block characters (or `numbers`): a row a query, a column a key.

    Raises ValueError where labels and weights disagree.
    """
    rows, columns = _labels(weights, queries, keys)
    left = max(map(_width, rows), default=0)
    wide = max([*map(_width, columns), 4 if numbers else 2])
    lines = [" " * (left + 3) + " ".join(_pad(label, wide) for label in columns).rstrip()]
    for label, row in zip(rows, weights, strict=True):
        cells = [f"{w:.2f}".rjust(wide) if numbers else _block(float(w)) * wide for w in row]
        lines.append(f"{_pad(label, left, right=True)} | {' '.join(cells)}".rstrip())
    return "\n".join(lines)


def _block(weight: float) -> str:
    return "?" if np.isnan(weight) else BLOCKS[min(max(int(weight * len(BLOCKS)), 0), len(BLOCKS) - 1)]


def svg(
    weights: np.ndarray, queries: Sequence[str], keys: Sequence[str] | None = None, titles: Sequence[str] | None = None
) -> str:
    """Weights ``(Tq, Tk)`` or ``(H, Tq, Tk)`` as an SVG picture, the heads side by side, four in a row.

    The darker a cell the larger its weight; NaN is red. Hovering tells the number, and a notebook shows the picture.
    Raises ValueError where labels, titles and weights disagree.
    """
    heads = weights[None] if weights.ndim == 2 else weights
    titles = [f"head {i}" for i in range(len(heads))] if titles is None else titles
    if len(titles) != len(heads):
        raise ValueError(f"{len(heads)} heads need {len(heads)} titles, got {len(titles)}")
    return _document([_heads(heads, queries, keys, titles)])


@dataclass(frozen=True)
class Layer:
    """An attention module's weights ``(H, Tq, Tk)`` with the labels of its queries and keys.

    heads: the numbers of the heads that there are; all of them unless given.
    """

    path: str
    weights: np.ndarray
    queries: Sequence[str]
    keys: Sequence[str]
    heads: Sequence[int] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "heads", tuple(self.heads or range(len(self.weights))))

    def only(self, head: int) -> Layer:
        """The layer with one of its heads. Raises ValueError where there is none of this number."""
        if head not in self.heads:
            raise ValueError(f"{self.path} has the heads {', '.join(map(str, self.heads))}, and no head {head}")
        return Layer(self.path, self.weights[self.heads.index(head)][None], self.queries, self.keys, (head,))


def sheet(layers: Sequence[Layer]) -> str:
    """All heads of several layers as one SVG picture, a layer below the other, as `svg` draws one."""
    return _document([
        _heads(layer.weights, layer.queries, layer.keys, [f"{layer.path}, head {head}" for head in layer.heads])
        for layer in layers
    ])  # fmt: skip


Drawn = tuple[str, float, float]  # SVG, width, height


def _document(parts: Sequence[Drawn]) -> str:
    """The parts one below the other, and what the colours mean."""
    parts = [*parts, _scale()]
    across, down, body = max(wide for _, wide, _ in parts), 0.0, []
    for drawn, _, tall in parts:
        body.append(f'<g transform="translate(0,{down})">{drawn}</g>')
        down += tall
    return Drawing(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {across} {down}" width="{across}" height="{down}" '
        f'font-family="{FAMILY}" font-size="{SIZE}"><rect width="{across}" height="{down}" fill="#ffffff"/>'
        + "".join(body)
        + "</svg>\n"
    )


def _scale() -> Drawn:
    """The colours of some weights, with the weights below them."""
    cells = "".join(
        f'<rect x="{i * 2 * CELL}" width="{2 * CELL}" height="{CELL}" fill="{_colour(weight)}" stroke="#e4e8ee"/>'
        f'<text x="{(2 * i + 1) * CELL}" y="{CELL + 14}" text-anchor="middle">{weight:g}</text>'
        for i, weight in enumerate(WEIGHTS)
    )
    return f'<g transform="translate({CELL},4)">{cells}</g>', (2 * len(WEIGHTS) + 2) * CELL, CELL + 26


def _heads(heads: np.ndarray, queries: Sequence[str], keys: Sequence[str] | None, titles: Sequence[str]) -> Drawn:
    """Heads that share their labels, four in a row."""
    rows, columns = _labels(heads[0], queries, keys)
    left = max((width(label, SIZE) for label in rows), default=0) + 12
    top = max((width(label, SIZE) for label in columns), default=0) + 12
    titles = [clean(title) for title in titles]
    across = max(len(columns) * CELL, *(width(title, SIZE) for title in titles))
    wide, tall = round(left + across + GAP), round(top + len(rows) * CELL + GAP)
    per_row = min(4, len(heads))
    body = [
        _head(head, rows, columns, title, i % per_row * wide + left, i // per_row * tall + top)
        for i, (head, title) in enumerate(zip(heads, titles, strict=True))
    ]
    return "".join(body), per_row * wide, -(-len(heads) // per_row) * tall


def _head(
    weights: np.ndarray, rows: Sequence[str], columns: Sequence[str], title: str, x: float, y: float
) -> str:  # fmt: skip
    middle = CELL * 0.7
    parts = [f'<g transform="translate({x:.1f},{y:.1f})">']
    parts.append(f'<text x="0" y="{len(rows) * CELL + 14}" fill="#555555">{escape(title)}</text>')
    for i, label in enumerate(rows):
        parts.append(f'<text x="-6" y="{i * CELL + middle}" text-anchor="end">{escape(label)}</text>')
    for j, label in enumerate(columns):
        parts.append(f'<text transform="translate({j * CELL + middle},-6) rotate(-90)">{escape(label)}</text>')
    for i, row in enumerate(weights):
        for j, weight in enumerate(row):
            tip = escape(f"{rows[i]} → {columns[j]}: {weight:.3f}")
            parts.append(
                f'<rect x="{j * CELL}" y="{i * CELL}" width="{CELL}" height="{CELL}" fill="{_colour(float(weight))}" '
                f'stroke="#e4e8ee" stroke-width="0.5"><title>{tip}</title></rect>'
            )
    return "".join([*parts, "</g>"])


def _colour(weight: float) -> str:
    """White to dark blue; the square root shows small weights, too."""
    if np.isnan(weight):
        return "#d40000"
    strength = min(max(weight, 0.0), 1.0) ** 0.5
    return "#" + "".join(f"{round(255 + (part - 255) * strength):02x}" for part in (0x12, 0x3C, 0x7C))


def _labels(weights: np.ndarray, queries: Sequence[str], keys: Sequence[str] | None) -> tuple[list[str], list[str]]:
    keys = queries if keys is None else keys
    if weights.ndim != 2 or weights.shape != (len(queries), len(keys)):
        raise ValueError(
            f"weights of shape {list(weights.shape)} need {len(queries)} queries by {len(keys)} keys, the number of "
            "labels: pass one head, and a label for each position"
        )
    return [_shown(label) for label in queries], [_shown(label) for label in keys]


def _shown(label: str) -> str:
    """A token as a label: spaces visible, no control characters, cut to WIDEST columns."""
    kept = []
    for c in label or "∅":
        if c in MARKS:
            kept.append(MARKS[c])
        elif c in JOINERS:
            kept.append(c)
        else:
            kept.append("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c)[0] == "C" else c)
    text = ("◌" if unicodedata.combining(kept[0][0]) else "") + "".join(kept)  # what a mark combines with
    if _width(text) <= WIDEST:
        return text
    while _width(text) > WIDEST - 1:
        text = text[:-1]
    return text + "…"


def _width(text: str) -> int:
    """Columns in a terminal: wide characters count two, combining ones none."""
    return sum(
        0 if unicodedata.combining(c) or unicodedata.category(c) in ("Mn", "Me", "Cf") else
        2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )  # fmt: skip


def _pad(text: str, columns: int, right: bool = False) -> str:
    space = " " * (columns - _width(text))
    return space + text if right else text + space
