"""Kernels: Python functions whose machine code is loaded from the cache, or compiled by numba, on first use.

`fastmath=True` would let the compiler assume that no NaN or infinity exists; these flags only let it reorder and
contract. numba itself is imported when something has to be compiled, and only then: importing it takes longer than a
small training step with all that comes before it.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from types import FunctionType, ModuleType
from typing import Any

from minigrad import later
from minigrad.kernels import machine
from minigrad.kernels.numba import abi

FLAGS = {"reassoc", "contract", "arcp", "nsz"}

_RUN = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int64)  # gives up the GIL


class Code:
    """A kernel's machine code for one combination of types, `memory` the layout of the words that it reads."""

    def __init__(self, types: abi.Types, objects: Sequence[bytes]) -> None:
        self.memory = abi.memory(types)
        self._engine = machine.link(objects)
        self.address: int = self._engine.get_function_address("run")
        self._run = _RUN(self.address)

    def fails(self, words: Sequence[Any], start: int, stop: int) -> bool:
        """Run it on a range: does it raise an exception, or lack memory?"""
        return self._run(self.memory.pack(*words), start, stop) != 0


class Compilable:
    """A function that numba compiles. Its source is the module's, or `text` where that was generated."""

    def __init__(self, function: Callable[..., Any], flags: set[str], text: str = "") -> None:
        self.py_func, self.flags, self.text = function, flags, text
        self.__name__, self.__module__, self.__doc__ = function.__name__, function.__module__, function.__doc__

    @cached_property
    def numba(self) -> Any:
        """numba's own object. Without wrappers, which only Python would call: they cost a third of the compile time."""
        return self._made("numba", no_cpython_wrapper=True, no_cfunc_wrapper=True)

    @cached_property
    def by_numba(self) -> Any:
        """The same for Python to call, made of what is public in numba."""
        return self._made("by_numba", nogil=True)

    def _made(self, form: str, **options: bool) -> Any:
        import numba

        return numba.njit(_with(self.py_func, form), fastmath=self.flags, error_model="numpy", **options)


class Kernel(Compilable):
    """A compiled kernel `f(start, stop, ...)`, called with arrays, tuples and numbers."""

    def __init__(self, function: Callable[..., Any], flags: set[str], text: str = "") -> None:
        super().__init__(function, flags, text)
        # by types of the arguments behind the range; None where only `by_numba` is to be had
        self.codes: dict[abi.Types, Code | None] = {}

    def __call__(self, start: int, stop: int, *values: Any) -> None:
        code, words = self.on(*values)
        if code is None:
            self.by_numba(start, stop, *values)
        elif code.fails(words, start, stop):
            self.explain(start, stop, *values)

    def on(self, *values: Any) -> tuple[Code | None, list[Any]]:
        """The machine code for arguments like these, and the words that it reads."""
        found: list[Any] = []
        words: list[Any] = []
        abi.read(values, found, words)
        types = tuple(found)
        return self.codes.get(types) or self.code(types), words

    def explain(self, start: int, stop: int, *values: Any) -> None:
        """Raise what is wrong with a call that failed: Python's exception, or else MemoryError."""
        self.py_func(start, stop, *values)
        raise MemoryError(f"the kernel {self.__name__} could not get the memory that it needs")

    def code(self, types: abi.Types) -> Code | None:
        """The machine code for these types, loaded or compiled."""
        later.load("minigrad.kernels.compiler:compile_all")([(self, types)])
        return self.codes[types]


class Intrinsic:
    """What `intrinsic` makes."""

    def __init__(self, define: Callable[..., Any]) -> None:
        self._define = define

    @cached_property
    def numba(self) -> Any:
        from numba.extending import intrinsic

        return intrinsic(self._define)

    @property
    def by_numba(self) -> Any:
        return self.numba


def _with(function: Callable[..., Any], form: str) -> FunctionType:
    """`function` with numba's own objects in the place of ours that it calls."""

    def theirs(value: Any) -> Any:
        return getattr(value, form) if isinstance(value, Compilable | Intrinsic) else value

    around = function.__globals__
    known = {name: theirs(around[name]) for name in function.__code__.co_names if name in around}
    made = FunctionType(
        function.__code__, {**around, **known}, function.__name__, function.__defaults__, function.__closure__
    )
    made.__qualname__ = function.__qualname__
    return made


class _Types:
    """numba's types, imported when an intrinsic asks for one."""

    def __getattr__(self, name: str) -> Any:
        from numba import types as given

        return getattr(given, name)


types: Any = _Types()


def intrinsic(define: Callable[..., Any]) -> Any:
    """A function of kernels that is written in LLVM's language: `define(typing_context, *types)` as numba wants it."""
    return Intrinsic(define)


def kernel(function: Callable[..., Any]) -> Kernel:
    """A compiled kernel `f(start, stop, ...)`.

    Flat arrays are cut to their range first (`x = x[start:stop]`) and indexed from 0: where numba cannot see that an
    index is not negative, it adds a test for counting from the end, and the loop stays scalar (8 times slower).
    """
    return Kernel(function, FLAGS, function.__globals__.get("__source__", ""))


def inline(function: Callable[..., Any]) -> Any:
    """A helper that LLVM inlines into each kernel that calls it. Its own sums keep their order: a range reduction in
    two steps loses its second step where the compiler may reassociate."""
    return Compilable(function, {"contract", "nsz"})


def generated(text: str) -> ModuleType:
    """The module that a generated text defines; its kernels know their source."""
    name = f"minigrad_fused_{hashlib.sha256(text.encode()).hexdigest()[:20]}"
    found = sys.modules.get(name)
    if found is None:
        found = ModuleType(name)
        found.__dict__["__source__"] = text
        exec(compile(text, f"{name}.py", "exec"), found.__dict__)
        sys.modules[name] = found
    return found
