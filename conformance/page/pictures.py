"""Small matrices as heat maps: a table each, beside each other, on one scale (`pictures_of`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

Matrix = Sequence[Sequence[float | str]]

FEW = 6
"""Matrices of up to this many columns show their numbers; every cell tells its number when pointed at."""


def pictures_of(pictures: Mapping[str, Matrix]) -> str:
    """The matrices as HTML; a number that JSON lacks ("nan", "inf") is a marked cell. Empty without a matrix."""
    numbers = [value for rows in pictures.values() for row in rows for value in row if not isinstance(value, str)]
    if not numbers:
        return ""
    low, high = min(numbers), max(numbers)
    worst = _worst(list(pictures.values()))
    figures = "".join(_figure(name, rows, low, high, worst) for name, rows in pictures.items())
    shades = "".join(f'<i style="--v: {share}"></i>' for share in (0, 0.5, 1))
    return f'<div class="heats">{figures}<p class="scale">{low:.3g} {shades} {high:.3g}</p></div>'


def _figure(name: str, rows: Matrix, low: float, high: float, worst: tuple[int, int] | None) -> str:
    lines = "".join(
        f"<tr>{''.join(_cell(value, low, high, len(row) <= FEW, (i, j) == worst) for j, value in enumerate(row))}</tr>"
        for i, row in enumerate(rows)
    )
    return f"<figure><figcaption>{escape(name)}</figcaption><table>{lines}</table></figure>"


def _cell(value: float | str, low: float, high: float, is_shown: bool, is_worst: bool) -> str:
    mark = ' class="worst"' if is_worst else ""
    if isinstance(value, str):
        return f'<td{mark} title="{escape(value)}">{escape(value)}</td>'
    share = (value - low) / (high - low) if high > low else 0.0
    text = f"{value:.3g}" if is_shown else ""
    return f'<td{mark} style="--v: {share:.3f}" title="{value:.4g}">{text}</td>'


def _worst(matrices: Sequence[Matrix]) -> tuple[int, int] | None:
    """Where two matrices of one shape differ most; None for others, or where no two numbers differ."""
    if len(matrices) != 2 or [len(row) for row in matrices[0]] != [len(row) for row in matrices[1]]:
        return None
    first, second = matrices
    distances = {
        (i, j): abs(a - b)
        for i, (left, right) in enumerate(zip(first, second, strict=True))
        for j, (a, b) in enumerate(zip(left, right, strict=True))
        if not isinstance(a, str) and not isinstance(b, str)
    }
    place = max(distances, key=lambda cell: distances[cell], default=None)
    return place if place is not None and distances[place] > 0 else None
