"""Frames of the user's code, and the source that they were running: `At`, `Source`.

A frame is kept as its code and the instruction that it was at, so nothing of the script is kept alive but its modules.
Which call that was, and in which statement, is read from the file when a report needs it.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import islice
from types import CodeType, FrameType
from typing import Any, NamedTuple

from conformance.places import is_users, short


class At(NamedTuple):
    """A place in running code. names: the globals of its module. is_direct: whether the user's code around it called
    it, with no library between."""

    code: CodeType
    instruction: int
    line: int
    names: Mapping[str, Any]
    is_direct: bool

    @property
    def place(self) -> str:
        return f"{short(self.code.co_filename)}:{self.line}"

    def call(self) -> ast.Call | None:
        """The call that it was making; None where the source does not show it."""
        source = source_of(self.code.co_filename)
        _, end, _, column = next(islice(self.code.co_positions(), self.instruction // 2, None), (None,) * 4)
        if source is None or end is None:
            return None
        found = (node for node in source.nodes if isinstance(node, ast.Call))
        return next((call for call in found if (call.end_lineno, call.end_col_offset) == (end, column)), None)


def at(frame: FrameType, is_direct: bool) -> At:
    return At(frame.f_code, frame.f_lasti, frame.f_lineno, frame.f_globals, is_direct)


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Source:
    """A file of the user's. nodes: of its syntax tree, in order; around: each node's parent."""

    def __init__(self, file: str, tree: ast.Module) -> None:
        self.file, self.tree = file, tree
        self.nodes = [*ast.walk(tree)]
        self.around = {child: node for node in self.nodes for child in ast.iter_child_nodes(node)}

    def place(self, node: ast.AST) -> str:
        return f"{short(self.file)}:{getattr(node, 'lineno', 0)}"

    def outward(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around a node, innermost first."""
        while node in self.around:
            node = self.around[node]
            yield node

    def function(self, node: ast.AST) -> Any:
        """The function that a node stands in; the module where it stands in none."""
        return next((n for n in self.outward(node) if isinstance(n, FUNCTIONS)), self.tree)

    def owner(self, node: ast.AST) -> ast.ClassDef | None:
        """The class that a node stands in."""
        return next((n for n in self.outward(node) if isinstance(n, ast.ClassDef)), None)

    def statement(self, node: ast.AST) -> ast.stmt:
        """The statement that a node stands in, or is."""
        return next(n for n in (node, *self.outward(node)) if isinstance(n, ast.stmt))

    def inside(self, function: ast.AST) -> list[Any]:
        """The nodes of a function, in the order of their lines, without those of functions and classes in it."""
        found: list[Any] = []
        waiting = [*ast.iter_child_nodes(function)]
        while waiting:
            node = waiting.pop()
            found.append(node)
            if not isinstance(node, (*FUNCTIONS, ast.ClassDef)):
                waiting += ast.iter_child_nodes(node)
        return sorted(found, key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)))

    def defined(self, code: CodeType) -> Any:
        """The function of some code; None where the file has changed since."""
        found = (node for node in self.nodes if isinstance(node, FUNCTIONS))
        lines = (code.co_firstlineno, code.co_name)
        return next((n for n in found if (_first(n), getattr(n, "name", "<lambda>")) == lines), None)


def _first(function: Any) -> int:
    """The first line of a function, with its decorators."""
    return min([function.lineno, *(one.lineno for one in getattr(function, "decorator_list", []))])


@cache
def source_of(file: str) -> Source | None:
    """A file of the user's; None for libraries, and for what is no file or not Python."""
    if not is_users(file):
        return None
    try:
        return Source(file, ast.parse("".join(linecache.getlines(file))))
    except (SyntaxError, ValueError):
        return None
