"""The source of a class, read as syntax: which attributes which of its methods read, and what its methods keep."""

from __future__ import annotations

import ast
import inspect
import linecache
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from itertools import takewhile
from textwrap import dedent

from torch import nn

from conformance.places import is_users


def heading_of(cls: type) -> str:
    """What the file of a class of the user's says first: its docstring, or the comment that it begins with."""
    module = sys.modules.get(cls.__module__)
    if module is None or cls.__module__.split(".")[0] == "torch":
        return ""
    lines = linecache.getlines(getattr(module, "__file__", None) or "")
    comment = takewhile(lambda line: line.startswith("#"), lines)
    said = [line.lstrip("# ") or "\n" for line in comment if not line.startswith("#!")]
    return (module.__doc__ or "".join(said)).strip()


@cache
def source_of(cls: type) -> tuple[str, str, int] | None:
    """Source, file and first line of a class of the user's; None for torch's and for one without a file."""
    if cls.__module__.split(".")[0] in ("torch", "builtins"):
        return None
    with suppress(OSError, TypeError, SyntaxError):
        file = str(inspect.getsourcefile(cls))
        lines = linecache.getlines(file, getattr(sys.modules.get(cls.__module__), "__dict__", None))
        found = _classes("".join(lines)).get(cls.__qualname__)
        if found is not None:
            return "".join(lines[found[0] - 1 : found[1]]), file, found[0]
    return None


@cache
def tree_of(cls: type) -> tuple[ast.Module, str, int] | None:
    """The syntax of a class of the user's, its file and its first line; None where there is none."""
    found = source_of(cls)
    if found is None:
        return None
    text, file, first = found
    with suppress(SyntaxError):
        return ast.parse(dedent(text)), file, first
    return None


def file_of(cls: type) -> tuple[ast.Module, str] | None:
    """The syntax of the whole file of a class of the user's, and its name; None where there is none."""
    found = source_of(cls)
    if found is None or not is_users(found[1]):
        return None
    with suppress(SyntaxError):
        return ast.parse("".join(linecache.getlines(found[1]))), found[1]
    return None


@lru_cache(maxsize=32)
def _classes(text: str) -> dict[str, tuple[int, int]]:
    """Of each class in a file, by its qualified name: its first line, with decorators, and its last. Kept, since
    `inspect` parses the whole file for each class."""
    found: dict[str, tuple[int, int]] = {}

    def look(node: ast.AST, outside: str) -> None:
        for inner in ast.iter_child_nodes(node):
            name = f"{outside}{getattr(inner, 'name', '')}"
            if isinstance(inner, ast.ClassDef):
                first = min([inner.lineno, *(one.lineno for one in inner.decorator_list)])
                found.setdefault(name, (first, inner.end_lineno or first))
                look(inner, f"{name}.")
            elif isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
                look(inner, f"{name}.<locals>.")
            else:
                look(inner, outside)

    look(ast.parse(text), "")
    return found


@cache
def read_beside_forward(cls: type, root: str = "forward") -> frozenset[str]:
    """The attributes of `self` that methods read which neither forward nor __init__ calls: a temperature that the loss
    applies, a head that only `generate` asks. root: the method that was run in the place of forward."""
    return frozenset(attribute for method in _beside_forward(cls, root) for attribute in _own_attributes(method))


def keys_read_beside_forward(cls: type, holder: str, root: str = "forward") -> frozenset[str] | None:
    """The keys by which the same methods read a dict of parameters, ``self.params["scale"]``; None where they read it
    by keys that are computed, or hand it on."""
    keys: set[str] = set()
    for method in _beside_forward(cls, root):
        by_key = [
            node
            for node in ast.walk(method)
            if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and _is_own(node.value, holder)
        ]
        if sum(_is_own(node, holder) for node in ast.walk(method)) != len(by_key):
            return None
        keys |= {str(node.slice.value) for node in by_key if isinstance(node.slice, ast.Constant)}
    return frozenset(keys)


def _is_own(node: ast.AST, name: str) -> bool:
    """Whether it is the attribute of this name of `self`."""
    return isinstance(node, ast.Attribute) and node.attr == name and ast.unparse(node.value) == "self"


