"""A small evaluator of expressions in the user's files: what the arguments of a call would be, without running it.

It knows literals, arithmetic, names and attributes that one can follow to such values, argparse's defaults, and
configs. It constructs nothing but modules and configs, and calls no function of the user's: what one returns is read
from its syntax.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import copy
import functools
import inspect
import operator
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from enum import Enum
from types import FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import nn

from conformance.adapters.inference.construct import CONFIGS
from conformance.adapters.whole.sizes import Sized, Sizing, Unknown, plain, small
from conformance.adapters.whole.syntax import Binding, Scope, Source
from conformance.adapters.whole.usage import Surroundings

MAX_DEPTH = 60
"""Expressions that lead on more often are given up."""

_BUILTINS = {
    "True",
    "False",
    "None",
    "int",
    "float",
    "str",
    "bool",
    "dict",
    "list",
    "tuple",
    "set",
    "len",
    "max",
    "min",
}
_BUILTINS |= {"range", "sum", "abs", "round", "sorted", "zip", "enumerate", "pow", "divmod"}
_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    **{ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv},
    **{ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.USub: operator.neg, ast.UAdd: operator.pos},
    **{ast.Not: operator.not_, ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le},
    **{ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not},
    **{ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b, ast.BitOr: operator.or_},
}
_STAYS = ("to", "cuda", "cpu", "eval", "train", "half", "float", "double", "requires_grad_", "apply")
"""Methods of a module that return the module."""
_WRAPPERS = ("DataParallel", "DistributedDataParallel", "compile")
_CONFIG_NAME = re.compile(r"config|cfg|conf$|args|param|option|setting|namespace|edict|attrdict|dotdict|^CN$", re.I)
_TENSORS = (torch.tensor, torch.zeros, torch.ones, torch.arange, torch.eye, torch.full, torch.randn, torch.rand)
_PURE = (copy.deepcopy, copy.copy, functools.partial, *_TENSORS)


class Options(dict):
    """Settings as attributes and as items, as the config objects of many files are."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __deepcopy__(self, memo: dict[int, Any]) -> Options:
        return Options(copy.deepcopy(dict(self), memo))


