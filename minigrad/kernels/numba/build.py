"""Compiling one kernel with numba, the only room that runs it: a plan whose kernels are all cached never gets here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import llvmlite.binding as llvm

from minigrad import requirements
from minigrad.kernels.machine import emit
from minigrad.kernels.numba import abi
from minigrad.kernels.store import Objects


def build(kernel: Any, types: abi.Types) -> Objects:
    """The object files of a kernel for these types of arguments behind its range: its own and its glue's.

    Raises RuntimeError where a version of numba or llvmlite that is not tested lacks what is used of it.
    """
    try:
        return _build(kernel, types)
    except (AttributeError, ImportError, TypeError) as error:
        if wrong := "; ".join(requirements.misfits().values()):
            mend = f"install what is tested ({requirements.INSTALL}), or compute without kernels"
            raise RuntimeError(f'{wrong}: {mend} (minigrad.kernels.set_mode("reference"))') from error
        raise


def _build(kernel: Any, types: abi.Types) -> Objects:
    signature = tuple(abi.numba_type(kind) for kind in (abi.INT, abi.INT, *types))
    dispatcher = kernel.numba
    with _whole_vectors():
        dispatcher.compile(signature)
    compiled = dispatcher.overloads[signature]
    _, _, (code, _) = compiled.library.serialize_using_object_code()
    return code, emit(abi.glue(types, compiled.fndesc.llvm_func_name))


@contextmanager
def _whole_vectors() -> Iterator[None]:
    """What numba compiles inside uses vectors of 512 bits where the processor has them.

    For Intel's processors LLVM keeps to 256, because the first ones with 512 lowered their clock for them. Loops of
    elementary functions take 0.7 to 0.9 of the time on whole vectors. Nobody else's functions are compiled so: numba
    has one generator of code for a process, which is changed for a moment, under numba's own lock.
    """
    if not llvm.get_host_cpu_features().get("avx512f"):
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
