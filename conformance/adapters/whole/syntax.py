"""Python files read as syntax: their scopes, what binds each name, and every call. Nothing is executed."""

from __future__ import annotations

import ast
import json
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

MAX_BYTES = 400_000
"""A larger file is no source that a person wrote."""
MAX_NOTEBOOK_BYTES = 5_000_000
"""A larger notebook is not read; most of it is pictures."""
_FILLS = ("append", "extend", "add", "update", "setdefault", "insert")


@dataclass(eq=False)
class Binding:
    """What gives a name its value: `kind` is "value", "item" (an element of `node`), "unpack" (element `index`),
    "import", "def", "parameter" (`node` is its default, if any) or "unknown"."""

    kind: str
    line: int
    node: Any = None
    index: int = 0
    module: str = ""
    name: str = ""

    def spans(self, line: int) -> bool:
        """Whether the line is part of the expression of its value."""
        return self.kind in ("value", "unpack") and self.line > 0 and self.node.lineno <= line <= self.node.end_lineno


@dataclass(eq=False)
class Change:
    """``base.key = value`` (or ``base[key] = value``, with `is_item`)."""

    line: int
    base: str
    key: Any
    value: ast.expr
    is_item: bool


@dataclass(eq=False)
class Scope:
    """A file, a class body or a function."""

    source: Source
    node: ast.AST
    parent: Scope | None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    growing: set[str] = field(default_factory=set)
    """The names of what is filled in a loop or by a method, so that syntax does not tell what it holds."""

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)

    @property
    def function(self) -> ast.FunctionDef | None:
        return self.node if isinstance(self.node, ast.FunctionDef) else None

    def binding(self, name: str, line: int | None, without: Sequence[Any] = ()) -> Binding | None:
        """The binding of a name that counts at a line: the last one before it, else the first; without a line, the
        last. Those in `without` are passed over, and one whose value stands at the line: it cannot use itself."""
        found = [binding for binding in self.bindings.get(name, []) if binding not in without]
        before = [binding for binding in found if line is None or (binding.line <= line and not binding.spans(line))]
        return before[-1] if before else found[0] if found else None

    def grows(self, name: str) -> bool:
        """Whether the name, seen from here, is of something that grows."""
        at: Scope | None = self
        while at is not None and name not in at.bindings:
            at = at.parent
        return at is not None and name in at.growing

    def returned(self) -> Iterator[ast.expr]:
        """What the function returns, the last first: earlier returns are for special cases."""
        own = [node for node in _own_statements(self.node) if isinstance(node, ast.Return) and node.value is not None]
        yield from (node.value for node in reversed(own) if node.value is not None)


