"""Small matrices as pictures of block characters, side by side (`heat_maps`)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

SHADES = " ░▒▓█"
MOST = 12
"""Rows and columns that are shown of a matrix."""

Matrix = Sequence[Sequence[float]]


def heat_maps(pictures: Mapping[str, Matrix]) -> list[str]:
    """The first two pictures beside each other under their names, and what the shades mean.

    All share one scale: the smallest number is blank, the largest full; what is no finite number is "!!". Of a matrix
    larger than MOST, the first rows and columns.
    """
    shown = {name: [row[:MOST] for row in rows[:MOST]] for name, rows in list(pictures.items())[:2]}
    numbers = [value for rows in shown.values() for row in rows for value in row if math.isfinite(value)]
    if not numbers:
        return []
    low, high = min(numbers), max(numbers)
    columns = [_column(name, rows, low, high) for name, rows in shown.items()]
    height = max(map(len, columns))
    filled = [column + [" " * len(column[0])] * (height - len(column)) for column in columns]
    cropped = any(max(len(rows), *map(len, rows), 0) > MOST for rows in pictures.values())
    scale = f"{low:.3g} (blank) to {high:.3g} (full)" + (f"; the first {MOST} rows and columns" if cropped else "")
    return [*("    ".join(parts).rstrip() for parts in zip(*filled, strict=True)), scale]


def _column(name: str, rows: Matrix, low: float, high: float) -> list[str]:
    """A name over its picture, all lines of one width; each row stands between bars."""
    lines = ["|" + "".join(_cell(value, low, high) for value in row) + "|" for row in rows]
    width = max([len(name), *map(len, lines)])
    return [line.ljust(width) for line in (name, *lines)]


def _cell(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return "!!"
    share = (value - low) / (high - low) if high > low else 0.0
    return SHADES[round(share * (len(SHADES) - 1))] * 2