def _beside_forward(cls: type, root: str) -> list[ast.FunctionDef]:
    """The methods that neither forward nor __init__ calls."""
    methods = _methods(cls)
    run, stack = set(), [root, "__init__", "__call__"]
    while stack:
        name = stack.pop()
        if name in methods and name not in run:
            run.add(name)
            stack += _own_attributes(methods[name])
    return [method for name, method in methods.items() if name not in run]


@cache
def read_for_some_arguments(cls: type, sizes_count: bool = True) -> frozenset[str]:
    """The attributes of `self` that methods read only in a branch that a parameter decides: a table of token types
    where there are types, a tower for queries where another one returns before. To ask whether there is one, as in
    ``self.head is not None``, is not to read it.

    What forward leads to decides, where that reads it: another method may read it in another way.

    sizes_count: whether to ask for a length, shape or device is to read. Levels of a loss may be asked for theirs
    anywhere.
    """
    methods = {name: method for name, method in _methods(cls).items() if name != "__init__"}
    led = _led_to(methods, "forward")
    by_forward = _read_for_some([methods[name] for name in led], sizes_count)
    by_others = _read_for_some([method for name, method in methods.items() if name not in led], sizes_count)
    known = by_forward[0] | by_forward[1]
    return frozenset((by_forward[1] - by_forward[0]) | (by_others[1] - by_others[0] - known))


@cache
def is_for_some_layers(cls: type, method: str, part: str) -> bool:
    """Whether what a method computes with a part is read only where the number of a layer decides: ``if i % 3 == 2``. A
    model that was made with fewer layers may not read it."""
    function = _methods(cls).get(method)
    if function is None:
        return False
    names: set[str] = set()
    for node in (n for n in ast.walk(function) if isinstance(n, ast.Assign)):
        if any(found.attr == part for found in _of_self(node.value)):
            names |= {one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    chosen = [n for n in ast.walk(function) if isinstance(n, (ast.If, ast.IfExp)) and _by_number(n.test)]
    return any(isinstance(n, ast.Name) and n.id in names for one in chosen for n in ast.walk(one))


def _by_number(test: ast.expr) -> bool:
    return any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod) for n in ast.walk(test))


def _led_to(methods: Mapping[str, ast.FunctionDef], first: str) -> set[str]:
    """The methods that one leads to, with itself, where there is such a one."""
    led: set[str] = set()
    waiting = [first] if first in methods else []
    while waiting:
        name = waiting.pop()
        led.add(name)
        waiting += [node.attr for node in _of_self(methods[name]) if node.attr in methods and node.attr not in led]
    return led


def _read_for_some(methods: Iterable[ast.FunctionDef], sizes_count: bool) -> tuple[set[str], set[str]]:
    """The attributes of `self` that these methods read anyway, and those that they read in a branch of a parameter."""
    always: set[str] = set()
    sometimes: set[str] = set()
    for method in methods:
        inside = {id(n) for branch in _branches(method, _parameters(method)) for n in ast.walk(branch)}
        left_out = {id(n) for n in _asked_whether_none(method)}
        left_out |= set() if sizes_count else {id(n) for n in _asked_for_sizes(method)}
        for node in _of_self(method):
            if id(node) not in left_out:
                (sometimes if id(node) in inside else always).add(node.attr)
    return always, sometimes


def _asked_whether_none(method: ast.FunctionDef) -> Iterator[ast.AST]:
    for node in ast.walk(method):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            other = node.comparators[0]
            if isinstance(other, ast.Constant) and other.value is None:
                yield node.left


def _asked_for_sizes(method: ast.FunctionDef) -> Iterator[ast.AST]:
    for node in ast.walk(method):
        is_size = isinstance(node, ast.Attribute) and node.attr in ("shape", "device", "dtype", "size", "ndim")
        if is_size or (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len"):
            yield from ast.iter_child_nodes(node)


@cache
def chosen_by_arguments(cls: type) -> frozenset[str]:
    """The attributes of `self` of which methods take the part that a parameter names: ``self.towers[side]``."""
    return frozenset(
        node.value.attr
        for method in _methods(cls).values()
        for node in ast.walk(method)
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Attribute)
        and _parameters(method) & {n.id for n in ast.walk(node.slice) if isinstance(n, ast.Name)}
    )


