"""What a script's text says of its checkpoints: whether a run that resumes takes up what the checkpoint keeps."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from conformance.slips.slip import assigned
from conformance.watch.lines import Source
from conformance.watch.stated import sources

_OPTIMIZER = re.compile(r"opt(im(izer)?)?(_?state(_dict)?)?s?", re.IGNORECASE)

_COUNTS = re.compile(
    r"best|min|max|lowest|highest|step|iter|epoch|patience|wait|bad|stale|since|seen|tokens|samples", re.IGNORECASE
)
"""Names of what training goes on from; a loss may be kept to be read by people."""

_EXTREME = re.compile(r"-?(float\('-?inf(inity)?'\)|(math|np|numpy|torch)\.inf)")


def not_taken_up(run: Any) -> Iterator[tuple[str, str]]:
    """(name, place) of each number that training goes on from, which a checkpoint keeps and nothing reads, though the
    state of the optimizer is read again. place: where that is read."""
    files = sources(run)
    read = {key: (source, node) for source in files for key, node in _read(source)}
    resumes = next((found for key, found in read.items() if _OPTIMIZER.fullmatch(key)), None)
    for source in files if resumes is not None else ():
        for key, value, node in _kept(source):
            if key not in read and _COUNTS.search(value) and _goes_on(source, source.function(node), value):
                where, at = resumes  # type: ignore[misc]
                yield key, where.place(at)


def _read(source: Source) -> Iterator[tuple[str, ast.AST]]:
    """The keys that are read of anything: ``state["key"]``, ``state.get("key")``."""
    for node in source.nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            key = node.slice
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop"):
            key = node.args[0] if node.args else node
        else:
            continue
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield key.value, node


def _kept(source: Source) -> Iterator[tuple[str, str, ast.AST]]:
    """The keys of what is saved with the state of an optimizer, whose value is a variable or an attribute."""
    for node in source.nodes:
        pairs: list[tuple[str, ast.expr]] = []
        if isinstance(node, ast.Dict):
            pairs = [
                (key.value, value)
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            ]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "dict":
            pairs = [(word.arg, word.value) for word in node.keywords if word.arg]
        if any(_OPTIMIZER.fullmatch(key) for key, _ in pairs):
            for key, value in pairs:
                if isinstance(value, ast.Name | ast.Attribute):
                    yield key, ast.unparse(value), node


def _goes_on(source: Source, function: ast.AST, name: str) -> bool:
    """Whether a variable begins with a constant and is changed later on, as the best measure and the number of a step
    are; a sum that each epoch begins anew is none."""
    begins = changes = False
    for node in ast.walk(function):
        if isinstance(node, ast.AugAssign) and ast.unparse(node.target) == name:
            changes = True
        for to, value in assigned(node):
            if ast.unparse(to) == name:
                constant = isinstance(value, ast.Constant | ast.UnaryOp) or _EXTREME.fullmatch(ast.unparse(value))
                if constant and any(isinstance(one, ast.For | ast.While) for one in source.outward(node)):
                    return False
                begins, changes = begins or bool(constant), changes or not constant
    return begins and changes
