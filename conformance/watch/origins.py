"""Where a value came from: the lines of the user's code that made it, read backwards from the call that it reached.

From the call one goes to the names in its arguments, to the statements that bound them, into the functions, datasets
and collate functions that gave them, and out to the callers whose arguments they were.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType, MethodType, ModuleType
from typing import Any

from conformance.watch.lines import FUNCTIONS, At, Source, source_of

Path = tuple[int | str, ...]
"""Which part of a value is meant: the element of a tuple, the value of a key."""

DEEP = 14
_WRAPPERS = ("enumerate", "iter", "next", "tqdm", "trange", "list", "zip", "cycle", "islice", "int", "float")


@dataclass(frozen=True)
class Scope:
    """Where an expression is read. stack: the frame that runs it and those around it, where they are known. given: the
    expressions that the parameters of its function were given."""

    source: Source
    names: Mapping[str, Any]
    stack: tuple[At, ...] = ()
    given: Mapping[str, tuple[ast.expr, Scope]] = field(default_factory=dict)

    def live(self, node: ast.AST) -> Any:
        """What a dotted name of the module stands for; None where it is unknown."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        owner = self.live(node.value) if isinstance(node, ast.Attribute) else None
        is_plain = isinstance(owner, (ModuleType, type))
        return getattr(owner, node.attr, None) if isinstance(node, ast.Attribute) and is_plain else None


@dataclass(frozen=True)
class Line:
    """A statement that took part in a value."""

    source: Source
    node: ast.stmt

    @property
    def place(self) -> str:
        return self.source.place(self.node)

    @property
    def text(self) -> str:
        """The statement without the statements inside it."""
        body = getattr(self.node, "body", None)
        return ast.unparse(self.node) if not body else ast.unparse(self.node).split("\n")[0]


def scope_of(stack: Sequence[At], depth: int = 0) -> Scope | None:
    """Where the frame at some depth of a stack reads its names."""
    if depth >= len(stack):
        return None
    source = source_of(stack[depth].code.co_filename)
    return Scope(source, stack[depth].names, tuple(stack[depth:])) if source else None


def argument(stack: Sequence[At], position: int, *names: str) -> list[Line]:
    """The lines behind an argument of the call that the innermost frame makes, nearest first."""
    scope, call = scope_of(stack), stack[0].call() if stack else None
    if scope is None or call is None:
        return []
    lines = [*_given(call, scope, position, names, DEEP)]
    return list(dict.fromkeys(lines))


def arguments(stack: Sequence[At], but: re.Pattern[str] | None = None) -> list[Line]:
    """The lines behind all arguments of the call that the innermost frame makes, but those of certain names."""
    scope, call = scope_of(stack), stack[0].call() if stack else None
    if scope is None or call is None:
        return []
    values = [("", one) for one in call.args] + [(one.arg or "", one.value) for one in call.keywords]
    left = (one for name, one in values if but is None or not but.fullmatch(getattr(one, "id", name).lower()))
    return list(dict.fromkeys(line for value in left for line in behind(value, scope, (), DEEP)))


def receiver(stack: Sequence[At]) -> list[Line]:
    """The lines behind the thing that is called, or whose method is."""
    scope, call = scope_of(stack), stack[0].call() if stack else None
    if scope is None or call is None:
        return []
    thing: ast.expr = call.func
    if isinstance(thing, ast.Attribute) and not _is_held(thing, scope):
        thing = thing.value
    return list(dict.fromkeys(behind(thing, scope, (), DEEP)))


def _is_held(func: ast.Attribute, scope: Scope) -> bool:
    """Whether `self.name(...)` calls something that the object holds, and no method of its class."""
    is_own = isinstance(func.value, ast.Name) and func.value.id == "self"
    return is_own and _method(func, scope) is None and any(_setting(scope.source.owner(func), func.attr))


def _given(call: ast.Call, scope: Scope, position: int, names: tuple[str, ...], deep: int) -> Iterator[Line]:
    """The lines behind one argument of a call, by its names or its position; of what a library was handed, where the
    call does not name it."""
    for one in call.keywords:
        if one.arg in names:
            yield from behind(one.value, scope, (), deep - 1)
            return
    plain = [one for one in call.args if not isinstance(one, ast.Starred)]
    if 0 <= position < len(plain):
        yield from behind(plain[position], scope, (), deep - 1)
        return
    for one in call.keywords:
        if one.arg is None:  # **batch
            yield from behind(one.value, scope, names[:1], deep - 1)
            return
    yield from _handed(call, scope, names[:1], deep - 1)