@dataclass(eq=False)
class Source:
    """A text of Python. `module`: the imported module that it is the source of, where it is one."""

    path: Path
    text: str
    module: ModuleType | None = None
    line_offset: int = 0
    cells: Sequence[int] = ()
    """Of a notebook, the first line of each cell."""

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax; nothing for a text that is none."""
        return _parsed(self.text)

    @cached_property
    def _walked(self) -> _Walk:
        walk = _Walk(self)
        walk.start(self.tree)
        return walk

    @property
    def top(self) -> Scope:
        return self._walked.top

    @property
    def calls(self) -> list[tuple[ast.Call, Scope]]:
        """Every call, with the scope that it stands in."""
        return self._walked.calls

    @cached_property
    def tables(self) -> dict[str, list[str]]:
        """The keys of every dict that a name is given and whose keys are all texts."""
        given = [node for node in ast.walk(self.tree) if isinstance(node, ast.Assign)]
        found = {t.id: _keys(node.value) for node in given for t in node.targets if isinstance(t, ast.Name)}
        return {name: keys for name, keys in found.items() if keys}

    @cached_property
    def written(self) -> dict[str, Any]:
        """Name -> the first constant (or list of constants) that a keyword, a key of a dict, a default of a parameter,
        a field of a class, or an option of the command line gives to it; of two that a condition chooses from, the
        first."""
        found: dict[str, Any] = {}
        for node in ast.walk(self.tree):
            for name, value in _given(node):
                try:
                    constant = ast.literal_eval(value.body if isinstance(value, ast.IfExp) else value)
                except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                    continue
                if constant is not None:
                    found.setdefault(name, constant)
        return found

    @cached_property
    def compared(self) -> list[tuple[str, list[str], str]]:
        """(name, texts, "") of every comparison with texts, and (name, keys, table) of every look-up of a name in a
        table; without keys where the table has a name."""
        found = []
        for node in ast.walk(self.tree):
            pairs: list[tuple[ast.expr, ast.expr]] = []
            if isinstance(node, ast.Compare):
                texts = _texts([n for n in ast.walk(node.comparators[0]) if isinstance(n, ast.Constant)])
                if texts:
                    found.append((_last_name(node.left), texts, ""))
                elif isinstance(node.ops[0], (ast.In, ast.NotIn)):
                    pairs.append((node.left, node.comparators[0]))
            elif isinstance(node, ast.Subscript):
                pairs.append((node.slice, node.value))
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
                pairs += [(node.args[0], node.func.value)] if node.args else []
            found += [(_last_name(name), _keys(table), _last_name(table)) for name, table in pairs]
        return [(name, texts, table) for name, texts, table in found if name and (texts or table)]

    def scope_of(self, node: ast.AST) -> Scope:
        """The scope inside a class or function of this source."""
        return self._walked.scopes[node]

    def defined_at(self, line: int) -> Scope | None:
        """The scope of the function whose definition (or first decorator) is at a line."""
        for node, scope in self._walked.scopes.items():
            if isinstance(node, ast.FunctionDef):
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                if line in (first, node.lineno):
                    return scope
        return None

    def place(self, node: ast.expr) -> str:
        """ "file.py:12"; of a notebook "file.ipynb cell 3", its cells of code counted from 1."""
        if self.cells:
            return f"{self.path.name} cell {bisect_right(self.cells, node.lineno)}"
        return f"{self.path.name}:{node.lineno + self.line_offset}"


@lru_cache(maxsize=32)
def _parsed(text: str) -> ast.Module:
    """Kept, since the models of a file have the same files around them. Nobody changes it."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return ast.Module([], [])


def read(path: Path, module: ModuleType | None = None) -> Source | None:
    """The file as a source; None where it cannot be read or is no source of a person."""
    try:
        if path.stat().st_size > MAX_BYTES:
            return None
        return Source(path, path.read_text(encoding="utf-8", errors="replace"), module)
    except OSError:
        return None


