"""Where a model's buffers are written slot by slot, and the numbers that say which slot is next."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, NamedTuple

from conformance.watch.lines import FUNCTIONS, Source
from conformance.watch.measures import pairs_in
from conformance.watch.stated import classes, sources


class Slot(NamedTuple):
    """A buffer that a method writes from a place on. pointer: the attribute that is the place, which begins with 0.
    moves: whether a line of the user's changes it. place: of the statement that writes."""

    buffer: str
    pointer: str
    moves: bool
    place: str


def slots(run: Any) -> list[Slot]:
    """The buffers of the user's modules that are written from a place on which the module keeps."""
    return [slot for source, owner in classes(run) for slot in _slots(run, source, owner)]


def _slots(run: Any, source: Source, owner: ast.ClassDef) -> Iterator[Slot]:
    methods = [one for one in owner.body if isinstance(one, ast.FunctionDef)]
    first = next((one for one in methods if one.name == "__init__"), None)
    buffers, zeros = _begun(first) if first is not None else (set(), set())
    for method in (one for one in methods if one is not first):
        for node in ast.walk(method):
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            held = target.value if isinstance(target, ast.Subscript) else None
            if not isinstance(held, ast.Attribute) or held.attr not in buffers or not isinstance(target, ast.Subscript):
                continue
            starts = [one.lower for one in ast.walk(target.slice) if isinstance(one, ast.Slice) and one.lower]
            for pointer in {name for start in starts for name in _read(method, start)} & zeros:
                yield Slot(held.attr, pointer, _moves(run, first, pointer), source.place(node))


def _begun(method: ast.FunctionDef) -> tuple[set[str], set[str]]:
    """The buffers that a constructor registers, and the attributes and buffers that it sets to zero."""
    buffers, zeros = set[str](), set[str]()
    for node in ast.walk(method):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "register_buffer" and len(node.args) >= 2:
            name = getattr(node.args[0], "value", "")
            buffers.add(name)
            zeros |= {name} if _is_zero(node.args[1]) else set()
        elif isinstance(node, ast.Assign) and _is_zero(node.value):
            zeros |= {one.attr for one in node.targets if isinstance(one, ast.Attribute)}
    return buffers, zeros


def _is_zero(node: ast.expr) -> bool:
    """Whether an expression is 0, or a tensor of it."""
    if isinstance(node, ast.Call):
        name, given = ast.unparse(node.func), "".join(map(ast.unparse, node.args[:1]))
        return name.endswith("zeros") or (name.endswith("tensor") and given.strip("[]") == "0")
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value == 0


def _read(method: ast.FunctionDef, node: ast.expr) -> Iterator[str]:
    """The attributes that an expression reads, itself or by a name that the method binds."""
    for one in ast.walk(node):
        if isinstance(one, ast.Attribute):
            yield one.attr
        elif isinstance(one, ast.Name):
            for bound in ast.walk(method):
                pairs = pairs_in(bound) if isinstance(bound, ast.Assign) else ()
                values = [value for name, value in pairs if name == one.id]
                yield from (n.attr for value in values for n in ast.walk(value) if isinstance(n, ast.Attribute))


def _moves(run: Any, first: Any, name: str) -> bool:
    """Whether a line outside of a constructor changes an attribute, in place or anew, or speaks of it as a text."""
    for source in sources(run):
        for node in source.nodes:
            function = next((n for n in source.outward(node) if isinstance(n, FUNCTIONS)), None)
            if function is first:
                continue
            if isinstance(node, ast.Constant) and node.value == name:
                return True
            if isinstance(node, ast.Attribute) and node.attr == name and _is_changed(source, node):
                return True
    return False


def _is_changed(source: Source, node: ast.Attribute) -> bool:
    """Whether an attribute is bound, written into, handed on, or changed by a method that ends in an underscore."""
    one: ast.AST = node
    while isinstance(one, (ast.Attribute, ast.Subscript)):
        if not isinstance(one.ctx, ast.Load) or (isinstance(one, ast.Attribute) and one.attr.endswith("_")):
            return True
        one = source.around[one]
    if isinstance(one, ast.Call) and node in one.args:
        return ast.unparse(one.func) not in ("int", "len", "print")
    return isinstance(one, ast.keyword)