class Evaluator:
    """Evaluates for one construction: equal names give the same object, sizes pass through `sizing`.

    make: makes an instance of a class that is needed as a part (`making`'s ladder).
    strict: what syntax does not tell is Unknown, and never guessed by its name.
    """

    def __init__(
        self, around: Surroundings, sizing: Sizing, make: Callable[[Any, Evaluator], Any], strict: bool = False
    ) -> None:
        self.around = around
        self.sizing = sizing
        self.strict = strict
        self._make = make
        self._frames: list[tuple[Scope, dict[str, Any]]] = []
        self._known: dict[Any, Any] = {}
        self._active: list[Any] = []
        self._depth = 0

    # --- expressions ------------------------------------------------------------------------------

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
            found = self._guess(name)
        return self.sizing.of(name, found)

    def _guess(self, name: str, annotation: Any = inspect.Parameter.empty) -> Any:
        if self.strict:
            raise Unknown(name)
        return self.sizing.of(name, small(name, annotation))

    def _UnaryOp(self, node: ast.UnaryOp, scope: Scope) -> Any:
        return self._apply(node.op, self.value(node.operand, scope))

    def _BinOp(self, node: ast.BinOp, scope: Scope) -> Any:
        if isinstance(node.op, ast.Pow):
            base, power = self.value(node.left, scope), self.value(node.right, scope)
            if abs(power) > 64:
                raise Unknown(ast.unparse(node))
            return base**power
        return self._apply(node.op, self.value(node.left, scope), self.value(node.right, scope))

    def _apply(self, operation: ast.AST, *operands: Any) -> Any:
        if type(operation) not in _OPERATORS:
            raise Unknown(type(operation).__name__)
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
        holder = self.value(node.value, scope)
        return holder[self.value(node.slice, scope)]

    def _NamedExpr(self, node: ast.NamedExpr, scope: Scope) -> Any:
        return self.value(node.value, scope)

    def _ListComp(self, node: ast.ListComp, scope: Scope) -> Any:
        (loop,) = node.generators  # others: ValueError is no case of ours, so
        return [self.value(node.elt, scope) for _ in self.value(loop.iter, scope)]

    _GeneratorExp = _ListComp

    # --- names ------------------------------------------------------------------------------------

    def _Name(self, node: ast.Name, scope: Scope) -> Any:
        name, inner = node.id, scope
        line: int | None = node.lineno
        at: Scope | None = scope
        while at is not None:
            hidden = at.is_class and at is not inner
            binding = None if hidden else at.binding(name, line if at is inner else None, self._active)
            if binding is not None:
                found = self._bound(name, binding, at)
                return self._changed(name, found, binding, at, line if at is inner else None)
            at = at.parent
        return self._global(name, scope.source)

    def _global(self, name: str, source: Source) -> Any:
        for module in (source.module, self.around.module):
            if module is not None and name in vars(module):
                return _constant(vars(module)[name])
        if name in _BUILTINS:
            return getattr(builtins, name)
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
        after = [
            c for c in scope.changes if c.base == name and c.line > binding.line and (line is None or c.line < line)
        ]
        if not after:
            return found
        key = (id(binding), len(self._frames), len(after))
        if key not in self._known:
            found = copy.copy(found)
            for change in after:
                value = self._named(change.key, change.value, scope)
                found = _with(found, change.key, plain(value), change.is_item)
            self._known[key] = found
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
                    argument = _argument(usage.call, node, name, is_method)
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
        if inspect.isclass(annotation) and self.around.is_users(annotation) and _may_construct(annotation):
            return self._make(annotation, self)
        found = class_named_like(name, self.around.module)
        if found is not None:
            return self._make(found, self)
        return self._guess(name, annotation)

    def _import(self, binding: Binding, source: Source) -> Any:
        if source.module is not None:
            held = vars(source.module)
            name = next((n for n, bs in source.top.bindings.items() if binding in bs), binding.name or binding.module)
            if name in held:
                return _constant(held[name])
        imported = _imported(binding.module)
        if binding.name:
            if imported is not None and hasattr(imported, binding.name):
                return _constant(getattr(imported, binding.name))
            held_here = vars(self.around.module).get(binding.name)
            if isinstance(held_here, (type, FunctionType)):
                return held_here
        elif imported is not None:
            return imported
        file = self.around.module_file(binding.module, source) if binding.module else None
        if file is not None:
            return self._member(file, binding.name) if binding.name else file
        raise Unknown(binding.name or binding.module)

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
        return self.sizing.of(node.attr, found) if not isinstance(holder, ModuleType) else _constant(found)

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

    # --- calls ------------------------------------------------------------------------------------

    def _Call(self, node: ast.Call, scope: Scope) -> Any:
        if isinstance(node.func, ast.Attribute):
            if node.func.attr in ("parse_args", "parse_known_args"):
                parsed = self._parsed_arguments(scope.source)
                return parsed if node.func.attr == "parse_args" else (parsed, [])
            if node.func.attr in _STAYS:
                held = self.value(node.func.value, scope)
                if isinstance(held, nn.Module):
                    return held
            if node.func.attr in _WRAPPERS and node.args:
                return self.value(node.args[0], scope)
        function = self.value(node.func, scope)
        if function is torch.device:
            return torch.device("cpu")
        if isinstance(function, Written):
            return self._written(function.scope, node, scope)
        if inspect.isroutine(function) and function in _PURE:
            return self._plain_call(function, node, scope)
        if isinstance(function, (FunctionType, MethodType)):
            inside = self.around.scope_of(function.__func__ if isinstance(function, MethodType) else function)
            if inside is None:
                raise Unknown(ast.unparse(node))
            return self._written(inside, node, scope, function)
        if isinstance(function, type) and _may_construct(function):
            return self.construct(function, node, scope)
        allowed = function in _PURE or (getattr(function, "__module__", "") in ("builtins", "math"))
        if not allowed:
            raise Unknown(ast.unparse(node))
        return self._plain_call(function, node, scope)

    def _plain_call(self, function: Callable[..., Any], node: ast.Call, scope: Scope) -> Any:
        arguments = self._elements(node.args, scope)
        keywords: dict[str, Any] = {}
        for word in node.keywords:
            if word.arg is None:
                keywords |= self.value(word.value, scope)
            else:
                keywords[word.arg] = self._named(word.arg, word.value, scope)
        if function not in (dict, list, tuple, max, min, sum, abs, int):
            return function(*plain(arguments), **plain(keywords))
        found = function(*arguments, **keywords)
        sized = any(type(value) is Sized for value in arguments)
        return Sized(found) if sized and type(found) is int else found

    def _written(self, inside: Scope, node: ast.Call, scope: Scope, function: Any = None) -> Any:
        """What a call of a class or function gives that is read from its syntax."""
        if inside.is_class:
            return self._written_config(inside, node, scope)
        definition = inside.function
        if definition is None:
            raise Unknown(ast.unparse(node))
        bound: dict[str, Any] = {}
        names = [argument.arg for argument in [*definition.args.posonlyargs, *definition.args.args]]
        if inspect.ismethod(function):
            bound[names.pop(0)] = function.__self__
        given = dict(zip(names, node.args, strict=False)) | {word.arg: word.value for word in node.keywords if word.arg}
        for name, argument in given.items():
            bound[name] = self._named(name, argument, scope)
        with self.once(inside):
            self._frames.append((inside, bound))
            try:
                for returned in inside.returned():
                    try:
                        return self.value(returned, inside)
                    except Unknown:
                        continue
            finally:
                self._frames.pop()
        raise Unknown(ast.unparse(node))

    def _written_config(self, inside: Scope, node: ast.Call, scope: Scope) -> Any:
        """An instance of a class that is only written: its fields, what the call gives, what its constructor sets."""
        held = Options()
        fields = [n for n, found in inside.bindings.items() if n[0] != "_" and found[0].kind == "value"]
        for name in fields:
            held[name] = self._Name(ast.Name(name, lineno=sys.maxsize), inside)
        statements = [s.target for s in getattr(inside.node, "body", []) if isinstance(s, ast.AnnAssign)]
        annotated = [target.id for target in statements if isinstance(target, ast.Name)]
        given = dict(zip(annotated, node.args, strict=False)) | {w.arg: w.value for w in node.keywords if w.arg}
        held |= {name: self._named(name, argument, scope) for name, argument in given.items()}
        binding = inside.binding("__init__", None)
        if binding is not None:
            init = inside.source.scope_of(binding.node)
            names = [argument.arg for argument in binding.node.args.args[1:]]
            placed = dict(zip(names, node.args, strict=False)) | {w.arg: w.value for w in node.keywords if w.arg}
            self._frames.append((init, {name: self._named(name, a, scope) for name, a in placed.items()}))
            try:
                held |= {c.key: self._named(c.key, c.value, init) for c in init.changes if c.base == "self"}
            finally:
                self._frames.pop()
        return Options(plain(dict(held)))

    def _parsed_arguments(self, source: Source) -> argparse.Namespace:
        """The defaults of every ``add_argument`` of the file."""
        found = argparse.Namespace()
        for call, scope in source.calls:
            if not (isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"):
                continue
            flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            words = {word.arg: word.value for word in call.keywords}
            long = [flag for flag in flags if flag.startswith("--")] or flags
            name = (
                ast.literal_eval(words["dest"]) if "dest" in words else (long or [""])[0].lstrip("-").replace("-", "_")
            )
            action = words.get("action")
            try:
                if "default" in words:
                    value = self._named(name, words["default"], scope)
                elif isinstance(action, ast.Constant) and action.value in ("store_true", "store_false"):
                    value = action.value == "store_false"
                else:
                    value = self._guess(name) if "type" in words or "required" in words else None
            except Unknown:
                value = None
            setattr(found, name, plain(self.sizing.of(name, value)))
        return found

    def makes_module(self, inside: Scope) -> bool:
        """Whether a function returns a module that it makes (alone or first), by its syntax, and does not train it."""
        calls = [node.func for node in ast.walk(inside.node) if isinstance(node, ast.Call)]
        if any(isinstance(function, ast.Attribute) and function.attr in ("backward", "step") for function in calls):
            return False
        return any(self._is_module(returned, inside) for returned in inside.returned())

    def _is_module(self, node: ast.expr, scope: Scope) -> bool:
        if isinstance(node, ast.Tuple) and node.elts:
            return self._is_module(node.elts[0], scope)
        if isinstance(node, ast.Name):
            binding = scope.binding(node.id, node.lineno)
            return binding is not None and binding.kind == "value" and self._is_module(binding.node, scope)
        if not isinstance(node, ast.Call):
            return False
        if isinstance(node.func, ast.Attribute) and node.func.attr in _STAYS:
            return self._is_module(node.func.value, scope)
        try:
            made_by = self.value(node.func, scope)
        except Unknown:
            return False
        if isinstance(made_by, FunctionType):
            further = self.around.scope_of(made_by)
            return further is not None and further is not scope and self.makes_module(further)
        return isinstance(made_by, type) and issubclass(made_by, nn.Module)

    # --- constructions ----------------------------------------------------------------------------

    def construct(self, made_by: Callable[..., Any], call: ast.Call | None = None, scope: Scope | None = None) -> Any:
        """Call a class or function with what a call in the user's files shows, or without arguments.

        Raises Unknown for an argument that nothing tells; whatever the constructor raises passes through.
        """
        given: list[Any] = []
        words: dict[str, Any] = {}
        if call is not None:
            assert scope is not None
            for node in call.args:
                given += self.value(node.value, scope) if isinstance(node, ast.Starred) else [_Later(node, scope)]
            for word in call.keywords:
                words |= {word.arg: _Later(word.value, scope)} if word.arg else self.value(word.value, scope)
        return self.call(made_by, given, words)

    def call(self, made_by: Callable[..., Any], given: list[Any], words: Mapping[str, Any]) -> Any:
        """Call with values (or expressions), each under its parameter's name; defaults are sized, too."""
        try:
            signature = inspect.signature(made_by)
        except (TypeError, ValueError):
            return made_by(*(self._settled("", v) for v in given), **{k: self._settled(k, v) for k, v in words.items()})
        try:
            bound = signature.bind_partial(*given, **words)
        except TypeError as error:
            raise Unknown(str(error)) from error
        for name, parameter in signature.parameters.items():
            if name in bound.arguments:
                self._settle(bound, parameter)
            elif parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                if parameter.default is parameter.empty:
                    bound.arguments[name] = plain(self.part(name, parameter.annotation))
                elif (sized := self.resized(name, parameter.default)) is not parameter.default:
                    bound.arguments[name] = plain(sized)
        # the signature's own order: what was added stands behind what was given
        bound.arguments = {name: bound.arguments[name] for name in signature.parameters if name in bound.arguments}
        made = made_by(*bound.args, **bound.kwargs)
        return made if isinstance(made, nn.Module) else self._resized_fields(made)

    def _settle(self, bound: inspect.BoundArguments, parameter: inspect.Parameter) -> None:
        name, value = parameter.name, bound.arguments[parameter.name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            bound.arguments[name] = tuple(self._settled("", item) for item in value)
        elif parameter.kind is parameter.VAR_KEYWORD:
            bound.arguments[name] = {key: self._settled(key, item) for key, item in value.items()}
        else:
            try:
                bound.arguments[name] = self._settled(name, value)
            except Unknown:
                if parameter.default is parameter.empty:
                    bound.arguments[name] = plain(self.part(name, parameter.annotation))
                else:
                    del bound.arguments[name]

    def _settled(self, name: str, value: Any) -> Any:
        if isinstance(value, _Later):
            value = self.value(value.node, value.scope)
        if isinstance(value, Written | Source):
            raise Unknown(name)
        return plain(self.resized(name, value) if name else value)

    def resized(self, name: str, value: Any) -> Any:
        """A value under its name; a config with its fields resized, which is a copy where any changes."""
        sized = self.sizing.of(name, value)
        return self._resized_fields(sized) if sized is value and name.lower() in CONFIGS else sized

    def _resized_fields(self, config: Any) -> Any:
        if not is_config(config):
            return config
        held = dict(config) if isinstance(config, Mapping) else _fields(config)
        changed = {key: plain(self.sizing.of(key, value)) for key, value in held.items() if isinstance(key, str)}
        changed = {key: value for key, value in changed.items() if value is not held[key] and value != held[key]}
        if not changed:
            return config
        if isinstance(config, type):
            return type(config.__name__, (config,), changed)
        config = copy.copy(config)
        for key, value in changed.items():
            config = _with(config, key, value, isinstance(config, Mapping))
        return config


class _Later:
    """An argument that is evaluated when it is known which parameter takes it."""

    def __init__(self, node: ast.expr, scope: Scope) -> None:
        self.node, self.scope = node, scope


class Written:
    """A class or function that is known by its syntax only."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope


def is_config(value: Any) -> bool:
    """Whether it is an object (or a class) that holds settings."""
    if isinstance(value, (nn.Module, torch.Tensor, str, int, float, Enum)) or value is None:
        return False
    if isinstance(value, (Mapping, SimpleNamespace, argparse.Namespace)) or is_dataclass(value):
        return True
    cls = value if isinstance(value, type) else type(value)
    return not issubclass(cls, nn.Module) and _is_config_class(cls)


def _is_config_class(cls: type) -> bool:
    """Whether constructing it only stores values: a class that says so by its kind or its name."""
    kinds = (dict, SimpleNamespace, argparse.Namespace, Enum)
    stores = is_dataclass(cls) or issubclass(cls, kinds) or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
    return stores or hasattr(cls, "model_fields") or bool(_CONFIG_NAME.search(cls.__name__))


def _may_construct(cls: type) -> bool:
    return issubclass(cls, nn.Module) or (cls.__module__ != "builtins" and _is_config_class(cls))


def class_named_like(name: str, module: ModuleType) -> type | None:
    """The class of a module that a parameter's name tells: `decoder_layer` DecoderLayer, `config` its only config."""
    wanted = name.lower().replace("_", "")
    classes = {n.lower(): c for n, c in vars(module).items() if isinstance(c, type) and _may_construct(c)}
    classes = {n: c for n, c in classes.items() if c.__module__ not in ("torch.nn", "types", "argparse")}
    if name.lower() in CONFIGS:
        configs = [c for c in dict.fromkeys(classes.values()) if not issubclass(c, nn.Module)]
        return configs[0] if len(configs) == 1 else None
    return classes.get(wanted)


def _constant(value: Any) -> Any:
    """A value of an imported module, as a copy where it could be changed."""
    return copy.deepcopy(value) if isinstance(value, (dict, list, set, SimpleNamespace)) else value


def _imported(name: str) -> ModuleType | None:
    module = sys.modules.get(name)
    if module is None and name:
        alike = [n for n in sys.modules if n.endswith(f".{name}") and "site-packages" not in str(sys.modules[n])]
        module = sys.modules[alike[0]] if len(alike) == 1 else None
    return module


def _argument(call: ast.Call, node: ast.FunctionDef, name: str, is_method: bool) -> ast.expr | None:
    """The expression that a call gives a parameter of a function."""
    names = [argument.arg for argument in [*node.args.posonlyargs, *node.args.args]][is_method:]
    words = {word.arg: word.value for word in call.keywords}
    if name in words:
        return words[name]
    placed = dict(zip(names, call.args, strict=False))
    return placed.get(name) if not any(isinstance(a, ast.Starred) for a in call.args) else None


def _fields(config: Any) -> dict[str, Any]:
    """The fields of a config object, with those of its class."""
    if isinstance(config, tuple):
        return dict(config._asdict())  # type: ignore[attr-defined]
    classes = config.__mro__ if isinstance(config, type) else type(config).__mro__
    held: dict[str, Any] = {}
    for cls in reversed(classes[:-1]):
        held |= {k: v for k, v in vars(cls).items() if not k.startswith("_") and isinstance(v, (int, float))}
    return held if isinstance(config, type) else held | dict(getattr(config, "__dict__", {}))


def _with(holder: Any, key: Any, value: Any, is_item: bool) -> Any:
    if is_item:
        holder[key] = value
    elif isinstance(holder, tuple):
        return holder._replace(**{key: value})  # type: ignore[attr-defined]
    elif is_dataclass(holder):
        object.__setattr__(holder, key, value)
    else:
        setattr(holder, key, value)
    return holder
