"""Constructors: the protocol's options by the names that the field gives to constructor parameters.

A function that makes modules from sizes (``make_model(src_vocab, tgt_vocab, N, d_model, ...)``) is a constructor, too.
Constants of the file that it reads (``n_embd = 384`` above the classes of a lecture) serve as its parameters.
"""

from __future__ import annotations

import ast
import dis
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

import torch
from torch import nn

from conformance.adapters.inference.facts import Fact, Unresolved
from conformance.adapters.inference.names import ALWAYS, CONFIGS, KEPT, OPTIONS, SUPPLIED, assigned, meanings, words_of


def evaluating(module: nn.Module) -> nn.Module:
    """The module, in evaluation mode. A class with a ``train`` of its own often forgets to return the module."""
    set_mode(module, False)
    return module


def set_mode(module: nn.Module, training: bool) -> None:
    """Training or evaluation mode, also where a class's own ``train`` takes data and trains."""
    try:
        module.train(training)
    except TypeError:
        for part in module.modules():
            part.training = training


class Constructor:
    """How to construct with a class or a function: `names` maps an option to the parameters that mean it, `constants`
    to the constants of the file.

    Raises Unresolved when there is a required parameter whose meaning is unknown, or a function without options: it
    may do anything but make a module.
    """

    def __init__(self, cls: Callable[..., Any]) -> None:
        self.cls = cls
        self.names: dict[str, list[str]] = {}
        self.required: set[str] = set()
        self.config_parameter: str | None = None
        self.config_constructor: Constructor | None = None
        self.read: set[str] = set()
        self.lists: set[str] = set()
        unknown: list[str] = []
        parameters = [p for p in _parameters(cls) if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        required = [p for p in parameters if p.default is p.empty]
        meant = assigned(parameter.name for parameter in parameters)
        for parameter in parameters:
            option = meant.get(parameter.name)
            if option == "activation" and (
                inspect.isclass(parameter.default) or isinstance(parameter.default, nn.Module)
            ):
                continue  # it takes a module, not a name: its default is kept
            if "shape" in words_of(parameter.name) or re.match(
                r"(typing\.)?(list|tuple)", f"{parameter.annotation}", re.I
            ):
                self.lists.add(parameter.name)
            if option is not None:
                self.names.setdefault(option, []).append(parameter.name)
                if parameter.default is parameter.empty:
                    self.required.add(option)
            elif parameter.name not in KEPT and parameter.default is parameter.empty:
                unknown.append(parameter.name)
        self.scope: dict[str, Any] = vars(sys.modules.get(cls.__module__, SimpleNamespace()))
        self.constants: dict[str, list[str]] = {}
        for name, option in assigned(sorted(_constants_read(cls, self.scope))).items():
            if option not in self.names and (isinstance(self.scope[name], (int, float)) or option == "device"):
                self.constants.setdefault(option, []).append(name)
        config = next((name for name in unknown if name in CONFIGS), None)
        if config is not None:
            unknown.remove(config)
            self.config_parameter = config
            self.config_constructor = self._config_class(config)
        elif isinstance(cls, type) and len(unknown) == len(required) == 1 and "d_model" not in self.names:
            self.names["d_model"] = [unknown.pop()]
        if unknown and isinstance(cls, type):
            raise Unresolved(
                f"{cls.__name__}'s constructor needs {', '.join(unknown)}, whose meaning is unknown: name a function "
                "that makes it from d_model, n_heads, ..., write a subclass whose constructor takes these names, or a "
                "class with build(role, config)"
            )
        if not isinstance(cls, type) and (unknown or not self.known):
            raise Unresolved(
                f"{cls.__name__} is a function that {_needs(unknown)}: write one around it that makes an nn.Module "
                "from d_model, n_heads, ... by these names, or a class with build(role, config)"
            )

    def _config_class(self, name: str) -> Constructor | None:
        """The class of the config parameter, if it can be constructed by the same names: its annotation, or the config
        class of the same file whose name begins like the class's (BertLayer: BertConfig), or the only one."""
        annotation = next(p.annotation for p in _parameters(self.cls) if p.name == name)
        scope = vars(sys.modules.get(self.cls.__module__, SimpleNamespace()))
        if isinstance(annotation, str):
            scope = {**getattr(vars(self.cls).get("__init__"), "__globals__", {}), **scope}
            annotation = scope.get(annotation)
        unhelpful = (inspect.Parameter.empty, SimpleNamespace, Any)
        if inspect.isclass(annotation) and annotation.__module__ != "builtins" and annotation not in unhelpful:
            return Constructor(annotation)
        configs = {key.removesuffix("Config"): value for key, value in scope.items() if key.endswith("Config")}
        alike = [
            name for name, value in configs.items() if inspect.isclass(value) and self.cls.__name__.startswith(name)
        ]
        if not any(alike) and len(configs) == 1 and name == "config":
            alike = list(configs)
        return Constructor(configs[max(alike, key=len)]) if any(alike) else None

    @property
    def is_shared(self) -> bool:
        """Whether its options are those of a whole model, and not all of this class."""
        return self.config_parameter is not None

    @property
    def known(self) -> set[str]:
        """The options that can be set; of a config without a class, those that making has read so far."""
        own = {*self.names, *self.constants}
        if self.config_parameter is None:
            return own
        return own | (self.config_constructor.known if self.config_constructor else self.read or set(OPTIONS))

    def arguments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values by the names of parameters; a shape, and what is annotated as a list, is a list of one size."""
        given = {name: values[option] for option, names in self.names.items() if option in values for name in names}
        return {name: [value] if name in self.lists else value for name, value in given.items()}

    def make(self, values: Mapping[str, Any]) -> Any:
        """The object, from option values; whatever has no parameter is left out.

        Raises Unresolved when the constructor raises; its refusals of the values (ValueError, assertion) pass through.
        """
        values = {**ALWAYS, **values}
        arguments = self.arguments({**_supplied(values, self.required | {"ff_ratio"}), **values})
        if self.config_parameter is not None:
            values = {"n_heads": 1, **values}  # a config checks the widths of heads even for parts without any
            config = self.config_constructor
            given = config.make(values) if config else _Config({**values, **_supplied(values, OPTIONS)}, self.read.add)
            arguments[self.config_parameter] = given
        constants = {
            name: values[option] for option, names in self.constants.items() if option in values for name in names
        }
        try:
            with _set(self.scope, constants):
                made = self.cls(**arguments)
        except (ValueError, AssertionError):
            raise  # a refusal of these values
        except Exception as error:
            around = "subclass whose constructor" if isinstance(self.cls, type) else "function around it that"
            raise Unresolved(
                f"{self.cls.__name__}({_shown(arguments)}) raised {type(error).__name__}: {error}; write a {around} "
                "takes d_model, n_heads, ... and calls it rightly"
            ) from error
        if not isinstance(self.cls, type) and not isinstance(made, nn.Module):
            raise Unresolved(
                f"{self.cls.__name__} is a function that returns {type(made).__name__}, which is no nn.Module: write "
                "one around it that returns the module alone"
            )
        if constants:
            _keep_set(made, self.scope, constants)
        return made

    def fact(self) -> Fact:
        if self.config_parameter is not None:
            what = self.config_constructor.cls.__name__ if self.config_constructor else "an object with every alias"
            return Fact("constructor", f"{self.config_parameter} = {what}", "the only required parameter is a config")
        shown = [f"{'/'.join(names)} = {option}" for option, names in self.names.items()]
        shown += [f"{'/'.join(names)} of the file = {option}" for option, names in self.constants.items()]
        return Fact("constructor", ", ".join(shown) or "no options", "parameter names")


def _needs(unknown: list[str]) -> str:
    return f"needs {', '.join(unknown)}, whose meaning is unknown" if unknown else "takes no size of a module"


def _parameters(cls: Callable[..., Any]) -> list[inspect.Parameter]:
    """Its parameters; where it hands any keywords on to its base class or to a part, that one's too."""
    parameters = dict(inspect.signature(cls).parameters)
    rest = next((name for name, p in parameters.items() if p.kind is p.VAR_KEYWORD), None)
    if rest is not None and isinstance(cls, type) and (of_part := _handed_on(cls, rest)):
        own = {name: p for name, p in parameters.items() if name != rest}
        return [*own.values(), *(p for name, p in of_part.items() if name not in own)]
    for base in cls.__mro__[1:] if isinstance(cls, type) else ():
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            break
        if base is not nn.Module and "__init__" in vars(base):
            of_base = {name: p for name, p in inspect.signature(base).parameters.items() if name not in parameters}
            parameters = {name: p for name, p in parameters.items() if p.kind is not p.VAR_KEYWORD} | of_base
    return list(parameters.values())


def _handed_on(cls: type, rest: str) -> dict[str, inspect.Parameter]:
    """The parameters of the part that its constructor hands ``**rest`` on to, as in ``self.bert = Encoder(n, **rest)``;
    without those that the call gives itself."""
    init = vars(cls).get("__init__")
    if not isinstance(init, FunctionType):
        return {}
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(init)))
    except (OSError, TypeError, SyntaxError):
        return {}
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            continue
        part = init.__globals__.get(call.func.id)
        hands_on = any(word.arg is None and ast.unparse(word.value) == rest for word in call.keywords)
        if hands_on and isinstance(part, type) and issubclass(part, nn.Module):
            given = {word.arg for word in call.keywords}
            after = list(inspect.signature(part).parameters.values())[len(call.args) :]
            taken = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
            return {p.name: p for p in after if p.name not in given and p.kind in taken}
    return {}


