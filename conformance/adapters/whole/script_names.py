"""Sizes that a file's classes read as global names, and that only its main block sets (``if __name__ == "__main__":``).

Importing the file does not set them, so its classes cannot be constructed: they get the values that the block's syntax
shows, scaled as other sizes are, and small ones where it shows none.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from symtable import SymbolTable, symtable

from conformance.adapters.whole.constructing import Evaluator
from conformance.adapters.whole.sizes import Unknown, meaning, plain, small
from conformance.adapters.whole.syntax import Source


def set_script_names(evaluator: Evaluator) -> None:
    """Set the names that the evaluator's module lacks, and again those that an earlier evaluator set."""
    source = evaluator.around.own
    held = vars(evaluator.around.module)
    ours = held.setdefault("__script_names__", {})
    for name in _names(source):
        if name in held and name not in ours:
            continue
        changed = {*evaluator.sizing.changed, name, meaning(name)}
        try:
            value = plain(evaluator.value(ast.Name(name, ast.Load(), lineno=sys.maxsize), source.top))
        except Exception:  # what the block runs for its value is not run here
            value = None
        evaluator.sizing.changed &= changed  # a model that the block makes has options of its own
        if not isinstance(value, (int, float, str)):
            try:
                value = plain(evaluator.sizing.of(name, small(name)))
            except Unknown:
                continue
        held[name] = ours[name] = value


def _names(source: Source) -> list[str]:
    """Names that the main block sets and that a class or function of the file reads as global ones."""
    block = [node for node in source.tree.body if isinstance(node, ast.If) and "__main__" in ast.unparse(node.test)]
    names = [node for part in block for node in ast.walk(part) if isinstance(node, ast.Name)]
    set_there = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    return sorted(set_there & set(_read_as_global(symtable(source.text, source.path.name, "exec")))) if block else []


def _read_as_global(table: SymbolTable) -> Iterator[str]:
    for inner in table.get_children():
        yield from (symbol.get_name() for symbol in inner.get_symbols() if symbol.is_global())
        yield from _read_as_global(inner)
