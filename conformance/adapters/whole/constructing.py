"""What calls in the user's files give, and calls of constructors with the arguments that such a call shows.

Nothing is constructed but modules and configs, and no function of the user's is run: what one returns is read from its
syntax, and so are the defaults that argparse would give.
"""

from __future__ import annotations

import argparse
import ast
import copy
import functools
import inspect
import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from textwrap import dedent
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import nn

from conformance.adapters.inference.construct import CONFIGS
from conformance.adapters.whole import needing
from conformance.adapters.whole.class_source import source_of
from conformance.adapters.whole.classmethods import is_classmethod, is_maker, name_of, returns_its_class
from conformance.adapters.whole.configs import may_construct
from conformance.adapters.whole.evaluate import BUILTINS, Written
from conformance.adapters.whole.returning import Returns
from conformance.adapters.whole.sizes import Sized, Unknown, meaning, plain
from conformance.adapters.whole.syntax import Scope, Source
from conformance.adapters.whole.usage import Surroundings

_MAX_SHOWN = 50
_SETTING = 16
"""A number of a config whose name says nothing."""
_STAYS = ("to", "cuda", "cpu", "eval", "train", "half", "float", "double", "requires_grad_", "apply")
"""Methods of a module that return the module."""
_WRAPPERS = ("DataParallel", "DistributedDataParallel", "compile")
_TENSORS = (torch.tensor, torch.zeros, torch.ones, torch.arange, torch.eye, torch.full, torch.randn, torch.rand)
_PURE = (copy.deepcopy, copy.copy, functools.partial, *_TENSORS)
_OPTION = "add_argument("
_HOLDERS = (nn.ModuleList, nn.ModuleDict)
"""What holds other modules: one that holds nothing would make another model."""


def _shown(name: str, value: Any) -> str:
    if isinstance(value, (int, float, str, list, tuple, dict, type(None))) and len(repr(value)) < _MAX_SHOWN:
        return f"{name}={value!r}"
    called = value.__name__ if isinstance(value, type) else f"{type(value).__name__}(...)"
    return f"{name}={called}"


def _by_name(bound: inspect.BoundArguments) -> dict[str, Any]:
    """The arguments by name, those of ``**kwargs`` among them."""
    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        found |= value if bound.signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD else {name: value}
    return found