def _supplied(values: Mapping[str, Any], wanted: Collection[str]) -> dict[str, Any]:
    """Values of the options of `wanted` that `values` leaves out; sizes that go with those that it has."""
    width, heads = values.get("d_model", SUPPLIED["d_model"]), values.get("n_heads", 1)
    inner = values.get("d_ff", 2 * width)
    derived = {"d_ff": inner, "ff_ratio": max(2, -(-inner // width)), "d_out": width, "n_kv_heads": heads}
    derived |= dict.fromkeys(("d_k", "d_v"), width // heads)
    vocab = values.get("vocab", SUPPLIED["vocab"])
    derived |= {"src_vocab": vocab, "tgt_vocab": vocab, "dtype": torch.get_default_dtype()}
    return {name: value for name, value in {**SUPPLIED, **derived}.items() if name in wanted and name not in values}


class _Config:
    """A config that has the options under every name, as attributes and as the keys of a dict. `read` is told each
    option that is read."""

    def __init__(self, values: Mapping[str, Any], read: Callable[[str], None]) -> None:
        self._values, self._read = values, read

    def _option(self, name: str) -> str | None:
        return next((option for option in meanings(name) if option in self._values), None)

    def __getitem__(self, name: str) -> Any:
        option = self._option(name)
        if option is None:
            raise KeyError(f"the config has no {name}")
        self._read(option)
        return self._values[option]

    def __getattr__(self, name: str) -> Any:
        if name[0] == "_" or self._option(name) is None:
            raise AttributeError(f"the config has no {name}")
        return self[name]

    def __contains__(self, name: str) -> bool:
        return self._option(name) is not None

    def get(self, name: str, default: Any = None) -> Any:
        option = self._option(name)
        return default if option is None else self[name]

    def __repr__(self) -> str:
        return "<the options under every name>"


# --- constants of a file --------------------------------------------------------------------------


def _constants_read(made_by: Any, scope: Mapping[str, Any]) -> set[str]:
    """The names of the file that a class or function reads and that are neither classes nor functions; what it uses of
    the file's reads them for it."""
    found: set[str] = set()
    seen: list[Any] = []
    rest: list[Any] = [made_by]
    while rest:
        seen.append(used := rest.pop())
        names = scope.keys() & ({} if isinstance(used, type) else _global_names(used.__code__))
        inside = [*used.__bases__, *vars(used).values()] if isinstance(used, type) else [scope[name] for name in names]
        parts = [part for part in inside if isinstance(part, (type, FunctionType)) and part not in seen]
        rest += [part for part in parts if part.__module__ == made_by.__module__]
        found |= names
    return {name for name in found if not isinstance(scope[name], (type, FunctionType))}


def _global_names(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL":
            yield instruction.argval
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _global_names(inner)


@contextmanager
def _set(scope: dict[str, Any], constants: Mapping[str, Any]) -> Iterator[None]:
    before = {name: scope[name] for name in constants}
    scope.update(constants)
    try:
        yield
    finally:
        scope.update(before)


def _keep_set(module: nn.Module, scope: dict[str, Any], constants: Mapping[str, Any]) -> None:
    """Let the module and its parts run with the constants that it was made with: forward may read them, too."""
    entered: list[Any] = []

    def enter(*_: Any) -> None:
        entered.append(_set(scope, constants))
        entered[-1].__enter__()

    def leave(*_: Any) -> None:
        entered.pop().__exit__(None, None, None)

    for part in module.modules():
        part.register_forward_pre_hook(enter)
        part.register_forward_hook(leave, always_call=True)


def _shown(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())
