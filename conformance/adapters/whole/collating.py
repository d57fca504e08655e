"""What the functions that make batches say of their shapes: a forward that takes a mapping gets what they put into it.

A collate function is read as syntax: which tensor stands under which key, how many axes it was made with, what they are
called, and of which dtype it is.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from conformance.adapters.whole.class_source import file_of
from conformance.adapters.whole.told import Axis, Told

_BLANK = ("zeros", "ones", "empty", "rand", "randn", "full")
_OF_VALUES = {"LongTensor": "int", "IntTensor": "int", "FloatTensor": "float", "BoolTensor": "bool", "tensor": ""}
_TURNS = {"long": "int", "int": "int", "float": "float", "double": "float", "bool": "bool"}


def told_by_batches(cls: type, keys: Sequence[str]) -> dict[str, Told]:
    """What the first function of a class's file that puts tensors under two or more of these keys says of them."""
    found = file_of(cls)
    for function in ast.walk(found[0]) if found is not None else ():
        if not isinstance(function, ast.FunctionDef):
            continue
        made: dict[str, ast.expr] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                made.setdefault(node.targets[0].id, node.value)
        for node in ast.walk(function):
            items = _items(node)
            told = {key: _told(items[key], made) for key in keys if key in items}
            if len(told) > 1 and any(one != Told() for one in told.values()):
                return {key: one for key, one in told.items() if one != Told()}
    return {}


def _items(node: ast.AST) -> dict[str, ast.expr]:
    """The entries of a mapping that is written out: ``{"ids": ids}``, ``dict(ids=ids)``."""
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)}
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "dict":
        return {word.arg: word.value for word in node.keywords if word.arg}
    return {}


def _told(value: ast.expr, made: Mapping[str, ast.expr], deep: int = 3) -> Told:
    if isinstance(value, ast.Name) and value.id in made and deep:
        return _told(made[value.id], made, deep - 1)
    if isinstance(value, ast.Compare):
        return Told(_told(value.left, made, deep - 1).axes, "bool") if deep else Told()
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return Told()
    name, dtype = value.func.attr, _dtype(value)
    if name in _BLANK:
        sizes = value.args[:1] if name == "full" else value.args
        if len(sizes) == 1 and isinstance(sizes[0], ast.Tuple | ast.List):
            sizes = sizes[0].elts
        fill = value.args[1] if name == "full" and len(value.args) > 1 else None
        return Told(tuple(map(_axis, sizes)), dtype or ("float" if fill is None else _dtype_of(fill)))
    if name in _OF_VALUES:
        return Told((), dtype or _OF_VALUES[name])
    if name in _TURNS and deep:
        return Told(_told(value.func.value, made, deep - 1).axes, _TURNS[name])
    return Told()


def _axis(size: ast.expr) -> Axis:
    """A size, or what it is called; "" for what is computed."""
    if isinstance(size, ast.Constant) and type(size.value) is int:
        return size.value
    text = ast.unparse(size).rpartition(".")[2]
    return text if text.isidentifier() else ""


def _dtype(call: ast.Call) -> str:
    said = next((ast.unparse(word.value) for word in call.keywords if word.arg == "dtype"), "")
    kinds = {"int": ("int", "long"), "bool": ("bool",), "float": ("float", "double", "half")}
    return next((kind for kind, words in kinds.items() if any(one in said for one in words)), "")


def _dtype_of(fill: ast.expr) -> str:
    """The dtype of a tensor that is filled with a number: torch takes that of the number."""
    if isinstance(fill, ast.Constant):
        return {bool: "bool", int: "int", float: "float"}.get(type(fill.value), "")
    return "float" if "float" in ast.unparse(fill) or "nan" in ast.unparse(fill) else ""
