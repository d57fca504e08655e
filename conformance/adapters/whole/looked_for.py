"""Parameters that a constructor looks for by name, to give them other numbers at the start: some have such a name."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from conformance.adapters.whole.class_source import tree_of
from conformance.adapters.whole.findings import Finding
from conformance.adapters.whole.record import Place, Record
from conformance.adapters.whole.usage import surroundings

_NAMED = ("named_parameters", "named_modules", "named_children")
_STARTS = re.compile(r"\binit\b|\binit\.|\.(normal|uniform|zero|fill|mul|div|copy|constant|trunc_normal)_\(")
_OF_ALL = frozenset(("weight", "bias", "0", "1", "2", "3"))
"""Parts of names that say nothing about a part."""


def looked_for(record: Record) -> Iterator[Finding]:
    """What ``for name, p in self.named_parameters(): if name.endswith("c_proj.weight"): init(p)`` looks for, where no
    parameter of the model has such a name, and nothing of its files is called so; or where the names that hold it
    neither begin nor end with it, as they are asked to."""
    for module in record.module.modules():
        cls: type = type(module)
        tree, file, first = tree_of(cls) or (None, "", 0)
        for test, words in _conditions(tree) if tree is not None else ():
            names = [*dict(module.named_parameters()), *dict(module.named_modules())]
            if any(any(map(one.holds_of, names)) for one in words):
                continue
            near = next((name for name in names for one in words if one.text in name), "")
            if near or not any(_is_written(cls, one.text) for one in words):
                asked = " or ".join(map(str, words))
                yield Finding(
                    "modules-that-are-looked-for-by-name-exist",
                    f"No parameter of {cls.__name__} {asked}{f', but {near}' if near else ''}: what is done to it at "
                    "the start is done to none.",
                    Place(file, first + test.lineno - 1),
                    "the name of a parameter",
                    f"none {asked}",
                    "Look for the name that the part has here.",
                    paths=(next(path for path, one in record.module.named_modules() if one is module),),
                )


@dataclass(frozen=True)
class _Word:
    """What is asked of a name. how: "in", or the method of the name that is asked."""

    text: str
    how: str

    def holds_of(self, name: str) -> bool:
        return self.text in name if self.how == "in" else bool(getattr(name, self.how)(self.text))

    def __str__(self) -> str:
        asks = {"in": "is called", "startswith": "begins with", "endswith": "ends with"}
        return f"{asks[self.how]} {self.text!r}"


def _conditions(tree: ast.AST) -> Iterator[tuple[ast.expr, list[_Word]]]:
    """The tests of names in loops over the parameters of ``self`` that start them anew, and what they look for."""
    for loop in (node for node in ast.walk(tree) if isinstance(node, ast.For)):
        called = loop.iter.func if isinstance(loop.iter, ast.Call) else None
        names = loop.target.elts if isinstance(loop.target, ast.Tuple) else []
        if not isinstance(called, ast.Attribute) or called.attr not in _NAMED or ast.unparse(called.value) != "self":
            continue
        if not names or not isinstance(names[0], ast.Name):
            continue
        if not _STARTS.search(" ".join(map(ast.unparse, loop.body))):
            continue
        for node in (inner for statement in loop.body for inner in ast.walk(statement)):
            test = _test_of(node)
            words = _words(test, names[0].id) if test is not None else []
            if test is not None and words:
                yield test, words


def _test_of(node: ast.AST) -> ast.expr | None:
    """What decides how a parameter is started: the test of an ``if`` that starts it or binds what it is started by,
    of ``a if test else b``, or what is bound as ``is_last = test``."""
    if isinstance(node, ast.If):
        decides = _STARTS.search(" ".join(map(ast.unparse, node.body)))
        binds = all(isinstance(one, (ast.Assign, ast.AugAssign)) for one in node.body)
        return node.test if decides or binds else None
    if isinstance(node, ast.IfExp):
        return node.test
    return node.value if isinstance(node, ast.Assign) else None


def _words(test: ast.expr, name: str) -> list[_Word]:
    """What a test asks of a name, one of them or another; empty where it asks for something else, too."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.Or):
        parts = [_words(value, name) for value in test.values]
        return [word for part in parts for word in part] if all(parts) else []
    given: ast.expr | None = None
    how = "in"
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.In) and ast.unparse(test.comparators[0]) == name:
        given = test.left
    elif isinstance(test, ast.Call) and ast.unparse(test.func) in (f"{name}.endswith", f"{name}.startswith"):
        given = test.args[0] if test.args else None
        how = test.func.attr if isinstance(test.func, ast.Attribute) else how
    elements = given.elts if isinstance(given, ast.Tuple) else [given]
    words = [_Word(one.value, how) for one in elements if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return words if len(words) == len(elements) else []


def _is_written(cls: type, word: str) -> bool:
    """Whether something of the user's files is called so: a part that another option makes."""
    parts = [part for part in word.split(".") if part and part not in _OF_ALL]
    module = sys.modules.get(cls.__module__)
    if not parts or module is None:
        return True
    called = re.compile(rf"\.{re.escape(parts[-1])}\b|[\"']{re.escape(parts[-1])}[\"']")
    return any(called.search(source.text) for source in surroundings(module).sources)
