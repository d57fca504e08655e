"""What stands in a file without a model, such as a loop that trains or a function that writes, and the model for it.

A repository often keeps its model in one file and what works with it in others. Whoever points at `generate.py` means
its functions: they are tried with the model that their file imports, or that is handed to them where they are called.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

from torch import nn

from conformance.adapters.whole.usage import surroundings

_BESIDE: dict[str, list[Callable[..., Any]]] = {}
"""Module of a model -> functions of other files that were pointed at and take it."""


@dataclass(frozen=True)
class Guest:
    """A function or class that was pointed at; with `all_of_it` whatever stands in its file."""

    found: Any
    all_of_it: bool = False

    @property
    def module(self) -> ModuleType:
        return sys.modules[self.found.__module__]

    @property
    def neighbours(self) -> list[Any]:
        """All functions and classes of its file."""
        own = [one for one in vars(self.module).values() if getattr(one, "__module__", "") == self.module.__name__]
        return [one for one in own if isinstance(one, FunctionType | type)]

    @property
    def functions(self) -> list[FunctionType]:
        return [one for one in self.neighbours if isinstance(one, FunctionType) and self.is_meant(one)]

    def is_meant(self, one: Any) -> bool:
        """Whether something of its file is what was pointed at, or made of that."""
        return (
            self.all_of_it
            or any(inner is self.found for inner in (one, type(getattr(one, "__self__", None))))
            or (getattr(one, "__wrapped__", None) is self.found)
        )

    def models(self) -> Iterator[type[nn.Module]]:
        """The classes that may be the model it works with: those that its parameters name, those that its file imports,
        and those of the files that call it, or what stands beside it in its file."""
        around = surroundings(self.module)
        asked = [one for function in self.functions for one in inspect.signature(function).parameters.values()]
        called = dict.fromkeys([*(self.functions or [self.found]), *self.neighbours])
        callers = [usage.scope.source for one in called for usage in around.usages(one)]
        modules = [self.module, *filter(None, map(around.imported, dict.fromkeys(callers)))]
        offered = [
            *(one.annotation for one in asked),
            *(value for module in modules for value in reversed(vars(module).values())),
        ]
        yield from dict.fromkeys(
            one
            for one in offered
            if isinstance(one, type) and issubclass(one, nn.Module) and one is not nn.Module and around.is_users(one)
        )


def stand_beside(model: type[nn.Module], guest: Guest) -> None:
    """From now on the functions of a guest are among those that take this model."""
    _BESIDE[model.__module__] = list(guest.functions)


def functions_around(module: nn.Module) -> dict[str, Any]:
    """What the file of a model holds, by name, and the functions that were pointed at in other files."""
    name = type(module).__module__
    guests = {one.__name__: one for one in _BESIDE.get(name, ())}
    return {**vars(sys.modules.get(name, SimpleNamespace())), **guests}
