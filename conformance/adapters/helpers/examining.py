"""Which functions of a file are helpers, and what is wrong with them."""

from __future__ import annotations

import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import wraps
from types import FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

from torch import Tensor, nn

from conformance.adapters.helpers import (  # noqa: F401  (they register their kinds)
    boxes,
    collating,
    decoding,
    distilling,
    images,
    infilling,
    losses,
    metrics,
    norms,
    pooling,
    ranking,
    recommending,
    routing,
    scheduling,
    target_masks,
    texts,
    windows,
)
from conformance.adapters.helpers.mending import Edit, mended
from conformance.adapters.helpers.training import Found, is_trainer
from conformance.adapters.helpers.trial import HELPERS, Helper, Trouble
from conformance.places import line_of, short

_ACTS = (
    "open(",
    "subprocess",
    "urlopen",
    "requests.",
    "load_dataset",
    "torch.save",
    "torch.load",
    "input(",
    "argparse",
)
"""What a function that does more than compute says; it is not called."""

_CRITERION = re.compile(r"Loss|Criterion|Objective")


@dataclass(frozen=True)
class Wrong:
    """What is wrong with a function: the claim, the trouble, the line of the function, and the edit that mends it."""

    claim: str
    function: str
    trouble: Trouble
    place: str
    edit: Edit | None


@dataclass
class Examined:
    """tested: the claims that some function of the file was held to, with the functions. wrong: what breaks one."""

    tested: dict[str, list[str]] = field(default_factory=dict)
    wrong: list[Wrong] = field(default_factory=list)
    attributes: None = None
    """No claim applies because there are helpers: each speaks of the functions of its own kind."""

    def add(self, trained: Iterable[Found]) -> None:
        """What is found of functions that train."""
        for one in trained:
            self.tested.setdefault(one.claim, []).append(one.function)
            if one.trouble is not None:
                edit = Edit(0, one.mend)
                self.wrong.append(Wrong(one.claim, one.function, one.trouble, one.place, edit))


def examine(functions: list[Callable[..., Any]]) -> Examined:
    """Hold each function to the kinds of helpers that its name and parameters fit."""
    found = Examined()
    for function in functions:
        for kind in HELPERS:
            if not kind.fits(function.__name__) or acts(function):
                continue
            try:
                troubles = _troubles(kind, function)
            except Exception:  # it is no helper of this kind, or wants what nothing here shows
                continue
            found.tested.setdefault(kind.claim, []).append(function.__name__)
            for trouble in troubles[:1]:
                edit = mended(function, lambda f, k=kind: not _troubles(k, f)) if trouble.certain else None  # type: ignore[misc]
                found.wrong.append(Wrong(kind.claim, function.__name__, trouble, _place(function, edit), edit))
    return found


def acts(function: Callable[..., Any], but: str = "") -> bool:
    """Whether a function does more than compute, but for one thing that it may do."""
    return any(word in _source(function) for word in _ACTS if word != but)


def _troubles(kind: Helper, function: Callable[..., Any]) -> list[Trouble]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(kind.trial(kind.subject(function)))


def _place(function: Callable[..., Any], edit: Edit | None) -> str:
    if edit is None:
        return line_of(_plain(function))
    return f"{short(_plain(function).__code__.co_filename)}:{edit.line}"


def _plain(function: Callable[..., Any]) -> Any:
    """The function behind decorators, of a method, too."""
    return inspect.unwrap(getattr(function, "__func__", function))


def _source(function: Callable[..., Any]) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return ""


def functions_beside(found: Any) -> list[Callable[..., Any]]:
    """The functions of the file that a class, function, method or instance stands in."""
    holder = found if isinstance(found, (type, FunctionType, MethodType)) else type(found)
    module = sys.modules.get(holder.__module__)
    return list(functions_of(module)) if module is not None else []


def classes_beside(found: Any) -> list[type]:
    """The classes of the file that a class, function or instance stands in: losses may be written so."""
    holder = found if isinstance(found, (type, FunctionType, MethodType)) else type(found)
    values = vars(sys.modules.get(holder.__module__, SimpleNamespace())).values()
    return [one for one in values if isinstance(one, type) and one.__module__ == holder.__module__]


def criteria_beside(found: Any) -> list[Callable[..., Any]]:
    """The losses of the file that are modules without parameters, which can be made of their defaults, as functions:
    DistillationLoss is called as distillation_loss."""
    made = []
    for cls in classes_beside(found):
        if issubclass(cls, nn.Module) and _CRITERION.search(cls.__name__):
            with suppress(Exception):  # it wants what nothing here shows
                module = cls()
                if not any(True for _ in module.parameters()):
                    made.append(_as_function(module))
    return made


def _as_function(module: nn.Module) -> Callable[..., Any]:
    @wraps(module.forward)
    def call(*given: Any, **named: Any) -> Any:
        return module(*given, **named)

    call.__name__ = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", type(module).__name__).lower()
    return call


def methods_of(module: nn.Module) -> list[Callable[..., Any]]:
    """The methods that a model has beside its forward and that use none of its parts: a loss of two vectors, the
    choice of words to mask. They are bound to it, and so know its settings."""
    cls = type(module)
    own = {
        name: function
        for name, function in inspect.getmembers(cls, inspect.isfunction)
        if function.__module__ == cls.__module__ and name != "forward" and not name.startswith("__")
    }
    return [getattr(module, name) for name, function in own.items() if not _uses_parts(module, function, own)]


def training_methods_of(module: nn.Module) -> list[Callable[..., Any]]:
    """The methods of a model's own class whose names say that they train it."""
    own = (function for function in vars(type(module)).values() if isinstance(function, FunctionType))
    return [getattr(module, function.__name__) for function in own if is_trainer(function)]


def _uses_parts(module: nn.Module, function: FunctionType, own: Mapping[str, FunctionType]) -> bool:
    source = _source(function)
    body = re.sub(r"(?s)\bdef\b.*?\bself\b", "", source, count=1)
    if not source or re.search(r"\bself\b(?!\.)|\bsuper\s*\(", body):
        return True
    used = (getattr(module, name, None) for name in re.findall(r"\bself\.(\w+)", source))
    return any(isinstance(one, (nn.Module, nn.Parameter, MethodType, Tensor)) for one in used)


def functions_of(module: ModuleType) -> Iterator[Callable[..., Any]]:
    """The functions that a module defines, and the static methods of its classes."""
    for value in list(vars(module).values()):
        if isinstance(value, FunctionType) and inspect.unwrap(value).__module__ == module.__name__:
            yield value
        if isinstance(value, type) and value.__module__ == module.__name__:
            yield from (one.__func__ for one in vars(value).values() if isinstance(one, staticmethod))
