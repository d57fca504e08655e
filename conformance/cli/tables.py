"""Tables on the terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPED_WIDTH = 160
"""Columns when the output is not a terminal."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the command; rich would end the process with exit code 1, which means a broken claim."""
        raise BrokenPipeError


def show_table(headings: Sequence[str], rows: Sequence[Sequence[Any]], title: str = "") -> None:
    """Print rows under headings. Numbers are set right; text is shown as it is, without markup."""
    numeric = [bool(rows) and all(isinstance(row[i], (int, float)) for row in rows) for i in range(len(headings))]
    table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left")
    for heading, right in zip(headings, numeric, strict=True):
        table.add_column(heading, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(str(value)) for value in row))
    _Console(width=shutil.get_terminal_size().columns if sys.stdout.isatty() else PIPED_WIDTH).print(table)
