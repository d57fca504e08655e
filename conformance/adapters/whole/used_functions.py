"""The functions of the user's own files that the methods of a class call, directly or through each other."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from types import CodeType, FunctionType
from typing import Any


@cache
def used_functions(cls: type[object]) -> tuple[FunctionType, ...]:
    """What the methods of a class call, in the order in which it is met; none of torch's and of installed packages."""
    kinds = (FunctionType, staticmethod, classmethod, property)
    methods = [method for one in vars(cls).values() if isinstance(one, kinds) and (method := _function(one))]
    return tuple(dict.fromkeys(called for method in methods for called in functions_called_by(method)))


@cache
def functions_called_by(function: FunctionType) -> tuple[FunctionType, ...]:
    """What a function calls, itself left out."""
    function = inspect.unwrap(function)
    waiting, found = [function], dict.fromkeys([function])
    while waiting:
        one = waiting.pop(0)
        for name in _names(one.__code__):
            value = _function(one.__globals__.get(name))
            if value is not None and value not in found and _is_of_the_user(value):
                found[value] = None
                waiting.append(value)
    return tuple(found)[1:]


@cache
def text_of(function: FunctionType) -> str:
    """The source of a function; "" where there is none."""
    with suppress(OSError, TypeError):
        return inspect.getsource(function)
    return ""


def line_in(function: Callable[..., Any], *patterns: str) -> str:
    """file:line of a function that the first pattern is found in, or the next pattern; else of its first line."""
    plain = _function(function)
    if plain is None:
        return ""
    start, lines = plain.__code__.co_firstlineno, text_of(plain).splitlines()
    for pattern in patterns:
        for number, line in enumerate(lines):
            if re.search(pattern, line.partition("#")[0]):
                return f"{plain.__code__.co_filename}:{start + number}"
    return f"{plain.__code__.co_filename}:{start}"


def _function(one: object) -> FunctionType | None:
    if isinstance(one, property):
        one = one.fget
    one = inspect.unwrap(getattr(one, "__func__", one))  # type: ignore[arg-type]
    return one if isinstance(one, FunctionType) else None


def _names(code: CodeType) -> list[str]:
    """The global names that code reads, also those in the functions and comprehensions inside it."""
    inside = [name for one in code.co_consts if isinstance(one, CodeType) for name in _names(one)]
    return [*code.co_names, *inside]


def _is_of_the_user(function: FunctionType) -> bool:
    return "site-packages" not in function.__code__.co_filename and not function.__module__.startswith("torch.")
