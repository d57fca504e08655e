"""How a kernel's arguments look to machine code: the types that it is compiled for, and the words that it reads.

numba passes every part of an argument by itself: an array as (owner, parent, elements, bytes of an element, address,
shape, strides), a tuple as its items. So 20 arguments are 100, and Python cannot call that. The glue of a kernel is a
function `run(words, start, stop)`: the range of rows that every kernel's arguments begin with, and one word for each
other number and array. An array's word is the address of numpy's own description of it (public, and the same in all
versions); words are true as long as the arrays live, and are made once in a plan.

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
_IN_LLVM = {INT: "i64", BOOL: "i8", FLOAT32: "float", FLOAT64: "double"}
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


def _parts(types: Types) -> list[str]:
    """What the words are, in order: letters of numbers, and arrays."""
    return [part for kind in types for part in (_parts(kind) if isinstance(kind, tuple) else [kind])]


def memory(types: Types) -> struct.Struct:
    """How words lie in memory."""
    return struct.Struct("".join(_PACKED.get(part, "q") for part in _parts(types)))


def numba_type(kind: Any) -> Any:
    """The compiler's own name of a type."""
    from numba import from_dtype, types

    if isinstance(kind, tuple):
        return types.Tuple([numba_type(item) for item in kind])
    if kind in _IN_LLVM:
        return {INT: types.int64, BOOL: types.boolean, FLOAT32: types.float32, FLOAT64: types.float64}[kind]
    return types.Array(from_dtype(np.dtype(kind[0])), int(kind[1:-1]), kind[-1])


# What compiled kernels ask of numba's runtime for the arrays that they make: a header (references, destructor and its
# argument, address, size, allocator) and memory behind it. The functions that give and take memory are Python's. numba
# asks for 32 bytes of alignment; a vector of 64 that crosses two lines of the cache costs two reads, so it gets 64.
_MEMORY = """
declare i64 @llvm.umax.i64(i64, i64)
@give = global ptr null
@take = global ptr null

define ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 %align) {
  %asked = zext i32 %align to i64
  %wide = call i64 @llvm.umax.i64(i64 %asked, i64 64)
  %more = add i64 %wide, 48
  %all = add i64 %size, %more
  %get = load ptr, ptr @give
  %header = call ptr %get(i64 %all)
  %none = icmp eq ptr %header, null
  br i1 %none, label %end, label %fill
fill:
  %address = ptrtoint ptr %header to i64
  %behind = add i64 %address, %more
  %over = urem i64 %behind, %wide
  %aligned = sub i64 %behind, %over
  %data = inttoptr i64 %aligned to ptr
  store { i64, ptr, ptr, ptr, i64, ptr } zeroinitializer, ptr %header
  store i64 1, ptr %header
  %data_at = getelementptr i64, ptr %header, i64 3
  store ptr %data, ptr %data_at
  %size_at = getelementptr i64, ptr %header, i64 4
  store i64 %size, ptr %size_at
  br label %end
end:
  ret ptr %header
}

define void @NRT_MemInfo_call_dtor(ptr %header) {
  %free = load ptr, ptr @take
  call void %free(ptr %header)
  ret void
}
"""


# Where numpy's description of an array (PyArrayObject) has its address, shape and strides.
_HEADER = object.__basicsize__
_DATA, _SHAPE, _STRIDES = _HEADER, _HEADER + 16, _HEADER + 24


def glue(types: Types, symbol: str) -> str:
    """The module of `run(words, start, stop) -> status` that calls the kernel `symbol`."""
    lines: list[str] = []
    passed = ["i64 %start", "i64 %stop"]

    def load(kind: str, memory: str, offset: int) -> str:
        name = f"%v{len(lines)}"
        lines.append(f"  {name}p = getelementptr i8, ptr {memory}, i64 {offset}\n  {name} = load {kind}, ptr {name}p")
        return f"{kind} {name}"

    def product(factors: list[str]) -> str:
        result = "1"
        for factor in factors:
            lines.append(f"  %v{len(lines)} = mul i64 {result}, {factor.split()[1]}")
            result = f"%v{len(lines) - 1}"
        return f"i64 {result}"

    for at, part in enumerate(_parts(types)):
        word = load(_IN_LLVM.get(part, "ptr"), "%words", 8 * at)
        if part in _IN_LLVM:
            passed.append(word)
            continue
        array = word.split()[1]
        data, shape, strides = (load("ptr", array, offset) for offset in (_DATA, _SHAPE, _STRIDES))
        sizes, steps = (
            [load("i64", memory.split()[1], 8 * i) for i in range(int(part[1:-1]))] for memory in (shape, strides)
        )
        itemsize = f"i64 {np.dtype(part[0]).itemsize}"
        passed += ["ptr null", "ptr null", product(sizes), itemsize, data, *sizes, *steps]
    kinds = ", ".join(["ptr", "ptr", *[text.split()[0] for text in passed]])
    return "\n".join(
        [
            f'declare i32 @"{symbol}"({kinds})',
            "define i32 @run(ptr %words, i64 %start, i64 %stop) {",
            "  %ret = alloca ptr",
            "  %exc = alloca ptr",
            *lines,
            f'  %status = call i32 @"{symbol}"({", ".join(["ptr %ret", "ptr %exc", *passed])})',
            "  ret i32 %status",
            "}",
            _MEMORY,
        ]
    )
