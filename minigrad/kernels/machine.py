"""Machine code in memory: linked from object files, which LLVM makes of text. No compiler of Python is needed here."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from minigrad.kernels import store

GIVES, TAKES = "minigrad_gives_memory", "minigrad_takes_memory"


def name(symbol: str, function: Any) -> None:
    """Let machine code call a function of C's by this name."""
    llvm.add_symbol(symbol, ctypes.cast(function, ctypes.c_void_p).value)


name(GIVES, ctypes.pythonapi.PyMem_RawMalloc)
name(TAKES, ctypes.pythonapi.PyMem_RawFree)


@cache
def has(feature: str) -> bool:
    """Has the processor that code is made for this feature, such as "avx512f"?

    It is this one, or what numba's own settings NUMBA_CPU_NAME and NUMBA_CPU_FEATURES ("+avx2,+fma") make of it: an
    older one, so that its code can be tried here."""
    stated = os.environ.get("NUMBA_CPU_FEATURES")
    if stated is None:
        return bool(llvm.get_host_cpu_features().get(feature))
    return f"+{feature}" in stated.split(",")


def _target() -> Any:
    """Code generation for this processor, with little optimisation: texts are lists of loads and calls.

    The name of a processor says more than it may do: a virtual machine can hide AVX-512 of one that has it."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    stated = os.environ.get("NUMBA_CPU_FEATURES")
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=os.environ.get("NUMBA_CPU_NAME") or llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten() if stated is None else stated,
        opt=1,
        jit=True,
        codemodel="jitdefault",
    )


def link(objects: Sequence[bytes]) -> Any:
    """An engine that holds the functions of these object files; they live as long as it does.

    Every kernel has an engine of its own: numba's names of helpers are only unique within a process, and objects come
    from several.
    """
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target())
    for data in objects:
        engine.add_object_file(llvm.ObjectFileRef.from_data(data))
    engine.finalize_object()
    return engine


def emit(text: str) -> bytes:
    """The object file of an LLVM module."""
    target = _target()
    module = llvm.parse_assembly(text)
    module.verify()
    data: bytes = target.emit_object(module)
    return data


def load(text: str) -> Any:
    """An engine that holds the functions of an LLVM module, taken from the cache where it was compiled before."""
    kept = store.name_of("text", text)
    objects = store.read(kept)
    if objects is None:
        objects = (emit(text),)
        store.write(kept, objects)
    return link(objects)
