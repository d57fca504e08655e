"""Slips that the text of a file shows by itself, in a model's file as in a training script.

Each rule takes the syntax tree of a file and gives `(what is written, its node)`; nothing is run.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

Rule = Callable[[ast.AST], Iterator[tuple[str, ast.AST]]]

_HASHED = re.compile(r"(?<![\w.])hash\((?!\()[^()]*(\([^()]*\))?[^()]*\)\s*%")
"""A place in a table that Python's own hash of a text gives. That of a tuple may be one of numbers, which stays."""


def hashed(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Where a number comes of Python's hash of a text, which is another one in every process."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and _HASHED.search(ast.unparse(node)):
            yield ast.unparse(node), node


_CHOOSES = re.compile(r"arg(min|max|sort)")


def moved_by_a_constant(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Where what is chosen by ``(x - 0.5).argmin()`` does not depend on the 0.5: of the distance from it the sign was
    left in."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if _CHOOSES.fullmatch(name):
            of_itself = isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.BinOp)
            chosen_of = node.func.value if of_itself else node.args[0] if node.args else None  # type: ignore[attr-defined]
            if _is_moved(chosen_of):
                yield ast.unparse(node), node
        elif name in ("min", "max", "sorted"):
            keys = [word.value for word in node.keywords if word.arg == "key"]
            if keys and isinstance(keys[0], ast.Lambda) and _is_moved(keys[0].body, keys[0].args):
                yield ast.unparse(node), node


def _is_moved(value: ast.expr | None, own: ast.arguments | None = None) -> bool:
    """Whether it is something plus or minus a number that is the same for all; for a lambda, whose arguments are
    `own`, also what reads none of them."""
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Sub):
        return False
    sides = [_is_one_number(side, own) for side in (value.left, value.right)]
    return sides[0] != sides[1]


def _is_one_number(side: ast.expr, own: ast.arguments | None) -> bool:
    if isinstance(side, ast.Constant):
        return isinstance(side.value, (int, float))
    if own is None:
        return False
    names = {argument.arg for argument in own.args}
    return not names & {node.id for node in ast.walk(side) if isinstance(node, ast.Name)}


_TOKENS = re.compile(r"(\w*_)?(ids?|tokens?|toks?)", re.IGNORECASE)
_BESIDE = re.compile(r"(\w*_)?(labels?|labs?|masks?|segments?|types?|tags?)(_ids)?", re.IGNORECASE)
_SHORT = {"i": "tokens", "x": "tokens", "l": "labels", "m": "labels"}
"""Names of one letter, where both are cut in one statement."""


def cut_apart(tree: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Where tokens keep their end, ``ids[-n:]``, and what stands beside them its beginning, ``labels[:n]``, or the
    other way round."""
    for node in ast.walk(tree):
        for _, block in ast.iter_fields(node):
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield from _cut_apart_in(block)


def _cut_apart_in(block: list[ast.stmt]) -> Iterator[tuple[str, ast.AST]]:
    cuts = [(name, cut, statement) for statement in block for name, cut in _own_cuts(statement)]
    for first, (name, cut, statement) in enumerate(cuts):
        for other, beside, place in cuts[first + 1 :]:
            alone = statement is not place
            apart = _end_of(cut) == _beginning_of(beside) != "" or _beginning_of(cut) == _end_of(beside) != ""
            if apart and {_kind(name, alone), _kind(other, alone)} == {"tokens", "labels"}:
                yield f"{ast.unparse(cut)} beside {ast.unparse(beside)}", place


def _own_cuts(statement: ast.stmt) -> Iterator[tuple[str, ast.Subscript]]:
    """(name, cut) of each ``name = name[...]`` in an assignment, of one or of several at once."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return
    target, value = statement.targets[0], statement.value
    pairs = [(target, value)]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        pairs = list(zip(target.elts, value.elts, strict=True))
    for to, cut in pairs:
        if isinstance(cut, ast.Subscript) and isinstance(cut.value, ast.Name) and isinstance(to, ast.Name):
            yield from [(to.id, cut)] if to.id == cut.value.id else []


def _kind(name: str, alone: bool) -> str:
    if not alone and name in _SHORT:
        return _SHORT[name]
    return "labels" if _BESIDE.fullmatch(name) else "tokens" if _TOKENS.fullmatch(name) else ""


def _end_of(cut: ast.Subscript) -> str:
    """``n`` of ``x[-n:]``; "" for another cut."""
    part = cut.slice
    if not isinstance(part, ast.Slice) or part.upper is not None or part.step is not None:
        return ""
    lower = part.lower
    return ast.unparse(lower.operand) if isinstance(lower, ast.UnaryOp) and isinstance(lower.op, ast.USub) else ""


def _beginning_of(cut: ast.Subscript) -> str:
    """``n`` of ``x[:n]``; "" for another cut."""
    part = cut.slice
    if not isinstance(part, ast.Slice) or part.lower is not None or part.step is not None or part.upper is None:
        return ""
    return ast.unparse(part.upper)
