"""Copies of Python functions that see other globals; the originals, and their modules, are never changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType
from typing import Any


def clone(
    function: FunctionType,
    replace: Callable[[str, Any], Any],
    wrap: Callable[[FunctionType], Any] = lambda copy: copy,
) -> FunctionType:
    """A copy of `function` in which every global and closure name that it uses is `replace(name, value)`.

    Python functions among them that `replace` leaves as they are, are cloned too, each once, and `wrap` of the copy is
    put in their place. Names behind a dot (`module.function`) are not seen.
    """
    return _clone(function, replace, wrap, {})


def _clone(
    function: FunctionType,
    replace: Callable[[str, Any], Any],
    wrap: Callable[[FunctionType], Any],
    done: dict[int, Any],
) -> FunctionType:
    def seen(name: str, value: Any) -> Any:
        new = replace(name, value)
        if new is value and isinstance(value, FunctionType):
            if id(value) not in done:
                done[id(value)] = wrap(_clone(value, replace, wrap, done))
            return done[id(value)]
        return new

    names = {"__builtins__": function.__globals__["__builtins__"], "__name__": function.__module__}
    names.update({n: seen(n, function.__globals__[n]) for n in _names(function.__code__) if n in function.__globals__})
    cells = tuple(
        CellType(seen(name, cell.cell_contents))
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    )
    copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__, cells)
    copy.__kwdefaults__, copy.__doc__, copy.__qualname__ = (
        function.__kwdefaults__,
        function.__doc__,
        function.__qualname__,
    )
    copy.__module__ = function.__module__
    return copy


def _names(code: CodeType) -> Iterator[str]:
    """Names that `code`, and functions or comprehensions inside of it, may look up."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
