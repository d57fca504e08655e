"""Machine code of one kernel, taken out of numba: the one file that knows what is private to numba.

numba passes every part of an argument by itself: an array as (owner, parent, elements, bytes of an element, address,
shape, strides), a tuple as its items. So 20 arguments are 100, and Python cannot call that. The glue of a kernel is a
function `run(words, start, stop)` that reads them where `minigrad.kernels.numba.abi` says.

A plan whose kernels are all cached never gets here. Where a version of numba is none of those that are tested, a small
kernel is built and run first; if that goes wrong, numba calls the kernels itself (see `Kernel.by_numba`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from minigrad import requirements
from minigrad.kernels.machine import GIVES, TAKES, emit, has
from minigrad.kernels.numba import abi
from minigrad.kernels.numba.jit import FLAGS, Code, Kernel
from minigrad.kernels.store import Objects

_PRIVATE = ("numba", "llvmlite")
_RETURNED_NONE = -2  # numba's status of a function without a result, as is 0; everything else is an error
_IN_LLVM = {abi.INT: "i64", abi.BOOL: "i8", abi.FLOAT32: "float", abi.FLOAT64: "double"}


def build(kernel: Kernel, types: abi.Types) -> Objects | None:
    """The object files of a kernel for these types of arguments behind its range: its own and its glue's. None where
    this version of numba `lacks` what is used of it."""
    return None if lacks() else _build(kernel, types)


@cache
def lacks() -> str:
    """Why machine code cannot be taken out of this numba, in one sentence; nothing, where it can."""
    misfits = requirements.misfits()
    if misfits.keys().isdisjoint(_PRIVATE):
        return ""
    try:
        _try()
    except Exception as error:  # whatever it is: numba's own way is left
        found = "; ".join(sentence for name, sentence in misfits.items() if name in _PRIVATE)
        why = f"{type(error).__name__}: {error}"
        return f"{found}, and gives no machine code away ({why}): numba calls the kernels itself, on one thread"
    return ""


def _probe(start, stop, numbers, pair):
    own = np.empty(stop, np.float32)
    for i in range(start, stop):
        own[i] = numbers[i] + pair[0]
        numbers[i] = own[i] * pair[1]


def _try() -> None:
    """Build a kernel with memory of its own, and run it. Raises whatever goes wrong."""
    numbers, words, found = np.arange(4, dtype=np.float32), list[Any](), list[Any]()
    abi.read((numbers, (2, 0.5)), found, words)
    types, kernel = tuple(found), Kernel(_probe, FLAGS)
    objects = _build(kernel, types)
    text = "".join(kernel.numba.inspect_llvm().values())
    wanted = set(re.findall(r"^declare .*@(NRT_\w+)\(", text, re.MULTILINE)) - set(re.findall(r"@(NRT_\w+)\(", _MEMORY))
    if wanted:
        raise RuntimeError(f"kernels ask for {', '.join(sorted(wanted))}")
    if Code(types, objects).fails(words, 1, 3) or numbers.tolist() != [0.0, 1.5, 2.0, 3.0]:
        raise RuntimeError("a kernel computes something else")


def _build(kernel: Kernel, types: abi.Types) -> Objects:
    signature = tuple(_numba_type(kind) for kind in (abi.INT, abi.INT, *types))
    dispatcher = kernel.numba
    with _whole_vectors():
        dispatcher.compile(signature)
    compiled = dispatcher.overloads[signature]
    _, _, (code, _) = compiled.library.serialize_using_object_code()
    return code, emit(_glue(types, compiled.fndesc.llvm_func_name))


def _numba_type(kind: Any) -> Any:
    """The compiler's own name of a type."""
    from numba import from_dtype, types

    if isinstance(kind, tuple):
        return types.Tuple([_numba_type(item) for item in kind])
    if kind in _IN_LLVM:
        return {
            abi.INT: types.int64, abi.BOOL: types.boolean, abi.FLOAT32: types.float32, abi.FLOAT64: types.float64
        }[kind]  # fmt: skip
    return types.Array(from_dtype(np.dtype(kind[0])), int(kind[1:-1]), kind[-1])


@contextmanager
def _whole_vectors() -> Iterator[None]:
    """What numba compiles inside uses vectors of 512 bits where the processor has them.

    For Intel's processors LLVM keeps to 256, because the first ones with 512 lowered their clock for them. Loops of
    elementary functions take 0.7 to 0.9 of the time on whole vectors. Nobody else's functions are compiled so: numba
    has one generator of code for a process, which is changed for a moment, under numba's own lock.
    """
    if not has("avx512f"):
        yield
        return
    from numba.core.compiler_lock import global_compiler_lock
    from numba.core.registry import cpu_target

    context = cpu_target.target_context
    with global_compiler_lock:
        before = context.codegen()
        context._internal_codegen = _generator()
        try:
            yield
        finally:
            context._internal_codegen = before


@cache
def _generator() -> Any:
    """numba's generator of machine code for this processor, without LLVM's preference for half vectors."""
    from numba.core.codegen import JITCPUCodegen

    class WholeVectors(JITCPUCodegen):
        def _customize_tm_features(self) -> str:
            return f"{super()._customize_tm_features()},-prefer-256-bit"

    return WholeVectors("minigrad")


# --- the glue ---------------------------------------------------------------------------------------

# What compiled kernels ask of numba's runtime for the arrays that they make: a header (references, destructor and its
# argument, address, size, allocator) and memory behind it. The functions that give and take memory are Python's. numba
# asks for 32 bytes of alignment; a vector of 64 that crosses two lines of the cache costs two reads, so it gets 64.
_MEMORY = f"""
declare i64 @llvm.umax.i64(i64, i64)
declare ptr @{GIVES}(i64)
declare void @{TAKES}(ptr)

define ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 %align) {{
  %asked = zext i32 %align to i64
  %wide = call i64 @llvm.umax.i64(i64 %asked, i64 64)
  %more = add i64 %wide, 48
  %all = add i64 %size, %more
  %header = call ptr @{GIVES}(i64 %all)
  %none = icmp eq ptr %header, null
  br i1 %none, label %end, label %fill
fill:
  %address = ptrtoint ptr %header to i64
  %behind = add i64 %address, %more
  %over = urem i64 %behind, %wide
  %aligned = sub i64 %behind, %over
  %data = inttoptr i64 %aligned to ptr
  store {{ i64, ptr, ptr, ptr, i64, ptr }} zeroinitializer, ptr %header
  store i64 1, ptr %header
  %data_at = getelementptr i64, ptr %header, i64 3
  store ptr %data, ptr %data_at
  %size_at = getelementptr i64, ptr %header, i64 4
  store i64 %size, ptr %size_at
  br label %end
end:
  ret ptr %header
}}

define void @NRT_MemInfo_call_dtor(ptr %header) {{
  call void @{TAKES}(ptr %header)
  ret void
}}
"""


# Where numpy's description of an array (PyArrayObject) has its address, shape and strides.
_HEADER = object.__basicsize__
_DATA, _SHAPE, _STRIDES = _HEADER, _HEADER + 16, _HEADER + 24


def _glue(types: abi.Types, symbol: str) -> str:
    """The module of `run(words, start, stop)` that calls the kernel `symbol`: 0, or that it has failed."""
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

    for at, part in enumerate(abi.parts(types)):
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
            f"  %fine = icmp eq i32 %status, {_RETURNED_NONE}",
            "  %told = select i1 %fine, i32 0, i32 %status",
            "  ret i32 %told",
            "}",
            _MEMORY,
        ]
    )
