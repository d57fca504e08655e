"""What statements say: of a call that goes over several lines, the line of one argument, and its expression; of a
number that a module keeps, the line that makes it; whether a dict is a vocabulary."""

from __future__ import annotations

import ast
import linecache
import re
from functools import cache

from torch import nn

from conformance.adapters.whole.class_source import source_of
from conformance.adapters.whole.record import Place
from conformance.places import file_and_line


@cache
def _tree(file: str) -> ast.Module:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return ast.Module([], [])


def argument_line(place: str, name: str, position: int | None = None) -> str:
    """file:line of an argument of the call at a place, by its name or position; the place itself where it has none."""
    found = file_and_line(place)
    if found is None:
        return place
    file, line = found
    for node in ast.walk(_tree(file)):
        if not isinstance(node, ast.Call) or not node.lineno <= line <= (node.end_lineno or line):
            continue
        if node.lineno != line and not any(word.arg == name for word in node.keywords):
            continue
        for word in node.keywords:
            if word.arg == name:
                return f"{file}:{word.value.lineno}"
        if position is not None and len(node.args) > position and node.lineno == line:
            return f"{file}:{node.args[position].lineno}"
    return place


def made_line(place: Place, module: nn.Module, number: float) -> Place:
    """The line of the module's class that assigns the number that a line reads of `self`; the line itself where it
    reads none of that size."""
    cls: type = type(module)
    source = source_of(cls)
    for name in re.findall(r"self\.(\w+)", place.text) if source else ():
        held = getattr(module, name, None)
        if isinstance(held, int | float) and abs(abs(held) - abs(number)) <= 1e-4 * abs(number):
            for offset, text in enumerate(source[0].splitlines() if source else ()):
                if re.search(rf"self\.{name}\b[^=]*=[^=]", text) and source is not None:
                    return Place(source[1], source[2] + offset)
    return place


def argument_of(call: ast.Call, node: ast.FunctionDef, name: str, is_method: bool) -> ast.expr | None:
    """The expression that a call gives a parameter of a function."""
    names = [argument.arg for argument in [*node.args.posonlyargs, *node.args.args]][is_method:]
    words = {word.arg: word.value for word in call.keywords}
    if name in words:
        return words[name]
    placed = dict(zip(names, call.args, strict=False))
    return placed.get(name) if not any(isinstance(a, ast.Starred) for a in call.args) else None


def is_vocabulary(node: ast.Dict) -> bool:
    """Whether a dict counts its words, 0, 1, 2, ...: its words are none of the names that options go by."""
    words = [key for key in node.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
    numbers = [value.value for value in node.values if isinstance(value, ast.Constant)]
    return len(words) == len(numbers) == len(node.keys) >= 3 and numbers == [*range(len(numbers))]