def _parameters(method: ast.FunctionDef) -> set[str]:
    """What a method is handed, by name, and what holds the rest of it: ``kwargs.get("times") is not None``."""
    rest = [method.args.kwarg] if method.args.kwarg else []
    return {argument.arg for argument in [*method.args.args, *method.args.kwonlyargs, *rest]} - {"self"}


def _branches(method: ast.FunctionDef, names: set[str]) -> Iterator[ast.AST]:
    """What runs only for some values of these names: the branches of a condition, and what follows one that returns."""
    for node in ast.walk(method):
        if isinstance(node, (ast.If, ast.IfExp)) and _speaks_of(node.test, names):
            yield from [*node.body, *node.orelse] if isinstance(node, ast.If) else [node.body, node.orelse]
    statements = list(method.body)
    while statements:
        first = statements.pop(0)
        if isinstance(first, ast.If) and _speaks_of(first.test, names) and isinstance(first.body[-1], ast.Return):
            yield from statements
            return


def _speaks_of(node: ast.AST, names: set[str]) -> bool:
    return any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(node))


def _methods(cls: type) -> dict[str, ast.FunctionDef]:
    """The methods of a class of the user's and of those that it inherits from, by name; none where there is no
    source."""
    methods: dict[str, ast.FunctionDef] = {}
    for base in reversed(cls.__mro__):
        found = source_of(base)
        body = getattr(ast.parse(dedent(found[0])).body[0], "body", []) if found else []
        methods |= {node.name: node for node in body if isinstance(node, ast.FunctionDef)}
    return methods


def is_only_kept(cls: type, parameter: str) -> bool:
    """Whether the constructor keeps a parameter as an attribute that no method reads, and does nothing else."""
    methods = _methods(cls)
    if "__init__" not in methods:
        return False
    kept = {
        target.attr: node.value
        for node in ast.walk(methods["__init__"])
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id == parameter
        for target in node.targets
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"
    }
    named = [node for node in ast.walk(methods["__init__"]) if isinstance(node, ast.Name) and node.id == parameter]
    read = {n.attr for method in methods.values() for n in _of_self(method) if isinstance(n.ctx, ast.Load)}
    return bool(kept) and {id(node) for node in named} == {id(n) for n in kept.values()} and read.isdisjoint(kept)


def run_method(module: nn.Module) -> str:
    """The name of the method that runs when the module is called."""
    return str(getattr(vars(module).get("forward"), "__name__", "forward"))


def modes_kept(cls: type) -> list[tuple[str, str]]:
    """The methods of the user's that remember the mode and put it back, and never change it: name and file:line."""
    found = []
    methods = _methods(cls)
    functions = dict(inspect.getmembers(cls, inspect.isfunction))
    switching = [name for name, method in methods.items() if re.search(r"\.(eval|train)\(", ast.unparse(method))]
    for method in methods.values():
        text = ast.unparse(method)
        code = inspect.unwrap(functions[method.name]).__code__ if method.name in functions else None
        if code is None or not is_users(code.co_filename) or any(f"self.{name}(" in text for name in switching):
            continue  # a library's, or another method switches for it
        remembers = re.search(r"(\w+) = self\.training\b", text)
        if remembers and re.search(rf"self\.train\({remembers[1]}\)", text):
            changes = re.search(r"\.eval\(\)|\.train\((mode=)?(False|True)?\)|\.train\(not ", text)
            if not changes:
                first = min([method.lineno, *(one.lineno for one in method.decorator_list)])
                at = next(n.lineno for n in ast.walk(method) if isinstance(n, ast.Attribute) and n.attr == "training")
                found.append((method.name, f"{code.co_filename}:{code.co_firstlineno + at - first}"))
    return found


def _of_self(node: ast.AST) -> Iterator[ast.Attribute]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id == "self":
            yield inner


def _own_attributes(node: ast.AST) -> set[str]:
    """The names that are read of `self`."""
    return {found.attr for found in _of_self(node)}
