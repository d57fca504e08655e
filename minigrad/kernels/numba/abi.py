"""How a kernel's arguments look to machine code: the types that it is compiled for, and the words that it reads.

Machine code is a function `run(words, start, stop)`: the range of rows that every kernel's arguments begin with, and
one word for each other number and array. An array's word is the address of numpy's own description of it (public, and
the same in all versions); words are true as long as the arrays live, and are made once in a plan.

A type is a letter for a number, `f2C` for an array (numpy's letter, dimensions, layout), a tuple for a tuple. Arrays
that are read-only count as all others do: no kernel writes to what it reads.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

INT, BOOL, FLOAT32, FLOAT64 = "i", "b", "s", "d"
Types = tuple[Any, ...]


class ThreadNumber(int):
    """A number that is another one for every thread that takes a part of a kernel in a plan: 0, 1, ..."""


_KINDS = {int: INT, np.int64: INT, bool: BOOL, np.bool_: BOOL, float: FLOAT64, np.float64: FLOAT64, np.float32: FLOAT32,
          ThreadNumber: INT}  # fmt: skip
_PACKED = {INT: "q", BOOL: "?7x", FLOAT32: "f4x", FLOAT64: "d"}


class _Arrays(dict[tuple[str, int, int], str]):
    """The type of an array, by its letter, flags and dimensions."""

    def __missing__(self, key: tuple[str, int, int]) -> str:
        letter, flags, dimensions = key
        self[key] = f"{letter}{dimensions}{'C' if flags & 1 else 'F' if flags & 2 else 'A'}"
        return self[key]


class _Tuples(dict[tuple[type, ...], Types]):
    """The types of a tuple of numbers, by its items' classes; empty where one is no number."""

    def __missing__(self, key: tuple[type, ...]) -> Types:
        self[key] = tuple([_KINDS[kind] for kind in key]) if _KINDS.keys() >= set(key) else ()
        return self[key]


_ARRAYS, _TUPLES = _Arrays(), _Tuples()


def read(values: Sequence[Any], types: list[Any], words: list[Any]) -> None:
    """Append types and words of a kernel's arguments behind its range. Raises TypeError for a value that no kernel
    takes."""
    for value in values:
        if value.__class__ is np.ndarray:
            types.append(_ARRAYS[value.dtype.char, value.flags.num, value.ndim])
            words.append(id(value))
        elif value.__class__ is tuple:
            numbers = _TUPLES[tuple(map(type, value))]
            if numbers:
                types.append(numbers)
                words += value
                continue
            inside: list[Any] = []
            read(value, inside, words)
            types.append(tuple(inside))
        else:
            kind = _KINDS.get(value.__class__)
            if kind is None:
                raise TypeError(f"a kernel takes arrays, tuples and numbers, it was given a {type(value).__name__}")
            types.append(kind)
            words.append(value)


def parts(types: Types) -> list[str]:
    """What the words are, in order: letters of numbers, and arrays."""
    return [part for kind in types for part in (parts(kind) if isinstance(kind, tuple) else [kind])]


def memory(types: Types) -> struct.Struct:
    """How words lie in memory."""
    return struct.Struct("".join(_PACKED.get(part, "q") for part in parts(types)))
