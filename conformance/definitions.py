"""How a line of Python came to what it reads: from a statement back to those that made its names.

    Statement("model.py", 31).behind()      # what line 31 reads was made there, the nearest first

A name is followed to where its function binds it, a parameter to the calls of the function, an attribute of `self` to
where its class sets it, a call to what the function returns. Read as syntax only: nothing is run.
"""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, cached_property

_FAR = 150
"""After so many statements nothing more is followed."""
_ALIKE = 0.8
"""How alike two names are of which one is read in the place of the other, as difflib measures it."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class _File:
    """A file as syntax: what stands around each node, its functions by name, and its statements by line."""

    def __init__(self, name: str) -> None:
        self.lines = linecache.getlines(name)
        try:
            self.tree = ast.parse("".join(self.lines))
        except SyntaxError:
            self.tree = ast.Module([], [])
        nodes = list(ast.walk(self.tree))
        self.around = {inner: outer for outer in nodes for inner in ast.iter_child_nodes(outer)}
        self.functions: dict[str, list[Function]] = {}
        for node in nodes:
            if isinstance(node, Function):
                self.functions.setdefault(node.name, []).append(node)
        self.calls = [node for node in nodes if isinstance(node, ast.Call)]
        self.statements = [node for node in nodes if isinstance(node, ast.stmt)]
        self._bindings: dict[ast.AST, dict[str, list[ast.stmt]]] = {}

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """The innermost statement around a node."""
        while node in self.around and not isinstance(node, ast.stmt):
            node = self.around[node]
        return node if isinstance(node, ast.stmt) else None

    def outside(self, node: ast.AST, kind: type | tuple[type, ...]) -> ast.AST | None:
        """The innermost function or class around a node."""
        here = self.around.get(node)
        while here is not None and not isinstance(here, kind):
            here = self.around.get(here)
        return here

    def bindings(self, scope: ast.AST) -> dict[str, list[ast.stmt]]:
        """Name -> the statements of a function, or of the module, that bind it; not those of functions inside."""
        if scope not in self._bindings:
            found: dict[str, list[ast.stmt]] = {}
            around = scope if isinstance(scope, _FUNCTIONS) else None
            for one in ast.walk(scope):
                if isinstance(one, ast.stmt) and self.outside(one, _FUNCTIONS) is around:
                    for name in {*_binds(one)}:
                        found.setdefault(name, []).append(one)
            self._bindings[scope] = found
        return self._bindings[scope]


@cache
def _file(name: str) -> _File:
    return _File(name)


@dataclass(frozen=True)
class Statement:
    """A statement of a file, by a line of it. What cannot be read has no node and leads nowhere."""

    file: str
    line: int

    @property
    def source(self) -> _File:
        return _file(self.file)

    @cached_property
    def node(self) -> ast.stmt | None:
        """The smallest statement that holds the line."""
        holding = [
            node for node in self.source.statements if node.lineno <= self.line <= (node.end_lineno or node.lineno)
        ]
        return min(holding, key=lambda node: (node.end_lineno or node.lineno) - node.lineno, default=None)

    def line_with(self, pattern: str) -> int:
        """The first line of the statement that the pattern is found in; 0 for none. Of one with a body, its head."""
        if self.node is None:
            return 0
        for number in range(self.node.lineno, _end_of_head(self.node) + 1):
            if re.search(pattern, self.source.lines[number - 1].partition("#")[0]):
                return number
        return 0

    def behind(self) -> Iterator[Statement]:
        """The statements from which it comes to what it reads, the nearest first; itself is the first."""
        if self.node is None:
            return
        seen: set[tuple[ast.stmt, str]] = set()
        stack: list[tuple[ast.stmt, list[ast.AST]]] = [(self.node, _read_by(self.node))]
        yield self
        while stack and len(seen) < _FAR:
            statement, expressions = stack.pop(0)
            for expression in expressions:
                for made, reads in self._made(statement, expression):
                    key = (made, "".join(ast.unparse(one) for one in reads))
                    if key not in seen:
                        seen.add(key)
                        stack.append((made, reads))
                        yield Statement(self.file, made.lineno)

    def argument(self, position: int, name: str) -> Statement | None:
        """Where the argument of the outermost call with more than one was made, by its position or name: of a name the
        statement that binds it. None where the statement says itself how: by a slice, or in another expression."""
        calls = [node for part in self._reads for node in ast.walk(part) if isinstance(node, ast.Call)]
        for call in calls:
            words = {word.arg: word.value for word in call.keywords}
            given = words.get(name) or (call.args[position] if len(call.args) > position else None)
            if given is None or len(call.args) + len(words) < 2:
                continue
            if any(isinstance(node, ast.Slice) for part in call.args[: position + 1] for node in ast.walk(part)):
                return None
            bound = [
                made
                for node in ast.walk(given)
                if isinstance(node, ast.Name) and self.node is not None
                for made, _ in self._bound(self.node, node.id)
                if self.source.outside(made, _FUNCTIONS) is self.source.outside(self.node, _FUNCTIONS)
            ]
            return Statement(self.file, bound[0].lineno) if bound else None
        return None

    @property
    def _function(self) -> ast.AST | None:
        if self.node is None or isinstance(self.node, Function):
            return self.node
        return self.source.outside(self.node, _FUNCTIONS)

    @property
    def _reads(self) -> list[ast.AST]:
        return _read_by(self.node) if self.node is not None else []

    def later(self) -> Iterator[Statement]:
        """The statements of its function from itself on, in order."""
        around = self._function
        inside = [n for n in ast.walk(around) if isinstance(n, ast.stmt) and not _is_text(n)] if around else []
        yield from (Statement(self.file, line) for line in sorted({n.lineno for n in inside}) if line >= self.line)

    def last_return(self) -> Statement:
        """The last return of its function; itself where there is none."""
        around = self._function
        found = [node.lineno for node in ast.walk(around) if isinstance(node, ast.Return)] if around else []
        return Statement(self.file, max(found, default=self.line))

    # --- where something was made

    def _made(self, at: ast.stmt, expression: ast.AST) -> Iterator[tuple[ast.stmt, list[ast.AST]]]:
        """Each statement that makes a piece of an expression, with the expressions that it reads for it."""
        for node in ast.walk(expression):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                yield from self._bound(at, node.id)
        for node in ast.walk(expression):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == self._me(at):
                yield from self._set(at, node.attr)
            if isinstance(node, ast.Call):
                yield from self._returned(node)

    def _me(self, at: ast.AST) -> str:
        """What the method around a statement calls its object."""
        function = at if isinstance(at, Function) else self.source.outside(at, _FUNCTIONS)
        while isinstance(function, Function) and isinstance(self.source.outside(function, _FUNCTIONS), _FUNCTIONS):
            function = self.source.outside(function, _FUNCTIONS)
        arguments = function.args.args if isinstance(function, Function) else []
        return arguments[0].arg if arguments else ""

    def _bound(self, at: ast.stmt, name: str) -> Iterator[tuple[ast.stmt, list[ast.AST]]]:
        function = self.source.outside(at, _FUNCTIONS)
        scope = function if function is not None else self.source.tree
        found = [one for one in self.source.bindings(scope).get(name, ()) if one is not at]
        before = sorted((one for one in found if one.lineno < at.lineno), key=lambda one: -one.lineno)
        for one in before or found:
            yield one, _read_by(one)
        if isinstance(function, Function):
            if name in (argument.arg for argument in _arguments(function)) and name != self._me(at):
                yield from self._handed(function, name)
            elif not found:
                yield from self._bound(function, name)

    def _handed(self, function: Function, name: str) -> Iterator[tuple[ast.stmt, list[ast.AST]]]:
        """The calls of a function in the file, each with what it hands over for a parameter. A `forward` is called by
        the name of the object, which is not followed to its class."""
        names = [argument.arg for argument in _arguments(function)]
        is_method = isinstance(self.source.around.get(function), ast.ClassDef) and "staticmethod" not in [
            ast.unparse(one) for one in function.decorator_list
        ]
        for call in self.source.calls:
            called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            is_object = called != self._called(function)
            if is_object and (function.name not in ("forward", "__call__") or not _fits(call, names[is_method:])):
                continue
            words = {word.arg: word.value for word in call.keywords}
            own = isinstance(call.func, ast.Attribute) or called != function.name  # the object is no argument
            placed = dict(zip(names[is_method and own :], call.args, strict=False))
            given, statement = words.get(name) or placed.get(name), self.source.statement(call)
            if given is not None and statement is not None and not isinstance(given, ast.Starred):
                yield statement, [given]

    def _called(self, function: Function) -> str:
        """By which name a function is called: a constructor by that of its class."""
        around = self.source.around.get(function)
        return around.name if function.name == "__init__" and isinstance(around, ast.ClassDef) else function.name

    def _set(self, at: ast.stmt, name: str) -> Iterator[tuple[ast.stmt, list[ast.AST]]]:
        """Where the class around sets an attribute of its object, or registers a buffer or parameter."""
        cls = self.source.outside(at, ast.ClassDef)
        for one in ast.walk(cls) if cls is not None else ():
            if isinstance(one, ast.Assign | ast.AugAssign | ast.AnnAssign):
                targets = one.targets if isinstance(one, ast.Assign) else [one.target]
                mine = [t for target in targets for t in ast.walk(target) if isinstance(t, ast.Attribute)]
                if any(t.attr == name and isinstance(t.ctx, ast.Store) for t in mine) and one.value is not None:
                    yield one, [one.value]
            elif isinstance(one, ast.Expr) and isinstance(one.value, ast.Call) and len(one.value.args) > 1:
                first, *rest = one.value.args
                if isinstance(first, ast.Constant) and first.value == name:
                    yield one, list(rest)

    def _returned(self, call: ast.Call) -> Iterator[tuple[ast.stmt, list[ast.AST]]]:
        called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        for function in self.source.functions.get(called, ()):
            for node in ast.walk(function):
                if isinstance(node, ast.Return) and node.value is not None:
                    yield node, [node.value]


@cache
def unread(file: str) -> tuple[int, ...]:
    """The lines of a file that bind a name that nobody reads; of a parameter or a part that
    nobody reads, the line that reads another of nearly the same name, or made alike, once more."""
    source, found = _file(file), set[int]()
    for function in (one for group in source.functions.values() for one in group):
        inside = list(ast.walk(function))
        loads = [node for node in inside if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)]
        read = {node.id for node in loads}
        for node in inside:
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            if isinstance(target, ast.Name) and target.id not in read and not target.id.startswith("_"):
                found.add(target.lineno)
        names = [argument.arg for argument in _arguments(function)]
        for name in (one for one in names if one not in read and read):
            for twin in get_close_matches(name, [one for one in names if one != name], 1, _ALIKE):
                lines = sorted(node.lineno for node in loads if node.id == twin)
                found.update(lines[-1:] if len(lines) > 1 else [])
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef):
            found.update(_read_for_another(node))
    return tuple(sorted(found))


def _read_for_another(cls: ast.ClassDef) -> Iterator[int]:
    """Of each part that a class makes by a call and never reads, the last line that reads the only one of its parts
    made by the same call that is read more than once."""
    parts: dict[str, str] = {}
    reads: dict[str, list[int]] = {}
    for node in ast.walk(cls):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and _own(node.targets[0]):
            parts[_own(node.targets[0])] = ast.unparse(node.value)
        elif isinstance(getattr(node, "ctx", None), ast.Load) and _own(node):
            reads.setdefault(_own(node), []).append(node.lineno)  # type: ignore[attr-defined]
    for name, made in parts.items():
        twice = [other for other, how in parts.items() if how == made and len(reads.get(other, ())) > 1]
        if name not in reads and len(twice) == 1:
            yield max(reads[twice[0]])


def _own(node: ast.AST) -> str:
    """The name of an attribute of self; "" for anything else."""
    is_own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return node.attr if is_own else ""  # type: ignore[attr-defined]


def _read_by(statement: ast.stmt) -> list[ast.AST]:
    """The expressions that a statement reads; of one with a body, those of its head."""
    if isinstance(statement, ast.For | ast.AsyncFor):
        return [statement.iter]
    if isinstance(statement, ast.If | ast.While):
        return [statement.test]
    if isinstance(statement, ast.With | ast.AsyncWith):
        return [item.context_expr for item in statement.items]
    if isinstance(statement, Function | ast.ClassDef | ast.Try):
        return []
    return [statement]


def _is_text(statement: ast.stmt) -> bool:
    """Is it a docstring?"""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _end_of_head(statement: ast.stmt) -> int:
    body = getattr(statement, "body", None)
    end = statement.end_lineno or statement.lineno
    return max(statement.lineno, body[0].lineno - 1) if isinstance(body, list) and body else end


def _arguments(function: Function) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _fits(call: ast.Call, names: list[str]) -> bool:
    """May a call of an object be one of a function with these parameters?"""
    words = {word.arg for word in call.keywords}
    is_object = isinstance(call.func, ast.Attribute | ast.Subscript | ast.Name)
    return is_object and words <= set(names) and 2 <= len(call.args) + len(words) == len(names)


def _binds(statement: ast.stmt) -> set[str]:
    """The names that a statement gives a value, without what stands in its body."""
    targets: list[ast.AST] = []
    if isinstance(statement, ast.Assign):
        targets = list(statement.targets)
    elif isinstance(statement, ast.AugAssign | ast.AnnAssign | ast.For | ast.AsyncFor):
        targets = [statement.target]
    elif isinstance(statement, ast.With | ast.AsyncWith):
        targets = [item.optional_vars for item in statement.items if item.optional_vars is not None]
    found = {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
    return found if not isinstance(statement, Function) else found | {statement.name}