def behind(node: Any, scope: Scope, path: Path, deep: int) -> Iterator[Line]:
    """The lines behind an expression, nearest first."""
    if deep <= 0 or node is None:
        return
    if isinstance(node, ast.Name):
        yield from _named(node, scope, path, deep)
    elif isinstance(node, ast.Attribute):
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            yield from _own(node, scope, path, deep)
        elif not isinstance(scope.live(node.value), ModuleType):
            yield from _held(node, scope, path, deep)
            yield from behind(node.value, scope, (), deep - 1)
    elif isinstance(node, ast.Subscript):
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        yield from behind(node.value, scope, (key, *path) if isinstance(key, (int, str)) else path, deep - 1)
    elif isinstance(node, ast.Call):
        yield from _called(node, scope, path, deep)
    elif isinstance(node, (ast.Tuple, ast.List)) and path and isinstance(path[0], int) and path[0] < len(node.elts):
        yield from behind(node.elts[path[0]], scope, path[1:], deep - 1)
    elif isinstance(node, ast.Dict) and path:
        for name, value in zip(node.keys, node.values, strict=True):
            if isinstance(name, ast.Constant) and name.value == path[0]:
                yield Line(scope.source, _at(value))
                yield from behind(value, scope, path[1:], deep - 1)
    else:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.expr):
                yield from behind(child, scope, (), deep - 2)
            elif isinstance(child, ast.comprehension):
                yield from behind(child.iter, scope, (), deep - 2)


def _at(node: ast.expr) -> Any:
    """An expression as a statement of its own, so that a line inside a long statement can be named."""
    return ast.copy_location(ast.Expr(node), node)


def _called(node: ast.Call, scope: Scope, path: Path, deep: int) -> Iterator[Line]:
    known = scope.live(node.func)
    if isinstance(known, (FunctionType, MethodType)):
        function = _function(known)
        if function is not None:
            yield from _results(*function, node, scope, path, deep)
            return
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    if name in _WRAPPERS and node.args:
        inner = path[1:] if name == "enumerate" and path[:1] == (1,) else path
        if name == "zip" and path and isinstance(path[0], int) and path[0] < len(node.args):
            yield from behind(node.args[path[0]], scope, path[1:], deep - 1)
        else:
            yield from behind(node.args[0], scope, inner, deep - 1)
        return
    if isinstance(known, type):
        yield from _instance(node, known, scope, path, deep)
        return
    if isinstance(node.func, ast.Attribute):
        method = _method(node.func, scope)
        if method is not None:
            yield from _results(scope.source, method, scope.names, node, scope, path, deep)
            return
        if not isinstance(scope.live(node.func.value), ModuleType):
            yield from behind(node.func.value, scope, path, deep - 1)
            if node.func.attr in ("masked_fill", "where", "to"):
                return
    if isinstance(node.func, ast.Name):
        yield from behind(node.func, scope, path, deep - 2)  # what a model that is called gives back
    for value in (*node.args, *(one.value for one in node.keywords)):
        yield from behind(value, scope, (), deep - 2)


def _function(known: Any) -> tuple[Source, Any, Mapping[str, Any]] | None:
    """The source of a function of the user's, and its globals."""
    known = getattr(known, "__func__", known)
    known = getattr(known, "__wrapped__", known)
    if not isinstance(known, FunctionType):
        return None
    source = source_of(known.__code__.co_filename)
    node = source.defined(known.__code__) if source else None
    return (source, node, known.__globals__) if source and node is not None else None


def _method(func: ast.Attribute, scope: Scope) -> Any:
    """The method of the class around an expression that `self.name` means."""
    if not (isinstance(func.value, ast.Name) and func.value.id == "self"):
        return None
    owner = scope.source.owner(func)
    body = owner.body if owner is not None else []
    return next((n for n in body if isinstance(n, FUNCTIONS[:2]) and n.name == func.attr), None)


