"""Matrix products in a plan: the BLAS library's own sgemm, called from machine code on one core by each thread.

In a plan every kernel is cut over our own threads. BLAS with threads of its own gets in their way: its idle threads
hold the cores for milliseconds (a small step then takes up to twice as long), and only Python can call it. So a plan
calls sgemm by address, on blocks of rows or columns of the result, with the library held to one thread a call.

Served where numpy bundles OpenBLAS with 64-bit integers (its wheels for Linux, Windows and Intel Macs); elsewhere
products stay calls of numpy.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from minigrad.kernels import blas
from minigrad.kernels.calls import Calls
from minigrad.kernels.numba.jit import kernel

Array = np.ndarray
_ROW_MAJOR, _PLAIN, _TRANSPOSED = 101, 111, 112
_BLOCK = 16  # rows or columns that stay together: the height of OpenBLAS's register tile with AVX-512
_FLOPS_PER_NS = 100
_FLOAT = 4  # bytes


@cache
def address() -> int:
    """Where the library's `cblas_sgemm` with 64-bit integers lies; 0 if there is none."""
    for library in blas.libraries():
        function = getattr(ctypes.CDLL(library.filepath), "scipy_cblas_sgemm64_", None)
        if function is not None:
            return ctypes.cast(function, ctypes.c_void_p).value or 0
    return 0


@intrinsic
def _sgemm(typing: Any, gemm: Any, ta: Any, tb: Any, m: Any, n: Any, k: Any, a: Any, lda: Any, b: Any, ldb: Any, c: Any,
           ldc: Any) -> Any:  # fmt: skip
    """C = A B by the function at address `gemm`; a, b, c are addresses, all numbers int64."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word, flag, real, pointer = ir.IntType(64), ir.IntType(32), ir.FloatType(), ir.PointerType(ir.IntType(8))
        parameters = [flag, flag, flag, word, word, word, real, pointer, word, pointer, word, real, pointer, word]
        where, ta, tb, m, n, k, a, lda, b, ldb, c, ldc = arguments
        function = builder.inttoptr(where, ir.FunctionType(ir.VoidType(), parameters).as_pointer())
        a, b, c = (builder.inttoptr(value, pointer) for value in (a, b, c))
        ta, tb = builder.trunc(ta, flag), builder.trunc(tb, flag)
        one, zero = ir.Constant(real, 1.0), ir.Constant(real, 0.0)
        builder.call(function, [ir.Constant(flag, _ROW_MAJOR), ta, tb, m, n, k, one, a, lda, b, ldb, zero, c, ldc])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 12), build


@kernel
def _by_rows(start, stop, gemm, a, b, c, ta, tb, lda, ldb, ldc):
    """Blocks `start` to `stop` of the rows of C."""
    first, last = start * _BLOCK, min(stop * _BLOCK, c.shape[0])
    along = lda if ta == _PLAIN else 1
    _sgemm(gemm, ta, tb, last - first, c.shape[1], a.shape[1], a.ctypes.data + first * along * _FLOAT, lda,
           b.ctypes.data, ldb, c.ctypes.data + first * ldc * _FLOAT, ldc)  # fmt: skip


@kernel
def _by_columns(start, stop, gemm, a, b, c, ta, tb, lda, ldb, ldc):
    """Blocks `start` to `stop` of the columns of C."""
    first, last = start * _BLOCK, min(stop * _BLOCK, c.shape[1])
    along = 1 if tb == _PLAIN else ldb
    _sgemm(gemm, ta, tb, c.shape[0], last - first, a.shape[1], a.ctypes.data, lda,
           b.ctypes.data + first * along * _FLOAT, ldb, c.ctypes.data + first * _FLOAT, ldc)  # fmt: skip


@kernel
def _each(start, stop, gemm, places, m, n, k, ta, tb, lda, ldb, ldc):
    """Whole products of a batch; places: the addresses of their A, B and C."""
    for i in range(start, stop):
        _sgemm(gemm, ta, tb, m, n, k, places[i, 0], lda, places[i, 1], ldb, places[i, 2], ldc)


def _lies(array: Array) -> tuple[int, int] | None:
    """(plain or transposed, leading dimension) of matrices as BLAS wants them, or None."""
    rows, columns = array.strides[-2:]
    if columns == _FLOAT and rows >= _FLOAT * array.shape[-1] and not rows % _FLOAT:
        return _PLAIN, rows // _FLOAT
    if rows == _FLOAT and columns >= _FLOAT * array.shape[-2] and not columns % _FLOAT:
        return _TRANSPOSED, columns // _FLOAT
    return None


def _starts(array: Array, batch: tuple[int, ...]) -> Array:
    """The address of every matrix of `array`, broadcast to a batch ``(prod(batch),)``."""
    matrices = np.broadcast_to(array[..., :1, :1], (*batch, 1, 1))
    offsets = np.zeros((), np.int64)
    for size, stride in zip(batch, matrices.strides, strict=False):
        offsets = offsets[..., None] + np.arange(size, dtype=np.int64) * stride
    return array.ctypes.data + offsets.reshape(-1)


def product(calls: Calls, a: Array, b: Array, c: Array) -> bool:
    """Add C = A B for float32 ``(..., m, k)``, ``(..., k, n)``, ``(..., m, n)``; False where numpy must do it.

    Whoever runs the calls holds BLAS to one thread (`minigrad.kernels.blas.single`).
    """
    if any(x.ndim < 2 or x.dtype != np.float32 or not x.size for x in (a, b, c)) or not address():
        return False
    left, right, result = _lies(a), _lies(b), _lies(c)
    if left is None or right is None or result is None or result[0] != _PLAIN:
        return False
    layout = (left[0], right[0], left[1], right[1], result[1])
    work = 2 * c.size * a.shape[-1] // _FLOPS_PER_NS
    m, n = c.shape[-2:]
    if c.ndim > 2:
        places = np.stack([_starts(x, c.shape[:-2]) for x in (a, b, c)], axis=1)
        calls.over_rows(_each, len(places), work, address(), places, m, n, a.shape[-1], *layout)
        return True
    kernel = _by_rows if m >= n else _by_columns
    calls.over_rows(kernel, -(-max(m, n) // _BLOCK), work, address(), a, b, c, *layout)
    return True
