"""What a script's text says of the numbers that it gives to texts: whether they are the same in every process."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from conformance.watch.stated import sources

_HASHED = re.compile(r"(?<![\w.])hash\((?!\()[^()]*(\([^()]*\))?[^()]*\)\s*%")
"""A place in a table that Python's own hash of a text gives. That of a tuple may be one of numbers, which stays."""


def hashed(run: Any) -> Iterator[tuple[str, str]]:
    """Where a number comes of Python's hash of a text, which is another one in every process: what is written, and
    where."""
    for source in sources(run):
        for node in source.nodes:
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and _HASHED.search(ast.unparse(node)):
                yield ast.unparse(node), source.place(node)