def _results(
    source: Source, function: Any, names: Mapping[str, Any], call: ast.Call | None, scope: Scope, path: Path, deep: int
) -> Iterator[Line]:
    """The lines behind what a function gives back."""
    given = {}
    if call is not None:
        order = [one.arg for one in function.args.args if one.arg != "self"]
        given = {name: (value, scope) for name, value in zip(order, call.args, strict=False)}
        given |= {one.arg: (one.value, scope) for one in call.keywords if one.arg}
    inner = Scope(source, names, (), given)
    if isinstance(function, ast.Lambda):
        yield Line(source, _at(function.body))
        yield from behind(function.body, inner, path, deep - 1)
        return
    ends = [n for n in source.inside(function) if isinstance(n, (ast.Return, ast.Yield)) and n.value is not None]
    for end in ends[-2:]:
        yield Line(source, source.statement(end))
        yield from behind(end.value, inner, path, deep - 1)


def _instance(node: ast.Call, known: type, scope: Scope, path: Path, deep: int) -> Iterator[Line]:
    """The lines behind what an instance gives: a dataset's items, a model's answers, what a loader was handed."""
    for name in ("__getitem__", "__iter__", "forward", "__call__"):
        function = _function(vars(known).get(name))
        if function is not None:
            yield from _results(*function, None, scope, path, deep)
            return
    yield from _handed(node, scope, path, deep)


def _handed(call: ast.Call, scope: Scope, path: Path, deep: int) -> Iterator[Line]:
    """The lines behind the data that a call of a library was handed: collate functions first, then data sets."""
    if deep <= 0:
        return
    values = [(one.arg or "", one.value) for one in call.keywords]
    values = [*(v for v in values if "collat" in v[0]), *(("", one) for one in call.args), *values]
    for name, value in values:
        known = scope.live(value)
        function = _function(known) if isinstance(known, FunctionType) else None
        if function is not None and "collat" in name:
            yield from _results(*function, None, scope, path, deep)
        if isinstance(value, (ast.Name, ast.Attribute, ast.Call)) and function is None:
            yield from behind(value, scope, path, deep - 2)
    if isinstance(call.func, ast.Attribute) and not call.args and not call.keywords:
        yield from behind(call.func.value, scope, path, deep - 1)  # trainer.train()


def _own(node: ast.Attribute, scope: Scope, path: Path, deep: int) -> Iterator[Line]:
    """The lines that set an attribute of the object itself."""
    for one, value in _setting(scope.source.owner(node), node.attr):
        yield Line(scope.source, one)
        yield from behind(value, scope, path, deep - 1)


def _held(node: ast.Attribute, scope: Scope, path: Path, deep: int) -> Iterator[Line]:
    """The lines that set an attribute of another object, where only one class of the file has it."""
    classes = [one for one in scope.source.nodes if isinstance(one, ast.ClassDef) and any(_setting(one, node.attr))]
    for one, value in _setting(classes[0], node.attr) if len(classes) == 1 else ():
        yield Line(scope.source, one)
        yield from behind(value, Scope(scope.source, scope.names), path, deep - 1)


def _setting(owner: ast.AST | None, name: str) -> Iterator[tuple[ast.stmt, ast.expr]]:
    """The statements of a class that set `self.name`, and the values."""
    for one in ast.walk(owner) if owner is not None else ():
        if not isinstance(one, ast.Assign):
            continue
        for target in one.targets:
            if _is_attribute(target, name):
                yield one, one.value
            elif isinstance(target, ast.Tuple) and isinstance(one.value, ast.Tuple):
                for part, value in zip(target.elts, one.value.elts, strict=False):
                    if _is_attribute(part, name):
                        yield one, value


def _is_attribute(target: ast.AST, name: str) -> bool:
    if not isinstance(target, ast.Attribute) or not isinstance(target.value, ast.Name):
        return False
    return target.value.id == "self" and target.attr == name