def _whole_patches(name: str, value: Any, signature: inspect.Signature) -> Any:
    """A guessed side of images, enlarged until the patches of the constructor's defaults divide it."""
    if meaning(name) != "image" or type(value) not in (int, Sized):
        return value
    defaults = {p.name: p.default for p in signature.parameters.values()}
    patches = [size for key, size in defaults.items() if meaning(key) == "patch" and type(size) is int and size > 0]
    step = math.lcm(*patches)
    return -(-value // step) * step


def _only_drops(signature: inspect.Signature) -> bool:
    """Whether all that a constructor takes are rates of dropout."""
    return bool(signature.parameters) and all(meaning(name) == "dropout" for name in signature.parameters)


def _beside_its_file(made_by: Any, value: Any) -> str | None:
    """A path that is meant from the folder of the code that takes it, where a script of that folder runs; None for one
    that is found from here, and for what is no path."""
    if not isinstance(value, str) or "/" not in value or os.path.exists(value):
        return None
    with suppress(OSError, TypeError):
        path = Path(inspect.getfile(made_by)).parent / value
        return str(path.resolve()) if path.is_file() else None
    return None


@functools.cache
def _in_place_of_none(made_by: Any, name: str) -> int | None:
    """The size that a class's own code takes where a parameter is None: ``width or 512``, ``512 if width is None``."""
    source = source_of(made_by) if isinstance(made_by, type) else None
    for node in ast.walk(ast.parse(dedent(source[0]))) if source else ():
        first, other = None, None
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            first, other = node.values[0], node.values[-1]
        elif isinstance(node, ast.IfExp):
            parts = (node.body, node.orelse)
            first, other = parts if isinstance(node.body, ast.Name) else parts[::-1]
        if isinstance(first, ast.Name) and first.id == name and isinstance(other, ast.Constant):
            return other.value if type(other.value) is int else None
    return None


Words = dict[str, Any]
"""Arguments by their names."""


class _Later:
    """An argument that is evaluated when it is known which parameter takes it."""

    def __init__(self, node: ast.expr, scope: Scope) -> None:
        self.node, self.scope = node, scope


class Constructions(Returns):
    """Constructs with the arguments that syntax shows. `shown` is the last call as a person would write it, `given` are
    its arguments, with the defaults."""

    shown = ""
    given: Mapping[str, Any] = {}

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
        """Call with values (or expressions), each under its parameter's name; defaults are sized, too.

        A class is no part of itself: the ffn of FFN(dim, ffn) is a number.
        """
        self._active.append(made_by)
        try:
            return self._called(made_by, given, words)
        finally:
            self._active.pop()

    def _called(self, made_by: Callable[..., Any], given: list[Any], words: Mapping[str, Any]) -> Any:
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
                self._settle(made_by, bound, parameter)
            if name not in bound.arguments and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                if parameter.default is parameter.empty:
                    needed = self._needed(made_by, name, parameter.annotation, bound.arguments)
                    bound.arguments[name] = plain(_whole_patches(name, needed, signature))
                elif parameter.default is None and self.sizing.puts_in and name.lower() in CONFIGS:
                    with suppress(Unknown):
                        bound.arguments[name] = plain(self.part(name, parameter.annotation))  # else it makes its own
                elif parameter.default is None and _only_drops(signature):
                    bound.arguments[name] = plain(self.guess(name))  # without a rate it cannot be trained
                elif (sized := self.resized(name, parameter.default)) is not parameter.default:
                    bound.arguments[name] = plain(sized)
                elif parameter.default is None and (written := _in_place_of_none(made_by, name)) is not None:
                    sized = self.resized(name, written)
                    bound.arguments |= {name: plain(sized)} if sized is not written else {}
            if (path := _beside_its_file(made_by, bound.arguments.get(name, parameter.default))) is not None:
                bound.arguments[name] = path
            if parameter.kind is parameter.VAR_KEYWORD:
                given_rest = bound.arguments.get(name, {})
                handed_on = self._handed_on(made_by, name, given_rest)
                read = needing.words_needed(self, made_by, name, {**handed_on, **given_rest, **bound.arguments})
                bound.arguments[name] = {**read, **handed_on, **given_rest}
        # the signature's own order: what was added stands behind what was given
        bound.arguments = {name: bound.arguments[name] for name in signature.parameters if name in bound.arguments}
        self.given = _by_name(bound)
        shown = ", ".join(_shown(name, value) for name, value in self.given.items())
        told = f"{name_of(made_by) if hasattr(made_by, '__name__') else made_by}({shown})"
        self.shown = told
        made = made_by(*bound.args, **bound.kwargs)
        self.shown = told  # it may have called a function for a part
        bound.apply_defaults()
        self.given = _by_name(bound)
        # Scaled arguments have scaled what follows from them: its fields must not be scaled again.
        return self.passed(made) if shown and self.sizing.head_width else self.sized(made)

    def _needed(self, made_by: Any, name: str, annotation: Any, given: Mapping[str, Any]) -> Any:
        """What a parameter gets that nothing shows; of a config also a number whose name says nothing."""
        try:
            return needing.needed(self, made_by, name, annotation, given)
        except Unknown:
            is_setting = isinstance(made_by, type) and not issubclass(made_by, nn.Module) and may_construct(made_by)
            if self.strict or not is_setting or annotation not in (int, "int"):
                raise
            return _SETTING

    def _handed_on(self, made_by: Any, rest: str, given: Mapping[str, Any], on_the_way: tuple[Any, ...] = ()) -> Words:
        """What the constructor hands on as ``**rest`` to another that requires it, or hands it on in turn, beyond what
        is given; also that one's defaults, where they are sized."""
        init = getattr(made_by, "__init__", None) if isinstance(made_by, type) else made_by
        inside = self.around.scope_of(init) if isinstance(init, FunctionType) else None
        found: dict[str, Any] = {}
        for call in ast.walk(inside.node) if inside is not None else ():
            hands_on = isinstance(call, ast.Call) and any(
                word.arg is None and isinstance(word.value, ast.Name) and word.value.id == rest
                for word in call.keywords
            )
            if inside is None or not isinstance(call, ast.Call) or not hands_on:
                continue
            try:
                is_super = ast.unparse(call.func) == "super().__init__" and isinstance(made_by, type)
                taken_by = made_by.__bases__[0] if is_super else self.value(call.func, inside)
                parameters = list(inspect.signature(taken_by).parameters.values())[len(call.args) :]
            except (Unknown, TypeError, ValueError):
                continue
            named = {word.arg for word in call.keywords} | given.keys()
            for parameter in parameters:
                name, default = parameter.name, parameter.default
                if name in named or parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                    continue
                if default is parameter.empty:
                    found[name] = plain(self.part(name, parameter.annotation))
                elif (sized := self.resized(name, default)) is not default:
                    found[name] = plain(sized)
            further = next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), "")
            if further and taken_by not in (made_by, *on_the_way):
                taken = dict.fromkeys(name for name in (*named, *(p.name for p in parameters)) if name)
                found |= self._handed_on(taken_by, further, {**given, **taken, **found}, (*on_the_way, made_by))
        return found

    def _settle(self, made_by: Any, bound: inspect.BoundArguments, parameter: inspect.Parameter) -> None:
        name, value = parameter.name, bound.arguments[parameter.name]
        if parameter.kind is parameter.VAR_POSITIONAL:
            bound.arguments[name] = tuple(self._settled("", item) for item in value)
        elif parameter.kind is parameter.VAR_KEYWORD:
            bound.arguments[name] = {key: self._settled(key, item) for key, item in value.items()}
        else:
            try:
                bound.arguments[name] = self._settled(name, value)
            except Unknown:
                if made_by in _HOLDERS:
                    raise
                if parameter.default is parameter.empty:
                    needed = self._needed(made_by, name, parameter.annotation, bound.arguments)
                    bound.arguments[name] = plain(needed)
                    return
                del bound.arguments[name]
                if parameter.default is None and meaning(name) in ("vocab", "d_model", "classes"):
                    with suppress(Unknown):  # whoever calls it hands a size over
                        bound.arguments[name] = plain(self.guess(name))

    def _settled(self, name: str, value: Any) -> Any:
        if isinstance(value, _Later):
            value = self.value(value.node, value.scope)
        if isinstance(value, Written | Source):
            raise Unknown(name)
        return plain(self.resized(name, value) if name else value)


