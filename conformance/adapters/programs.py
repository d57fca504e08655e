"""A file that is a program, too: what it defines, without the lines that train, run a model, or fail on this machine.

Many files train at their end, show their model at its full size, or read data that is not here, when they are imported;
what is asked for is a class that they define. Their statements run one by one. One that trains or runs a model of the
file is left out, and so is one that raises; and what reads a name that only such a statement gives is left out, too, so
that nothing runs that lacks a part of itself. For a corpus, a file of text that is not here, a short text stands in: of
it a model takes the number of its characters or words, and no claim is about them.
"""

from __future__ import annotations

import ast
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

LEFT_OUT: dict[str, list[str]] = {}
"""For each file that was imported so: what was left out of it and of what it imports, and why, a sentence each."""

_TRAINS = re.compile(r"(train|fit)(ing)?(_?(models?|epochs?|one_epoch|loop|net|network))?")
"""What functions are called that train, also where another file has them."""
_KEEPS = re.compile(
    r"eval|train|to|cpu|cuda|half|float|double|bfloat16|apply|(named_)?(parameters|modules|children)|\w*state_dict"
)
"""Methods of a model that do not run it."""
_MOST = 3
"""So many sentences are told."""
_NOT_HERE = "it raises FileNotFoundError"
_CORPUS = (
    20
    * """The model reads this text, a letter or a word at a time.
"Which word comes next?" it asks; who knows: (a) the first, (b) the second & so on...
In 1987, on page 26,543, Quinn & Zoe's box jumped over 10 lazy foxes!
"""
)
"""Letters, digits and marks, in lines."""


