"""A small evaluator of expressions in the user's files: what the arguments of a call would be, without running it.

It knows literals, arithmetic, and the names and attributes that one can follow to such values. What a call gives is
told by `construct`.
"""

from __future__ import annotations

import ast
import builtins
import copy
import inspect
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

from torch import nn

from conformance.adapters.whole.configs import class_named_like, is_config, may_construct, resized, with_value
from conformance.adapters.whole.sizes import Sized, Sizing, Unknown, meaning, plain, small
from conformance.adapters.whole.statements import argument_of, is_vocabulary
from conformance.adapters.whole.syntax import Binding, Scope, Source
from conformance.adapters.whole.usage import Surroundings

MAX_DEPTH = 60
"""Expressions that lead on more often are given up."""
_MAX_REPEATS, _MAX_POWER = 10_000, 64
"""What evaluates to more is no size of a model."""

BUILTINS: tuple[Any, ...] = (
    *(int, float, str, bool, dict, list, tuple, set, range, len, max, min, sum, abs, round, sorted, zip, enumerate),
)
_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv},
    **{ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.USub: operator.neg, ast.UAdd: operator.pos},
    **{ast.Not: operator.not_, ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le},
    **{ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not},
    **{ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b, ast.BitOr: operator.or_},
}


class Expressions:
    """Evaluates for one construction; sizes pass through `sizing` under their names.

    make: makes an instance of a class that is needed as a part (`making`'s ladder).
    strict: what syntax does not tell is Unknown, and never guessed by its name.
    runs: the expression is the user's own, to be run as it is written; else functions are read, not run.
    """

    def __init__(
        self,
        around: Surroundings,
        sizing: Sizing,
        make: Callable[[Any, Any], Any],
        strict: bool = False,
        runs: bool = False,
    ) -> None:
        self.around = around
        self.sizing = sizing
        self.strict = strict
        self.runs = runs
        self._make = make
        self._sized: dict[int, Any] = {}  # the configs whose fields have passed through `sizing`, by their id
        self._frames: list[tuple[Scope, dict[str, Any]]] = []
        self._known: dict[Any, Any] = {}
        self._active: list[Any] = []
        self._depth = 0

    def value(self, node: ast.expr, scope: Scope) -> Any:
        """What an expression gives in a scope. Raises Unknown."""
        evaluate = getattr(self, f"_{type(node).__name__}", None)
        if evaluate is None or self._depth > MAX_DEPTH:
            raise Unknown(ast.unparse(node))
        self._depth += 1
        try:
            return evaluate(node, scope)
        except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
            raise Unknown(ast.unparse(node)) from error
        finally:
            self._depth -= 1

    def _Constant(self, node: ast.Constant, scope: Scope) -> Any:
        return node.value

    def _Tuple(self, node: ast.Tuple, scope: Scope) -> Any:
        return tuple(self._elements(node.elts, scope))

    def _List(self, node: ast.List, scope: Scope) -> Any:
        return self._elements(node.elts, scope)

    def _elements(self, nodes: list[ast.expr], scope: Scope) -> list[Any]:
        found: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                found += self.value(node.value, scope)
            else:
                found.append(self.value(node, scope))
        return found

    def _Dict(self, node: ast.Dict, scope: Scope) -> Any:
        if is_vocabulary(node):
            return ast.literal_eval(node)
        found: dict[Any, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                found |= self.value(value, scope)
            else:
                name = self.value(key, scope)
                found[name] = self._named(name, value, scope)
        return found

    def _named(self, name: Any, node: ast.expr, scope: Scope) -> Any:
        """A value that goes in under a name: guessed by that name where syntax does not tell it."""
        if not isinstance(name, str):
            return self.value(node, scope)
        try:
            found = self.value(node, scope)
        except Unknown:
            found = self.guess(name)
        return self.sizing.of(name, found)

    def guess(self, name: str, annotation: Any = inspect.Parameter.empty) -> Any:
        """A small value by what the name means. Raises Unknown."""
        if self.strict:
            raise Unknown(name)
        return self.sizing.of(name, small(name, annotation))

    def made(self, cls: type) -> Any:
        """An instance of a class of the user's, as a part that something needs. Raises what its constructor raises."""
        return self._make(cls, self)

    def sized(self, config: Any) -> Any:
        """The config with its fields through `sizing`, once only."""
        return config if id(config) in self._sized else self.passed(resized(config, self.sizing))

    def passed(self, config: Any) -> Any:
        """The config, remembered as one whose fields have passed through `sizing`."""
        if is_config(config):
            self._sized[id(config)] = config
        return config

    def _field(self, holder: Any, name: Any, value: Any) -> Any:
        """A field of a config or a module, through `sizing` unless the whole has passed already."""
        if id(holder) in self._sized or isinstance(holder, nn.Module):
            return Sized(value) if type(value) is int else value
        return self.sizing.of(name, value) if isinstance(name, str) else value

    def _UnaryOp(self, node: ast.UnaryOp, scope: Scope) -> Any:
        return self._apply(node.op, self.value(node.operand, scope))

    def _BinOp(self, node: ast.BinOp, scope: Scope) -> Any:
        if isinstance(node.op, ast.Pow):
            base, power = self.value(node.left, scope), self.value(node.right, scope)
            if abs(power) > _MAX_POWER:
                raise Unknown(ast.unparse(node))
            return base**power
        return self._apply(node.op, self.value(node.left, scope), self.value(node.right, scope))

    def _apply(self, operation: ast.AST, *operands: Any) -> Any:
        if type(operation) not in _OPERATORS:
            raise Unknown(type(operation).__name__)
        repeats = isinstance(operation, ast.Mult) and any(isinstance(value, (str, list, tuple)) for value in operands)
        if repeats and any(isinstance(value, int) and value > _MAX_REPEATS for value in operands):
            raise Unknown("a long sequence")
        result = _OPERATORS[type(operation)](*operands)
        return Sized(result) if type(result) is int and any(type(value) is Sized for value in operands) else result

    def _Compare(self, node: ast.Compare, scope: Scope) -> Any:
        values = [self.value(part, scope) for part in (node.left, *node.comparators)]
        return all(
            self._apply(operation, left, right)
            for operation, left, right in zip(node.ops, values, values[1:], strict=False)
        )

    def _BoolOp(self, node: ast.BoolOp, scope: Scope) -> Any:
        wanted = isinstance(node.op, ast.Or)
        for part in node.values:
            found = self.value(part, scope)
            if bool(found) is wanted:
                break
        return found

    def _IfExp(self, node: ast.IfExp, scope: Scope) -> Any:
        try:
            return self.value(node.body if self.value(node.test, scope) else node.orelse, scope)
        except Unknown:
            return self.value(node.orelse, scope)

    def _Subscript(self, node: ast.Subscript, scope: Scope) -> Any:
        holder, key = self.value(node.value, scope), self.value(node.slice, scope)
        return self._field(holder, key, holder[key])

    def _NamedExpr(self, node: ast.NamedExpr, scope: Scope) -> Any:
        return self.value(node.value, scope)

    def _ListComp(self, node: ast.ListComp, scope: Scope) -> Any:
        (loop,) = node.generators  # others: ValueError is no case of ours, so
        return [self.value(node.elt, scope) for _ in self.value(loop.iter, scope)]

    _GeneratorExp = _ListComp

    @contextmanager
    def once(self, what: Any) -> Iterator[None]:
        """Raises Unknown where `what` is already being evaluated."""
        if any(what is active for active in self._active):
            raise Unknown("a name that is made from itself")
        self._active.append(what)
        try:
            yield
        finally:
            self._active.pop()


class Names(Expressions):
    """What names and attributes stand for; equal ones give the same object."""

    def _Name(self, node: ast.Name, scope: Scope) -> Any:
        name, inner = node.id, scope
        line: int | None = node.lineno
        at: Scope | None = scope
        while at is not None:
            hidden = at.is_class and at is not inner
            binding = None if hidden else at.binding(name, line if at is inner else None, self._active)
            if binding is not None:
                found = self._bound(name, binding, at)
                if found == [] and isinstance(found, list) and name in at.growing:
                    raise Unknown(f"{name}, which is filled step by step")
                return self._changed(name, found, binding, at, line if at is inner else None)
            at = at.parent
        return self._global(name, scope.source)

    def _global(self, name: str, source: Source) -> Any:
        for module in (source.module, self.around.module):
            if module is not None and name in vars(module):
                return _constant(vars(module)[name])
        builtin = getattr(builtins, name, None)
        if builtin in BUILTINS:
            return builtin
        raise Unknown(name)

    def _bound(self, name: str, binding: Binding, scope: Scope) -> Any:
        for frame, values in reversed(self._frames):
            if frame is scope and binding.kind == "parameter" and name in values:
                return values[name]
        key = (id(binding), len(self._frames))
        if key not in self._known:
            with self.once(binding):
                found = self._of_binding(name, binding, scope)
            self._known[key] = self.sizing.of(name, found) if len(name) > 1 else found
        return self._known[key]

    def _of_binding(self, name: str, binding: Binding, scope: Scope) -> Any:
        if binding.kind == "value":
            return self.value(binding.node, scope)
        if binding.kind in ("item", "unpack"):
            return list(self.value(binding.node, scope))[binding.index]
        if binding.kind == "parameter":
            return self._parameter(name, binding, scope)
        if binding.kind == "import":
            return self._import(binding, scope.source)
        if binding.kind == "def":
            module = scope.source.module
            if module is not None and scope.parent is None and hasattr(module, name):
                return getattr(module, name)
            return Written(scope.source.scope_of(binding.node))
        raise Unknown(name)

    def _changed(self, name: str, found: Any, binding: Binding, scope: Scope, line: int | None) -> Any:
        """A config with what is set on it between its making and the line."""
        if isinstance(found, nn.Module) or binding.kind != "value":
            return found
        until = sys.maxsize if line is None else line
        after = [c for c in scope.changes if c.base == name and binding.line < c.line < until]
        if not after:
            return found
        key = (id(binding), len(self._frames), len(after))
        if key not in self._known:
            found = copy.copy(self.sized(found))
            for change in after:
                try:
                    value = self._named(change.key, change.value, scope)
                except Unknown:
                    if meaning(str(change.key)) is not None:
                        raise
                    continue  # it says nothing of the model, as `args.n_gpu`
                found = with_value(found, change.key, plain(value), change.is_item)
            self._known[key] = self.passed(found)
        return self._known[key]

    def _parameter(self, name: str, binding: Binding, scope: Scope) -> Any:
        """What a parameter is where the function's own calls show it; else its default, a config, or a guess."""
        is_method = scope.parent is not None and scope.parent.is_class
        node = scope.function
        if name in ("self", "cls") or node is None or (is_method and node.name != "__init__"):
            raise Unknown(name)
        if binding.node is None or is_method:
            for usage in self.around.usages_of_scope(scope):
                try:
                    argument = argument_of(usage.call, node, name, is_method)
                    if argument is not None:
                        return self.value(argument, usage.scope)
                except Unknown:
                    continue
        if binding.node is not None:
            return self.value(binding.node, scope.parent or scope)
        annotation = next(a.annotation for a in [*node.args.args, *node.args.kwonlyargs] if a.arg == name)
        kind = self._annotated(annotation, scope)
        return self.part(name, kind)

    def _annotated(self, annotation: ast.expr | None, scope: Scope) -> Any:
        if annotation is None:
            return inspect.Parameter.empty
        try:
            return self.value(annotation, scope.parent or scope)
        except Unknown:
            return inspect.Parameter.empty

    def part(self, name: str, annotation: Any = inspect.Parameter.empty) -> Any:
        """Something that a parameter needs and no call shows: a config, a module, or a small size. Raises Unknown."""
        if isinstance(annotation, str):
            annotation = vars(self.around.module).get(annotation, inspect.Parameter.empty)
        if inspect.isclass(annotation) and self.around.is_users(annotation) and may_construct(annotation):
            return self.made(annotation)
        found = class_named_like(name, self.around.module)
        if found is not None and not any(found is active for active in self._active):
            return self.made(found)
        held = vars(self.around.module).get(name)  # an object that the file itself calls so: its tokenizer
        if held is not None and not isinstance(held, (type, FunctionType, ModuleType, int, float, str)):
            return held
        if not self.strict and annotation not in (int, float, bool) and (text := self.around.compared_with(name)):
            return text
        return self.guess(name, annotation)

    def _import(self, binding: Binding, source: Source) -> Any:
        if source.module is not None:
            held = vars(source.module)
            name = next((n for n, bs in source.top.bindings.items() if binding in bs), binding.name or binding.module)
            if name in held:
                return _constant(held[name])
        module = self._module(binding.module, source)
        if not binding.name and module is not None:
            return module
        if isinstance(module, ModuleType) and hasattr(module, binding.name):
            return _constant(getattr(module, binding.name))
        held_here = vars(self.around.module).get(binding.name)
        if isinstance(held_here, (type, FunctionType)):
            return held_here
        if isinstance(module, Source):
            is_part = _writes_a_module(module, binding.name)  # of a model that a call builds
            imported = self.around.imported(module, binding.module) if is_part else None
            return getattr(imported, binding.name, None) or self._member(module, binding.name)
        raise Unknown(binding.name or binding.module)

    def _module(self, name: str, source: Source) -> ModuleType | Source | None:
        """What an import finds: a file of the user's, as the module that it is or as syntax; else what is imported."""
        file = self.around.module_file(name, source) if name else None
        return (file.module or file) if file is not None else sys.modules.get(name)

    def _member(self, source: Source, name: str) -> Any:
        """A name of another file, by its syntax."""
        return self._Name(ast.Name(name, lineno=sys.maxsize), source.top)

    def _Attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return self._of_self(node.attr, scope)
        holder = self.value(node.value, scope)
        if isinstance(holder, Source):
            return self._member(holder, node.attr)
        if isinstance(holder, Written):
            if not holder.scope.is_class:
                raise Unknown(ast.unparse(node))
            return self._Name(ast.Name(node.attr, lineno=sys.maxsize), holder.scope)
        found = getattr(holder, node.attr)
        return _constant(found) if isinstance(holder, ModuleType) else self._field(holder, node.attr, found)

    def _of_self(self, name: str, scope: Scope) -> Any:
        """An attribute of the object whose class the scope is in, as its constructor sets it."""
        at: Scope | None = scope
        while at is not None and not at.is_class:
            at = at.parent
        if at is None:
            raise Unknown(name)
        binding = at.binding("__init__", None)
        if binding is not None:
            init = at.source.scope_of(binding.node)
            for change in init.changes:
                if change.base == "self" and change.key == name:
                    with self.once(change):
                        return self.sizing.of(name, self.value(change.value, init))
        return self._Name(ast.Name(name, lineno=sys.maxsize), at)


class Written:
    """A class or function that is known by its syntax only."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope


def _writes_a_module(source: Source, name: str) -> bool:
    """Whether a source defines a class of this name that has a forward."""
    binding = source.top.binding(name, None)
    if binding is None or not isinstance(binding.node, ast.ClassDef):
        return False
    return source.scope_of(binding.node).binding("forward", None) is not None


def _constant(value: Any) -> Any:
    """A value of an imported module, as a copy where it could be changed."""
    return copy.deepcopy(value) if isinstance(value, (dict, list, set, SimpleNamespace)) else value
