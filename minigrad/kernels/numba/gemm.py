"""Matrix products in a plan, cut over our own threads: our tiles on 512-bit vectors, else the BLAS library's sgemm.

BLAS with threads of its own gets in our threads' way: its idle ones hold the cores for milliseconds (a small step then
takes up to twice as long), and only Python can call it.

With AVX-512 a product is ours: every thread computes rows of C with the tiles of `gemm_tile`, after the scheme of
Goto and van de Geijn, "Anatomy of high-performance matrix multiplication" (2008). Measured on Zen 4 it runs at 90 % of
what the unit for multiply-adds can do, where OpenBLAS 0.3.31 runs at 80 to 85 %. Large products go to a matrix unit
where the processor has one (`amx`). Results do not depend on the threads: a result's sum always has the same order.

Elsewhere, and for batches of products, a plan calls sgemm by address, on blocks of rows or columns of the result, with
the library held to one thread a call. That is served where numpy bundles OpenBLAS with 64-bit integers (its wheels for
Linux, Windows and Intel Macs); else products stay calls of numpy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir

from minigrad.kernels import blas
from minigrad.kernels.calls import Calls
from minigrad.kernels.numba import amx
from minigrad.kernels.numba.abi import ThreadNumber
from minigrad.kernels.numba.gemm_tile import (
    HEIGHT,
    LANES,
    PACKING,
    SERVED,
    add,
    copy,
    gather,
    near,
    pack,
    tiles,
)
from minigrad.kernels.numba.jit import intrinsic, kernel, types
from minigrad.kernels.threads import get_num_threads

Array = np.ndarray
_ROW_MAJOR, _PLAIN, _TRANSPOSED = 101, 111, 112
_BLOCK = 16  # rows or columns that stay together: the height of OpenBLAS's register tile with AVX-512
_FLOPS_PER_NS = 100
_FLOAT = 4  # bytes
_DEPTH = 512  # products of a sum at a time: the rows of A's tile fit into half of the first-level cache
_PANELS = 12 * _DEPTH  # rows of packed panels: three quarters of a second-level cache of 1 MB
_GAP = 16  # numbers between packed rows of A, which then meet in different places of the cache
_ROOM = _PANELS * LANES + HEIGHT * (_DEPTH + _GAP + LANES)  # numbers that a thread packs, and a tile
_CROWDED = 4096  # lines at this distance in bytes share a place in the first-level cache
_FAR = 1024  # bytes: beyond it, columns of A lie in a line each that nothing fetches ahead, half of which is of no use
_READING = 1.5  # reading a row of A, which another core may have written, takes as long as so many panels of products
_LEAST = 16  # rows and columns from which on tiles pay
UNIT = 4  # rows that stay together
_LARGE = 1 << 28  # products from which on splitting factors for a matrix unit pays
_LONG = 6  # factors so many times as large as the result are cut along the sum,
_NEAR = 3 << 19  # if they have fewer numbers than this: a core's second-level cache may still hold its half


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
def _by_rows(start, stop, gemm, block, a, b, c, ta, tb, lda, ldb, ldc):
    """Blocks `start` to `stop` of C, of `block` rows. Each is a call: the library's bits depend on a product's size."""
    along = lda if ta == _PLAIN else 1
    for first in range(start * block, min(stop * block, c.shape[0]), block):
        _sgemm(gemm, ta, tb, min(block, c.shape[0] - first), c.shape[1], a.shape[1],
               a.ctypes.data + first * along * _FLOAT, lda, b.ctypes.data, ldb,
               c.ctypes.data + first * ldc * _FLOAT, ldc)  # fmt: skip


@kernel
def _by_columns(start, stop, gemm, block, a, b, c, ta, tb, lda, ldb, ldc):
    """Blocks `start` to `stop` of C, of `block` columns, as above."""
    along = 1 if tb == _PLAIN else ldb
    for first in range(start * block, min(stop * block, c.shape[1]), block):
        _sgemm(gemm, ta, tb, c.shape[0], min(block, c.shape[1] - first), a.shape[1], a.ctypes.data, lda,
               b.ctypes.data + first * along * _FLOAT, ldb, c.ctypes.data + first * _FLOAT, ldc)  # fmt: skip


@kernel
def _each(start, stop, gemm, places, m, n, k, ta, tb, lda, ldb, ldc):
    """Whole products of a batch; places: the addresses of their A, B and C."""
    for i in range(start, stop):
        _sgemm(gemm, ta, tb, m, n, k, places[i, 0], lda, places[i, 1], ldb, places[i, 2], ldc)


BY_LIBRARY = frozenset({_by_rows, _by_columns, _each})


@kernel
def _blocks(start, stop, a, a_stride, a_by_rows, b, b_stride, b_by_rows, c, c_stride, m, n, k, grid, columns,
            parts, apart, depth, width, thread, space):  # fmt: skip
    """Units `start` to `stop` of C: UNIT rows of the first of `grid` blocks of `columns`, then the next block's; all of
    them for the first of `parts` of the sum, whose results lie `apart` bytes before the next one's.

    a, b, c are addresses, strides bytes between rows, or, where a factor does not lie by rows, between its columns.
    For `depth` products of the sum at a time and `width` columns, B is packed (it then stays in the second-level
    cache), or read where it lies, and twelve rows of A meet it, which stay in the first. What comes next of A is
    fetched meanwhile: the next rows if they follow in memory, or, of columns, the next `depth`.
    """
    packed_b = space.ctypes.data + _FLOAT * thread * _ROOM
    packed_a = packed_b + _FLOAT * depth * width
    edge = packed_a + _FLOAT * HEIGHT * (depth + _GAP)
    # what does not stay in the first-level cache where it lies is brought together
    scattered = a_stride % _CROWDED == 0 if a_by_rows else a_stride > _FAR
    a_down, a_along = (a_stride, _FLOAT) if a_by_rows else (_FLOAT, a_stride)
    b_down, b_along = (b_stride, _FLOAT) if b_by_rows else (_FLOAT, b_stride)
    units = -(-m // UNIT)
    start, stop = near(start, units, parts * grid, UNIT), near(stop, units, parts * grid, UNIT)
    while start < stop:
        block, skipped = start // units, start % units
        taken = min(units - skipped, stop - start)
        start += taken
        part, left = block // grid, block % grid * columns
        result, low, high = c + part * apart, part * k // parts, (part + 1) * k // parts
        top, right = skipped * UNIT, min(left + columns, n)
        bottom = min(top + taken * UNIT, m)
        for first in range(low, high, depth):
            count = min(depth, high - first)
            for begin in range(left, right, width):
                end = min(begin + width, right)
                panels, b_pitch, aside = b + first * b_down + begin * b_along, b_stride, _FLOAT * LANES
                if a_by_rows or not b_by_rows or b_stride > _FAR or (end - begin) % LANES:
                    pack(packed_b, panels, b_stride, b_by_rows, end - begin, count)
                    panels, b_pitch, aside = packed_b, _FLOAT * LANES, _FLOAT * LANES * count
                steps = count * -(-(end - begin) // LANES)  # that a strip of A takes
                soon, pace = edge, 0
                if not a_by_rows and high > first + depth and 2 * _FLOAT * (bottom - top) >= a_stride:
                    soon = a + (first + depth) * a_stride
                    ahead = min(depth, high - first - depth) * a_stride
                    pace = -(-ahead // (steps * -(-(bottom - top) // HEIGHT)))
                for i in range(top, bottom, HEIGHT):
                    tall = min(HEIGHT, bottom - i)
                    strip, stride = a + i * a_down + first * a_along, a_stride
                    if scattered:
                        stride = _FLOAT * (depth + _GAP if a_by_rows else HEIGHT)
                        gather(packed_a, stride, strip, a_stride, a_by_rows, tall, count)
                        strip = packed_a
                    if a_by_rows and a_stride == _FLOAT * count:
                        soon, pace = strip + HEIGHT * a_stride, -(-HEIGHT * a_stride // steps)
                    panel = panels
                    for j in range(begin, end, LANES):
                        place = result + i * c_stride + _FLOAT * j
                        if j + LANES <= end:
                            tiles(tall, a_by_rows, place, c_stride, strip, stride, panel, b_pitch, count, first > low,
                                  soon, pace)  # fmt: skip
                        else:
                            tiles(tall, a_by_rows, edge, _FLOAT * LANES, strip, stride, panel, b_pitch, count, False,
                                  soon, pace)  # fmt: skip
                            for row in range(tall):
                                if first > low:
                                    add(place + row * c_stride, edge + _FLOAT * LANES * row, end - j)
                                else:
                                    copy(place + row * c_stride, edge + _FLOAT * LANES * row, end - j)
                        panel += aside
                        soon += pace * count


@kernel
def _added(start, stop, parts, c):
    """Rows of C as the sum of two parts ``(2, m, n)``."""
    for i in range(start, stop):
        for j in range(c.shape[1]):
            c[i, j] = parts[0, i, j] + parts[1, i, j]


def _grid(m: int, n: int, count: int) -> tuple[int, int]:
    """How many blocks of C lie above each other and side by side, `count` of them: as even as it goes."""

    def cost(down: int) -> float:
        rows, panels = -(-m // down), -(-n // LANES // (count // down))
        return (rows + PACKING) * (panels + _READING)

    down = min((d for d in range(1, count + 1) if count % d == 0), key=cost)
    return down, count // down


Lies = tuple[int, int]  # plain or transposed, leading dimension


def _lies(array: Array) -> Lies | None:
    """How matrices lie, as BLAS wants to know it, or None."""
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
    if any(x.ndim < 2 or x.dtype != np.float32 or not x.size for x in (a, b, c)):
        return False
    left, right, result = _lies(a), _lies(b), _lies(c)
    if left is None or right is None or result is None or result[0] != _PLAIN:
        return False
    if SERVED and c.ndim == 2 and min(c.shape) >= _LEAST:
        _in_tiles(calls, a, left, b, right, c, result[1])
        return True
    if not address():
        return False
    layout = (left[0], right[0], left[1], right[1], result[1])
    work = _work(a, c)
    m, n = c.shape[-2:]
    if c.ndim > 2:
        places = np.stack([_starts(x, c.shape[:-2]) for x in (a, b, c)], axis=1)
        calls.over_rows(_each, len(places), work, address(), places, m, n, a.shape[-1], *layout)
        return True
    kernel, long = (_by_rows, m) if m >= n else (_by_columns, n)
    block = -(-long // (_BLOCK * get_num_threads())) * _BLOCK
    calls.over_rows(kernel, -(-long // block), work, address(), block, a, b, c, *layout)
    return True


def matmul(calls: Calls, inputs: Sequence[Array], outputs: Sequence[Array]) -> bool:
    """`product`, as plans bind it: it does not pay for a single eager call."""
    return product(calls, *inputs, *outputs)


def _work(a: Array, c: Array) -> int:
    """Nanoseconds of one thread, about."""
    return 2 * c.size * a.shape[-1] // _FLOPS_PER_NS


def _splits(m: int, n: int, k: int) -> bool:
    """Is a product large enough for a matrix unit, and is there one?"""
    return m * n * k >= _LARGE and min(m, n) >= amx.TALL and k >= amx.STEP and amx.served()


def _in_tiles(calls: Calls, a: Array, left: Lies, b: Array, right: Lies, c: Array, c_stride: int) -> None:
    """The product by tiles, on a matrix unit where there is one and it pays. Threads take rows, of all columns or of a
    block of them.

    Where columns of A^T and rows of B are many and C is small, as for the gradient of a weight, these are cut in two,
    and the threads take halves: they are rows of a batch, which kernels before have cut in the same way, so that each
    half lies in the cache of its core. The two sums are added, whatever the number of threads.
    """
    (m, k), n = a.shape, b.shape[1]
    parts = 2 if left[0] == _TRANSPOSED and _LONG * m * n < k * (m + n) < _NEAR else 1
    threads = get_num_threads()
    _, across = _grid(m, n, max(threads // parts, 1))
    columns = -(-n // (LANES * across)) * LANES
    if _splits(m, n, k):
        kernel, unit, room, how = amx.blocks, amx.TALL, amx.ROOM, list[int]()
    else:
        long = -(-k // parts)
        # columns of A share the second-level cache with those that are fetched for the next part of the sum
        most = _DEPTH // 2 if left[0] == _TRANSPOSED and long > _DEPTH else _DEPTH
        depth = -(-long // -(-long // most))
        kernel, unit, room, how = _blocks, UNIT, _ROOM, [depth, min(columns, _PANELS // depth * LANES)]
    result, stride = c, c_stride
    if parts > 1:
        result, stride = calls.scratch(parts * m * n, "parts of a sum").reshape(parts, m, n), n
    calls.over_rows(
        kernel, parts * across * -(-m // unit), _work(a, c),
        a.ctypes.data, _FLOAT * left[1], left[0] == _PLAIN, b.ctypes.data, _FLOAT * right[1], right[0] == _PLAIN,
        result.ctypes.data, _FLOAT * stride, m, n, k, across, columns, parts, _FLOAT * m * n, *how,
        ThreadNumber(), calls.scratch(threads * room),
    )  # fmt: skip
    if parts > 1:
        calls.over_rows(_added, m, 0.3 * m * n, result, c)
