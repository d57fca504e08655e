"""Compiling one kernel with numba, the only room that runs it: a plan whose kernels are all cached never gets here."""

from __future__ import annotations

from typing import Any

from minigrad.kernels.machine import emit
from minigrad.kernels.numba import abi
from minigrad.kernels.store import Objects


def build(kernel: Any, types: abi.Types) -> Objects:
    """The object files of a kernel for these types of arguments behind its range: its own and its glue's."""
    signature = tuple(abi.numba_type(kind) for kind in (abi.INT, abi.INT, *types))
    dispatcher = kernel.numba
    dispatcher.compile(signature)
    compiled = dispatcher.overloads[signature]
    _, _, (code, _) = compiled.library.serialize_using_object_code()
    return code, emit(abi.glue(types, compiled.fndesc.llvm_func_name))