def works_when_imported(path: Path) -> bool:
    """Whether the top level of a file trains, or runs a model that it defines or asks for its weights."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return False
    works = _Works(tree)
    return any(map(works.why, tree.body))


@contextmanager
def only_definitions(file: Path, root: Path) -> Iterator[None]:
    """Meanwhile a file, and what it imports from below a folder, is imported without what trains, runs a model or
    raises."""
    said = LEFT_OUT[str(file.resolve())] = []

    def exec_module(loader: SourceFileLoader, module: ModuleType) -> None:
        path = Path(loader.path).resolve()
        if path.is_relative_to(root.resolve()) and "site-packages" not in path.parts:
            _run(module, path, said)
        else:
            super(SourceFileLoader, loader).exec_module(module)

    SourceFileLoader.exec_module = exec_module  # type: ignore[assignment, method-assign]
    try:
        yield
    finally:
        del SourceFileLoader.exec_module


def forget(file: str | Path) -> None:
    """Nothing is told of what was left out of a file: it is imported in another way."""
    LEFT_OUT.pop(str(Path(file).resolve()), None)


def told(file: str | Path) -> list[str]:
    """What was left out when a file was imported, the first few sentences."""
    said = LEFT_OUT.get(str(Path(file).resolve()), [])
    more = [f"and {len(said) - _MOST} more"] if len(said) > _MOST else []
    return [*said[:_MOST], *more]


def _run(module: ModuleType, path: Path, said: list[str]) -> None:
    """Run the statements of a file in a module, but those that work or raise. said: what is left out goes there."""
    tree = ast.parse(path.read_bytes())
    works = _Works(tree)
    missing: set[str] = set()
    future = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    for statement in tree.body:
        why = works.why(statement)
        if not why and (why := _failure([*future, statement], module, path)).startswith(_NOT_HERE):
            with _a_corpus(said):
                why = _failure([*future, statement], module, path)
        if why:
            said.append(f"line {statement.lineno} of {path.name} is left out: {why}")
            missing |= _given(statement)
    _take_out(module, tree, {name for name in missing if name not in vars(module)}, said)


@contextmanager
def _a_corpus(said: list[str]) -> Iterator[None]:
    """Meanwhile a file of text that is not here has a short text. said: that is told there."""
    really = io.open

    def opened(file: Any, mode: str = "r", *given: Any, **words: Any) -> Any:
        try:
            return really(file, mode, *given, **words)
        except FileNotFoundError:
            if not isinstance(file, (str, os.PathLike)) or Path(file).suffix != ".txt" or not set(mode) <= set("rt"):
                raise
            said.append(f"{Path(file).name} is not here: a short text stands in for it")
            return io.StringIO(_CORPUS)

    with patch("builtins.open", opened), patch("io.open", opened):
        yield


def _failure(statements: list[ast.stmt], module: ModuleType, path: Path) -> str:
    """What statements raise; "" where they run."""
    try:
        exec(compile(ast.Module(statements, []), str(path), "exec", dont_inherit=True), vars(module))
    except (Exception, SystemExit) as error:
        text = " ".join(str(error).split())[:100]
        return f"it raises {type(error).__name__}{': ' + text if text else ''}"
    return ""


def _take_out(module: ModuleType, tree: ast.Module, missing: set[str], said: list[str]) -> None:
    """Delete the functions and classes that read a missing name, and those that read these."""
    definitions = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    found = True
    while found:
        found = False
        for node in definitions:
            lacks = sorted(_read(node) & missing)
            if lacks and node.name in vars(module):
                said.append(f"{node.name} is left out: it reads {lacks[0]}")
                delattr(module, node.name)
                missing.add(node.name)
                found = True


def _read(node: ast.AST) -> set[str]:
    """The names that a definition reads and does not give itself."""
    names = [inner for inner in ast.walk(node) if isinstance(inner, ast.Name)]
    own = {inner.id for inner in names if not isinstance(inner.ctx, ast.Load)}
    own |= {inner.arg for inner in ast.walk(node) if isinstance(inner, ast.arg)}
    return {inner.id for inner in names} - own


def _given(statement: ast.stmt) -> set[str]:
    """The names that a statement gives the module."""
    found: set[str] = set()
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
    return found


class _Works:
    """Which statements of the top level of a file do its work, and need not run for what it defines."""

    def __init__(self, tree: ast.Module) -> None:
        self.training = _training_functions(tree)
        self.classes = _module_classes(tree)
        made = [node for node in tree.body if isinstance(node, ast.Assign) and _calls(node.value) & self.classes]
        self.models = {target.id for node in made for target in node.targets if isinstance(target, ast.Name)}
        for node in (one for one in tree.body if isinstance(one, ast.Assign) and _is_moved(one.value, self.models)):
            self.models |= {target.id for target in node.targets if isinstance(target, ast.Name)}

    def why(self, statement: ast.stmt) -> str:
        """What a statement does; "" for a definition, and for what only a program's start runs."""
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            return ""
        if isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test):
            return ""
        called = _calls(statement)
        if _has_backward(statement) or called & self.training or any(map(_TRAINS.fullmatch, called)):
            return "it trains"
        methods = [
            (getattr(inner.func.value, "id", ""), inner.func.attr)
            for inner in ast.walk(statement)
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute)
        ]
        if any(holder in self.classes and method == "from_pretrained" for holder, method in methods):
            return "it asks for weights"
        runs = any(holder in self.models and not _KEEPS.fullmatch(method) for holder, method in methods)
        return "it runs a model" if runs or called & self.models else ""


def _is_moved(value: ast.expr, models: set[str]) -> bool:
    """Whether a value is one of these models by another name: `model.to(device)`, `torch.compile(model)`."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and _KEEPS.fullmatch(value.func.attr):
        value = value.func.value
    elif isinstance(value, ast.Call) and re.search(r"(compile|DataParallel)$", ast.unparse(value.func)) and value.args:
        value = value.args[0]
    return isinstance(value, ast.Name) and value.id in models


def _module_classes(tree: ast.Module) -> set[str]:
    """The classes of modules that a file defines."""
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    return {node.name for node in classes if any("Module" in ast.unparse(base) for base in node.bases)}


def _training_functions(tree: ast.Module) -> set[str]:
    """The functions of a file that make a backward pass, and those that call them."""
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    training = {name for name, node in functions.items() if _has_backward(node)}
    called = {name: _calls(node) for name, node in functions.items()} if training else {}
    for _ in called:
        more = {name for name, names in called.items() if names & training}
        if more <= training:
            break
        training |= more
    return training


def _has_backward(node: ast.AST) -> bool:
    return any(isinstance(inner, ast.Attribute) and inner.attr == "backward" for inner in ast.walk(node))


def _calls(node: ast.AST) -> set[str]:
    """The names of the functions that are called in it, not of methods."""
    functions = [inner.func for inner in ast.walk(node) if isinstance(inner, ast.Call)]
    return {function.id for function in functions if isinstance(function, ast.Name)}