def read_notebook(path: Path) -> Source | None:
    """The code of a Jupyter notebook as one source, without what is no Python; None where it has none."""
    try:
        held = json.loads(path.read_text(encoding="utf-8")) if path.stat().st_size <= MAX_NOTEBOOK_BYTES else {}
        cells = ["".join(cell["source"]) for cell in held.get("cells", ()) if cell.get("cell_type") == "code"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    lines: list[str] = []
    starts: list[int] = []
    for cell in cells:
        starts.append(len(lines) + 1)
        text = re.sub(r"^([ \t]*)[%!?].*$", r"\1pass", cell, flags=re.MULTILINE)
        try:
            ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        lines += text.splitlines()
    return Source(path, "\n".join(lines), cells=starts) if lines else None


class _Walk(ast.NodeVisitor):
    """Fills the scopes of a source."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.calls: list[tuple[ast.Call, Scope]] = []
        self.scopes: dict[ast.AST, Scope] = {}

    def start(self, tree: ast.Module) -> None:
        self.top = self.scope = Scope(self.source, tree, None)
        for statement in tree.body:
            self.visit(statement)

    def _bind(self, bound: str, kind: str, line: int, node: Any = None, **more: Any) -> None:
        self.scope.bindings.setdefault(bound, []).append(Binding(kind, line, node, **more))

    def _assign(self, target: ast.expr, kind: str, node: Any) -> None:
        if isinstance(target, ast.Name):
            self._bind(target.id, kind, target.lineno, node)
        elif isinstance(target, (ast.Tuple, ast.List)):
            for index, element in enumerate(target.elts):
                if isinstance(element, ast.Name):
                    kind_of_element = "unpack" if kind == "value" else "unknown"
                    self._bind(element.id, kind_of_element, element.lineno, node, index=index)
        elif kind == "value" and isinstance(target, ast.Attribute):
            self._change(target, target.attr, node, False)
        elif kind == "value" and isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
            self._change(target, target.slice.value, node, True)
        elif kind == "value" and isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
            self.scope.growing.add(target.value.id)

    def _change(self, target: ast.Attribute | ast.Subscript, key: Any, node: ast.expr, is_item: bool) -> None:
        change = Change(target.lineno, ast.unparse(target.value), key, node, is_item)
        self.scope.changes.append(change)

    def _inside(self, node: ast.AST, body: list[Any], arguments: ast.arguments | None = None) -> None:
        outer, self.scope = self.scope, Scope(self.source, node, self.scope)
        self.scopes[node] = self.scope
        if arguments is not None:
            positional = [*arguments.posonlyargs, *arguments.args]
            defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
            given = [*zip(positional, defaults, strict=True)]
            given += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            for argument, default in given:
                self._bind(argument.arg, "parameter", 0, default)
            for rest, empty in ((arguments.vararg, ast.Tuple([], ast.Load())), (arguments.kwarg, ast.Dict([], []))):
                if rest is not None:
                    self._bind(rest.arg, "value", 0, empty)
        for statement in body:
            self.visit(statement)
        self.scope = outer

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._bind(node.name, "def", node.lineno, node)
        for outside in [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(outside)
        self._inside(node, node.body, node.args)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._inside(node, [node.body], node.args)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._bind(node.name, "def", node.lineno, node)
        self._inside(node, node.body)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.visit(node.value)
        for target in node.targets:
            self._assign(target, "value", node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)
            self._assign(node.target, "value", node.value)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.visit(node.value)
        self._assign(node.target, "value", node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._assign(node.target, "unknown", None)

    def visit_For(self, node: ast.For) -> None:
        self._assign(node.target, "item", node.iter)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._assign(node.target, "item", node.iter)
        self.generic_visit(node)

    def visit_withitem(self, node: ast.withitem) -> None:
        if node.optional_vars is not None:
            self._assign(node.optional_vars, "unknown", None)
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            module = alias.name if alias.asname else alias.name.partition(".")[0]
            self._bind(alias.asname or module, "import", node.lineno, module=module)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self._bind(alias.asname or alias.name, "import", node.lineno, module=node.module or "", name=alias.name)

    def visit_Call(self, node: ast.Call) -> None:
        self.calls.append((node, self.scope))
        function = node.func
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.attr in _FILLS:
            self.scope.growing.add(function.value.id)
        self.generic_visit(node)


def _given(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """(name, value) of what a node gives to names."""
    if isinstance(node, ast.Call):
        words = {word.arg: word.value for word in node.keywords if word.arg}
        flags = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        is_option = isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"
        for flag in flags if is_option and "default" in words else ():
            yield flag.lstrip("-").replace("-", "_"), words["default"]
        yield from words.items() if not is_option else ()
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value, value
    elif isinstance(node, ast.AnnAssign):
        if isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value
    elif isinstance(node, ast.FunctionDef):
        positional = [*node.args.posonlyargs, *node.args.args]
        defaults = node.args.defaults
        placed = zip(positional[len(positional) - len(defaults) :], defaults, strict=True)
        named = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        yield from ((argument.arg, value) for argument, value in (*placed, *named) if value is not None)
    elif isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
        if isinstance(target, (ast.Name, ast.Attribute)):
            yield target.id if isinstance(target, ast.Name) else target.attr, node.value


def _texts(nodes: list[Any]) -> list[str]:
    """The texts that all these are; none where one is something else."""
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return texts if len(texts) == len(nodes) else []


def _keys(node: ast.expr) -> list[str]:
    return _texts(list(node.keys)) if isinstance(node, ast.Dict) else []


def _last_name(node: ast.expr) -> str:
    """What an expression is called at its end: ``config.mode.lower()`` is `mode`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
        return _last_name(node.func.value)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _own_statements(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, in order, without those of functions and classes inside."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            yield from _own_statements(child)