class Evaluator(Constructions):
    """The whole evaluator: also what a call gives, by its syntax."""

    def another(self, around: Surroundings) -> Evaluator:
        """One for a part in its own file. It knows what the part is for, so that nothing is made of itself."""
        found = Evaluator(around, self.sizing, self._make)
        found._active = [one for one in self._active if isinstance(one, type)]
        return found

    def _settled(self, name: str, value: Any) -> Any:
        """The value; a function of the files that makes a part is one that syntax tells."""
        if isinstance(value, _Later):
            value = self.value(value.node, value.scope)
        if isinstance(value, Written) and value.scope.function is not None:
            value = self.maker(value.scope, value.scope.function.args, list(value.scope.returned()))
        return super()._settled(name, value)

    def _Lambda(self, node: ast.Lambda, scope: Scope) -> Any:
        return self.maker(scope.source.scope_of(node), node.args, [node.body])

    def maker(self, inside: Scope, arguments: ast.arguments, returned: list[ast.expr]) -> Callable[..., Any]:
        """A function that makes a part whenever a constructor calls it, as its syntax says. Raises Unknown for one that
        does anything else.

        returned: what it returns, the last first.
        """
        if not any(self._is_module(node, inside) for node in returned):
            raise Unknown("a function that makes no module")
        frames, active = list(self._frames), list(self._active)
        names = [argument.arg for argument in [*arguments.posonlyargs, *arguments.args]]

        def make(*given: Any, **words: Any) -> Any:
            before = self._frames, self._active
            values = {**dict(zip(names, given, strict=False)), **words}
            self._frames, self._active = [*frames, (inside, values)], list(active)
            try:
                return self._first_known(returned, inside)
            finally:
                self._frames, self._active = before

        vars(make)["is_told"] = True
        return make

    def _first_known(self, nodes: list[ast.expr], scope: Scope) -> Any:
        """What the first of these expressions gives that syntax tells."""
        for node in nodes:
            with suppress(Unknown):
                return self.value(node, scope)
        raise Unknown("what it returns")

    def part(self, name: str, annotation: Any = inspect.Parameter.empty) -> Any:
        """Also options that nothing hands over, as the files' own parser has them by default."""
        try:
            return super().part(name, annotation)
        except Unknown:
            if self.strict or name.lower() not in CONFIGS or (parser := self._parser()) is None:
                raise
            return self._parsed_arguments(parser)

    def _parser(self) -> Source | None:
        """The nearest file that says which options there are."""
        return next((source for source in self.around.sources if _OPTION in source.text), None)

    def _Call(self, node: ast.Call, scope: Scope) -> Any:
        if isinstance(node.func, ast.Attribute):
            if node.func.attr in ("parse_args", "parse_known_args"):
                parser = scope.source if _OPTION in scope.source.text else self._parser()  # a test asks for another's
                parsed = self._parsed_arguments(parser or scope.source)
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
        if self.runs and callable(function):
            return self.construct(function, node, scope)
        if isinstance(function, Written):
            return self.returned(function.scope, node, scope)
        if getattr(function, "is_told", False):
            return self._plain_call(function, node, scope)
        if inspect.isroutine(function) and function in _PURE:
            return self._plain_call(function, node, scope)
        if isinstance(function, (FunctionType, MethodType)):
            inside = self.around.scope_of(function.__func__ if isinstance(function, MethodType) else function)
            if inside is None:
                raise Unknown(ast.unparse(node))
            return self.returned(inside, node, scope, function)
        if isinstance(function, type) and may_construct(function):
            return self.construct(function, node, scope)
        if function not in (*_PURE, *BUILTINS) and getattr(function, "__module__", "") != "math":
            raise Unknown(ast.unparse(node))
        return self._plain_call(function, node, scope)

    def _plain_call(self, function: Callable[..., Any], node: ast.Call, scope: Scope) -> Any:
        if function is len and any(isinstance(a, ast.Name) and scope.grows(a.id) for a in node.args):
            raise Unknown(ast.unparse(node))
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
                    value = self.guess(name) if "type" in words or "required" in words else None
            except Unknown:
                value = None
            setattr(found, name, plain(self.sizing.of(name, value)))
        return self.passed(found)

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
        if is_maker(made_by):
            further = self.around.scope_of(made_by)
            if further is None or further is scope:
                return False
            return (is_classmethod(made_by) and returns_its_class(further)) or self.makes_module(further)
        return isinstance(made_by, type) and issubclass(made_by, nn.Module)
