"""The functions of the user's own files that the methods of a class call, directly or through each other."""

from __future__ import annotations

import inspect
from contextlib import suppress
from functools import cache
from types import CodeType, FunctionType


@cache
def used_functions(cls: type) -> tuple[FunctionType, ...]:
    """Functions in the order in which they are met; none of torch's and of installed packages."""
    waiting = [
        one for one in vars(cls).values() if isinstance(one, (FunctionType, staticmethod, classmethod, property))
    ]
    found: dict[FunctionType, None] = {}
    while waiting:
        one = _function(waiting.pop(0))
        if one is None:
            continue
        for name in _names(one.__code__):
            value = one.__globals__.get(name)
            if isinstance(value, FunctionType) and value not in found and _is_of_the_user(value):
                found[value] = None
                waiting.append(value)
    return tuple(found)


@cache
def text_of(function: FunctionType) -> str:
    """The source of a function; "" where there is none."""
    with suppress(OSError, TypeError):
        return inspect.getsource(function)
    return ""


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