def _named(node: ast.Name, scope: Scope, path: Path, deep: int) -> Iterator[Line]:
    """The lines behind a name: what changed it in place, what bound it, and the caller whose argument it is."""
    source, line = scope.source, node.lineno
    function = source.function(node)
    own = source.statement(node)
    bound = [*_bindings(source, function, node.id)]
    earlier = [b for b in bound if b[0].lineno < line or (b[0] is not own and b[0].lineno == line)]
    fresh = [b for b in earlier if b[1] is not None]
    last = fresh[-1] if fresh else None
    for statement, value, _ in reversed(earlier):
        if value is None and (last is None or statement.lineno > last[0].lineno):
            yield Line(source, statement)
    for statement, value, _ in earlier:
        is_call = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
        if value is None and is_call and (last is None or statement.lineno > last[0].lineno):
            for one in statement.value.args:  # what is scattered or filled
                yield from behind(one, scope, (), deep - 2)
    if last is not None:
        for statement, value, at in (last, *(one for one in fresh[:-1] if _are_branches(source, one[0], last[0]))):
            yield Line(source, statement)
            yield from behind(value, scope, (*at, *path), deep - 1)
        return
    if not isinstance(function, ast.Module):
        if node.id in _parameters(function):
            yield from _from_caller(node.id, function, scope, path, deep)
            return
        outer = [b for b in _bindings(source, source.tree, node.id) if b[1] is not None]
        if outer:
            yield Line(source, outer[-1][0])
            yield from behind(outer[-1][1], Scope(source, scope.names), (*outer[-1][2], *path), deep - 1)


def _are_branches(source: Source, first: ast.AST, second: ast.AST) -> bool:
    """Whether of two statements one runs or the other: they stand in both branches of a condition."""
    around = [*source.outward(second)]
    for node in source.outward(first):
        if isinstance(node, ast.If) and node in around:
            inside = {id(one) for branch in node.body for one in ast.walk(branch)}
            return (id(first) in inside) is not (id(second) in inside)
    return False


def _parameters(function: Any) -> list[str]:
    return [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]


def _bindings(source: Source, function: Any, name: str) -> Iterator[tuple[Any, Any, Path]]:
    """The statements of a function that bind a name, or change what it names (then without a value): statement, value,
    and which part of the value."""
    for node in source.inside(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                found = _part(target, name)
                if found is not None:
                    yield node, node.value, found
                elif _is_inside(target, name):
                    yield node, None, ()
        elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and _part(node.target, name) is not None:
            yield source.statement(node), node.value, ()
        elif isinstance(node, ast.AugAssign) and (
            _part(node.target, name) is not None or _is_inside(node.target, name)
        ):
            yield node, None, ()
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            found = _part(node.target, name)
            if found is not None:
                yield node, node.iter, found
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            func = node.value.func
            if isinstance(func, ast.Attribute) and func.attr.endswith("_") and _root(func.value) == name:
                yield node, None, ()


def _part(target: ast.AST, name: str) -> Path | None:
    """Which part of the value a name in a target gets."""
    if isinstance(target, ast.Name):
        return () if target.id == name else None
    if isinstance(target, (ast.Tuple, ast.List)):
        for place, element in enumerate(target.elts):
            found = _part(element, name)
            if found is not None:
                return (place, *found)
    return None


def _is_inside(target: ast.AST, name: str) -> bool:
    """Whether a target is a part of what a name means: name[...] = ..., name.attribute = ..."""
    return isinstance(target, (ast.Subscript, ast.Attribute)) and _root(target) == name


def _root(node: ast.AST) -> str:
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _from_caller(name: str, function: Any, scope: Scope, path: Path, deep: int) -> Iterator[Line]:
    """The lines behind a parameter: what its caller gave for it."""
    if name in scope.given:
        value, outer = scope.given[name]
        yield from behind(value, outer, path, deep - 1)
        return
    around = scope_of(scope.stack, 1)
    call = scope.stack[1].call() if around is not None else None
    if around is None or call is None:
        return
    yield Line(around.source, around.source.statement(call))
    if not scope.stack[0].is_direct:  # a library stands between: it was handed the data
        if name != "self":
            yield from _handed(call, around, path, deep - 1)
        return
    order = [one for one in _parameters(function) if one != "self"]
    position = order.index(name) if name in order else -1
    for one in call.keywords:
        if one.arg == name:
            yield from behind(one.value, around, path, deep - 1)
            return
    plain = [one for one in call.args if not isinstance(one, ast.Starred)]
    if 0 <= position < len(plain):
        yield from behind(plain[position], around, path, deep - 1)
    else:
        for one in call.keywords:
            if one.arg is None:
                yield from behind(one.value, around, (name, *path), deep - 1)
