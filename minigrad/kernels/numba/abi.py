"""How a kernel's arguments look to machine code: the types that it is compiled for, and the words that it reads.

numba passes every part of an argument by itself: an array as (owner, parent, elements, bytes of an element, address,
shape, strides), a tuple as its items. So 20 arguments are 100, and Python cannot call that. The glue of a kernel is a
function `run(words, start, stop)` that reads them from one block of memory, which is made once in a plan.

A type is a letter for a number, `f2C` for an array (numpy's letter, dimensions, layout), a tuple for a tuple. Arrays
that are read-only count as all others do: no kernel writes to what it reads.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

INT, BOOL, FLOAT32, FLOAT64 = "i", "b", "s", "d"
Types = tuple[Any, ...]

_IN_LLVM = {INT: "i64", BOOL: "i8", FLOAT32: "float", FLOAT64: "double"}
_PACKED = {INT: "q", BOOL: "q", FLOAT32: "f4x", FLOAT64: "d"}
_RANGE = (INT, INT)


class Arguments(NamedTuple):
    """What a kernel is called with: types of all arguments, the range that the first two give (where they are
    integers), and the words of the others."""

    types: Types
    start: int
    stop: int
    words: bytes


def arguments(values: Sequence[Any]) -> Arguments:
    """Raises TypeError for a value that no kernel takes."""
    types: list[Any] = []
    words: list[Any] = []
    _read(values, types, words)
    start, stop = 0, 0
    kinds = tuple(types)
    if kinds[:2] == _RANGE:
        start, stop, *words = words
    return Arguments(kinds, start, stop, _packer(kinds).pack(*words))


def _read(values: Sequence[Any], types: list[Any], words: list[Any]) -> None:
    for value in values:
        if isinstance(value, np.ndarray):
            flags = value.flags
            layout = "C" if flags.c_contiguous else "F" if flags.f_contiguous else "A"
            types.append(f"{value.dtype.char}{value.ndim}{layout}")
            words += (value.size, value.__array_interface__["data"][0], *value.shape, *value.strides)
        elif isinstance(value, tuple):
            inside: list[Any] = []
            _read(value, inside, words)
            types.append(tuple(inside))
        elif isinstance(value, bool | np.bool_):
            types.append(BOOL)
            words.append(int(value))
        elif isinstance(value, int | np.int64):
            types.append(INT)
            words.append(int(value))
        elif isinstance(value, np.float32 | float):
            types.append(FLOAT32 if isinstance(value, np.float32) else FLOAT64)
            words.append(value)
        else:
            raise TypeError(f"a kernel takes arrays, tuples and numbers, it was given a {type(value).__name__}")


def _parts(types: Types) -> list[str]:
    """What the words are, in order: letters of numbers, and arrays."""
    return [part for kind in types for part in (_parts(kind) if isinstance(kind, tuple) else [kind])]


def _words(types: Types) -> list[str]:
    return _parts(types[2:] if types[:2] == _RANGE else types)


@cache
def _packer(types: Types) -> struct.Struct:
    return struct.Struct("".join(_PACKED.get(part) or f"{2 + 2 * int(part[1:-1])}q" for part in _words(types)))


def numba_type(kind: Any) -> Any:
    """The compiler's own name of a type."""
    from numba import from_dtype
    from numba.core import types

    if isinstance(kind, tuple):
        return types.Tuple([numba_type(item) for item in kind])
    if kind in _IN_LLVM:
        return {INT: types.int64, BOOL: types.boolean, FLOAT32: types.float32, FLOAT64: types.float64}[kind]
    return types.Array(from_dtype(np.dtype(kind[0])), int(kind[1:-1]), kind[-1])


# What compiled kernels ask of numba's runtime for the arrays that they make: a header (references, destructor and its
# argument, address, size, allocator) and memory behind it. The functions that give and take memory are Python's.
_MEMORY = """
@give = global ptr null
@take = global ptr null

define ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 %align) {
  %wide = zext i32 %align to i64
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


def glue(types: Types, symbol: str) -> str:
    """The module of `run(words, start, stop) -> status` that calls the kernel `symbol`."""
    lines: list[str] = []
    passed: list[str] = ["i64 %start", "i64 %stop"] if types[:2] == _RANGE else []
    at = 0

    def word(kind: str) -> str:
        nonlocal at
        lines.append(f"  %p{at} = getelementptr i64, ptr %words, i64 {at}")
        lines.append(f"  %w{at} = load {kind}, ptr %p{at}")
        at += 1
        return f"{kind} %w{at - 1}"

    for part in _words(types):
        if part in _IN_LLVM:
            passed.append(word(_IN_LLVM[part]))
        else:
            itemsize = np.dtype(part[0]).itemsize
            passed += ["ptr null", "ptr null", word("i64"), f"i64 {itemsize}", word("ptr")]
            passed += [word("i64") for _ in range(2 * int(part[1:-1]))]
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
