"""Which kernel computes a matrix product, and how it is launched: the op `matmul`, and products for other binders.

Operands may have any strides: batches that are broadcast or interleaved (heads inside of rows) are read where they are.
The choice is by shapes, strides and the device's number of multiprocessors alone, so a product is computed in the same
order of additions every time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from minigrad.kernels.cuda.calls import DeviceCalls
from minigrad.kernels.cuda.matmul import LARGE, SMALL, Tiling, simple_kernel, sum_parts, tiled_kernel
from minigrad.kernels.cuda.matvec import ROWS, WARPS, deep_matvec, wide_matvec
from minigrad.kernels.cuda.memory import DeviceArray, name_of
from minigrad.kernels.cuda.tiles import CHUNK, DEPTH

INT32 = 2**31 - 1
GRID = 65535  # blocks that a launch may have in its second and third dimension
SPLITS = (1, 2, 4, 8, 16, 32)

# The model by which tilings are chosen, in cycles of a multiprocessor. A wave is what all of them compute at once.
_MACS = {"float32": 200.0, "bfloat16": 600.0, "float16": 600.0}  # multiply-adds a cycle that mma.sync comes to
_SHARE = {LARGE: 1.0, SMALL: 0.75}  # of it that a tiling reaches: small tiles read more for each multiply-add
_RESIDENT = {("float32", LARGE): 1, ("float32", SMALL): 3, ("half", LARGE): 2, ("half", SMALL): 3}  # blocks an SM
_START = 1500.0  # filling the pipeline and writing the tile
_LAUNCH = 3000.0  # a second kernel
_BYTES = 2600.0  # of memory traffic a cycle, of the whole device


class Matrices(NamedTuple):
    """Matrices (batch_outer x batch_inner) of rows x columns; strides in elements."""

    array: DeviceArray
    outer: int
    inner: int
    row: int
    column: int

    def transposed(self) -> Matrices:
        return self._replace(row=self.column, column=self.row)

    def aligned(self, line: int) -> bool:
        """Do all lines, `line` elements apart, begin at multiples of 16 bytes?"""
        width = CHUNK[name_of(self.array.dtype)]
        return self.array.pointer % 16 == 0 and not any(stride % width for stride in (self.outer, self.inner, line))

    def paired(self, part: int) -> bool:
        """Does every second element begin at a multiple of two elements' size, in parts `part` elements apart too?"""
        strides = (self.outer, self.inner, self.row, part)
        return self.array.pointer % (2 * self.array.itemsize) == 0 and not any(stride % 2 for stride in strides)


class Problem(NamedTuple):
    """C = A B for every batch; `inner` is the second batch dimension's size."""

    a: Matrices
    b: Matrices
    c: Matrices
    m: int
    n: int
    k: int
    batches: int
    inner: int

    @property
    def dtype(self) -> str:
        return name_of(self.a.array.dtype)

    @property
    def batch_strides(self) -> tuple[int, ...]:
        """As the kernels take them: the size of the inner dimension and the strides of all three."""
        a, b, c = self.a, self.b, self.c
        return self.inner, a.outer, a.inner, b.outer, b.inner, c.outer, c.inner

    @property
    def layout(self) -> tuple[bool, bool, bool, bool]:
        """As the tiled kernels take it: is each operand's depth contiguous, are its lines aligned? (See `readable`.)"""
        a_line, b_line, _ = self.lines
        return self.a.column == 1, self.b.row == 1, self.a.aligned(a_line), self.b.aligned(b_line)

    @property
    def lines(self) -> tuple[int, int, int]:
        """How far apart the lines of A and B lie, of which elements are contiguous, and the rows of C."""
        a, b = self.a, self.b
        return a.row if a.column == 1 else a.column, b.column if b.row == 1 else b.row, self.c.row

    def exchanged(self) -> Problem:
        """The transpose: C^T = B^T A^T."""
        return self._replace(
            a=self.b.transposed(), b=self.a.transposed(), c=self.c.transposed(), m=self.n, n=self.m
        )  # fmt: skip


def matmul(calls: DeviceCalls, inputs: Sequence[DeviceArray], outputs: Sequence[DeviceArray]) -> bool:
    """The op: a ``(..., m, k)``, b ``(..., k, n)``, with leading dimensions that broadcast."""
    product(calls, inputs[0], inputs[1], outputs[0])
    return True


def product(calls: DeviceCalls, a: DeviceArray, b: DeviceArray, c: DeviceArray) -> None:
    """Append calls that compute c ``(..., m, n)`` = a ``(..., m, k)`` b ``(..., k, n)``; any strides.

    The leading dimensions of a and b broadcast to those of c.
    """
    if not c.size:
        return
    if not a.shape[-1]:
        zeros = c if c.is_contiguous else calls.scratch(c.shape, c.dtype)
        nothing = calls.scratch((1,), np.dtype("float32"))
        calls.launch(sum_parts(name_of(c.dtype)), -(-c.size // 256), 256, nothing, zeros, 0, c.size)
        if zeros is not c:
            calls.copy(c, zeros)
        return
    found = described(a, b, c)
    if found is not None:
        _dispatch(calls, found[0])
        return
    dims = len(c.shape) - 2
    axis = next(i for i, size in enumerate(c.shape[:-2]) if size > 1)
    for part in (slice(None, c.shape[axis] // 2), slice(c.shape[axis] // 2, None)):
        product(calls, _part(a, axis, part, dims), _part(b, axis, part, dims), _part(c, axis, part, dims))


def described(
    a: DeviceArray, b: DeviceArray, c: DeviceArray, others: Sequence[DeviceArray] = ()
) -> tuple[Problem, list[Matrices]] | None:
    """The product with two batch dimensions, and other arrays that broadcast to c beside it.

    Batches that share B and follow each other are more rows. None for more batches than a launch may have.
    """
    batch = c.shape[:-2]
    arrays = [a, b, c, *(x.through(lambda whole: np.broadcast_to(whole, c.shape)) for x in others)]
    sizes, strides = _collapsed(batch, [_batch_strides(x, len(batch)) for x in arrays])
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    rows, columns = (list(x) for x in zip(*map(_matrix_strides, arrays), strict=True))
    if sizes and strides[1][-1] == 0:
        if m == 1:  # the rows are the batches
            rows = [steps[-1] for steps in strides]
        if all(steps[-1] == m * row for i, (steps, row) in enumerate(zip(strides, rows, strict=True)) if i != 1):
            m, sizes, strides = m * sizes[-1], sizes[:-1], [steps[:-1] for steps in strides]
            rows[1] = _matrix_strides(b)[0]
    count = math.prod(sizes)
    if len(sizes) > 2 or count > GRID:
        return None
    padded = [(0,) * (2 - len(steps)) + steps for steps in strides]
    left, right, result, *more = (
        Matrices(x, steps[0], steps[1], row, column)
        for x, steps, row, column in zip(arrays, padded, rows, columns, strict=True)
    )
    return Problem(left, right, result, m, n, k, count, sizes[-1] if sizes else 1), more


def route(problem: Problem) -> str:
    """Which kernels compute a product: "few rows", "few columns", "small", "tiled", or "large" of any strides."""
    m, n, k = problem.m, problem.n, problem.k
    if m > ROWS[-1] and n <= ROWS[-1]:
        return "few columns"
    if m <= ROWS[-1] and n * k >= 1024 and (problem.b.row == 1 or problem.b.column == 1):
        return "few rows"
    if max(m, n) <= 32 or k < 8 or m * n * k < 32**3:
        return "small"
    return "tiled" if problem.c.column == 1 or problem.c.row == 1 else "large"


def _dispatch(calls: DeviceCalls, problem: Problem) -> None:
    way = route(problem)
    if way == "few columns":
        _dispatch(calls, problem.exchanged())
    elif way == "few rows":
        _few_rows(calls, problem)
    elif way == "tiled":
        _tiled(calls, problem if problem.c.column == 1 else problem.exchanged())
    else:
        _simple(calls, problem, 32 if way == "small" else 64)


# --- few rows -------------------------------------------------------------------------------------------


def _few_rows(calls: DeviceCalls, problem: Problem) -> None:
    a, b, c, m, n, k, batches, _ = problem
    dtype, width = problem.dtype, CHUNK[problem.dtype]
    rows = next(r for r in ROWS if r >= m)
    if b.row == 1:
        if a.column != 1 and k > 1:
            a = _dense(calls, a, batches // problem.inner, problem.inner, m, k)
            problem = problem._replace(a=a)
        vector = k % width == 0 and a.aligned(a.row) and b.aligned(b.column)
        calls.launch(
            deep_matvec(dtype, rows, vector), (-(-n // WARPS), batches), 32 * WARPS,
            a.array, b.array, c.array, m, n, k, a.row, b.column, c.row, c.column, *problem.batch_strides,
        )  # fmt: skip
        return
    vector = n % width == 0 and b.aligned(b.row)
    blocks = -(-n // (32 * (width if vector else 1)))
    wanted = 4 * calls.runtime.driver.processors // (blocks * batches)  # chunks that fill the device
    splits = max(1, min(wanted, k // (8 * WARPS), GRID))
    chunk = -(-k // splits)
    splits = -(-k // chunk)
    out, c, finish = _parts(calls, problem, splits)
    calls.launch(
        wide_matvec(dtype, rows, vector, out), (blocks, batches, splits), 32 * WARPS,
        a.array, b.array, c.array, m, n, k, a.row, a.column, b.row, c.row, c.column,
        *problem._replace(c=c).batch_strides, chunk, batches * m * n if splits > 1 else 0,
    )  # fmt: skip
    finish()


# --- tiles ----------------------------------------------------------------------------------------------


def _simple(calls: DeviceCalls, problem: Problem, tile: int) -> None:
    a, b, c, m, n, k, batches, _ = problem
    calls.launch(
        simple_kernel(problem.dtype, tile), (-(-m // tile) * -(-n // tile), batches), (tile // 4) ** 2,
        a.array, b.array, c.array, m, n, k, a.row, a.column, b.column, b.row, c.row, c.column, *problem.batch_strides,
    )  # fmt: skip


def readable(calls: DeviceCalls, problem: Problem) -> Problem:
    """The problem with copies of the operands that have neither contiguous rows nor contiguous columns."""
    outer, inner = problem.batches // problem.inner, problem.inner
    if problem.a.column != 1 and problem.a.row != 1:
        problem = problem._replace(a=_dense(calls, problem.a, outer, inner, problem.m, problem.k))
    if problem.b.column != 1 and problem.b.row != 1:
        problem = problem._replace(b=_dense(calls, problem.b, outer, inner, problem.k, problem.n))
    return problem


def _tiled(calls: DeviceCalls, problem: Problem) -> None:
    """Tensor cores."""
    problem = readable(calls, problem)
    m, n, k, batches, dtype = problem.m, problem.n, problem.k, problem.batches, problem.dtype
    whole = dtype == "float32" or all(problem.layout[2:])
    tiling, splits = choose(dtype, m, n, k, batches, calls.runtime.driver.processors, whole)
    chunk = -(-k // (splits * DEPTH[dtype])) * DEPTH[dtype]
    splits = -(-k // chunk)
    out, c, finish = _parts(calls, problem, splits)
    target, part = problem._replace(c=c), batches * m * n if splits > 1 else 0
    calls.launch(
        tiled_kernel(dtype, tiling, *problem.layout, out), (-(-m // tiling.m) * -(-n // tiling.n), batches, splits),
        tiling.threads, problem.a.array, problem.b.array, c.array, m, n, k, *target.lines, *target.batch_strides,
        chunk, part, c.paired(part), shared=tiling.shared_bytes,
    )  # fmt: skip
    finish()


@lru_cache(4096)
def choose(dtype: str, m: int, n: int, k: int, batches: int, processors: int, whole: bool = True) -> tuple[Tiling, int]:
    """The tiling, and into how many chunks k is cut, that the model in this module finds fastest.

    whole: tiles may be large. Not so where halves come one by one, which takes more indices than registers hold.
    """
    best, least = (SMALL, 1), float("inf")
    kind = "float32" if dtype == "float32" else "half"
    for tiling in (LARGE, SMALL) if whole else (SMALL,):
        resident = _RESIDENT[kind, tiling]
        tiles = -(-m // tiling.m) * -(-n // tiling.n) * batches
        for splits in SPLITS:
            if splits > 1 and (k < 128 * splits or splits * m * n * batches > INT32):
                break
            blocks = tiles * splits
            waves = -(-blocks // (resident * processors))
            together = min(resident, -(-blocks // processors))  # blocks that share a multiprocessor
            cycles = tiling.m * tiling.n * -(-k // splits) * together / (_MACS[dtype] * _SHARE[tiling])
            cost = waves * (cycles + _START)
            if splits > 1:
                cost += _LAUNCH + 8.0 * splits * m * n * batches / _BYTES
            if cost < least:
                best, least = (tiling, splits), cost
    return best


def _parts(calls: DeviceCalls, problem: Problem, splits: int) -> tuple[str, Matrices, Any]:
    """Where `splits` chunks of k are written: dtype, matrices, and the function that appends the sum of the parts."""
    c, m, n, batches = problem.c, problem.m, problem.n, problem.batches
    if splits == 1:
        return problem.dtype, c, lambda: None
    outer = batches // problem.inner
    parts = calls.scratch((splits, outer, problem.inner, m, n), np.dtype("float32"))
    size = batches * m * n

    whole = _strided(c, outer, problem.inner, m, n)

    def finish() -> None:
        target = whole if whole.is_contiguous else calls.scratch(whole.shape, whole.dtype)
        calls.launch(sum_parts(problem.dtype), -(-size // 256), 256, parts, target, splits, size)
        if target is not whole:
            calls.copy(whole, target)

    return "float32", Matrices(parts, problem.inner * m * n, m * n, n, 1), finish


def _dense(calls: DeviceCalls, x: Matrices, outer: int, inner: int, rows: int, columns: int) -> Matrices:
    """A copy whose rows are contiguous, of each matrix once (a broadcast stays one)."""
    shape = (outer if x.outer else 1, inner if x.inner else 1, rows, columns)
    copy = calls.scratch(shape, x.array.dtype)
    calls.copy(copy, _strided(x, *shape))
    return Matrices(copy, shape[1] * rows * columns if x.outer else 0, rows * columns if x.inner else 0, columns, 1)


def _strided(x: Matrices, outer: int, inner: int, rows: int, columns: int) -> DeviceArray:
    strides = tuple(s * x.array.itemsize for s in (x.outer, x.inner, x.row, x.column))
    return x.array.window((outer, inner, rows, columns), strides, 0)


# --- dimensions and strides -----------------------------------------------------------------------------


def _matrix_strides(x: DeviceArray) -> tuple[int, ...]:
    """Strides of rows and columns in elements; 0 for a dimension of one element."""
    return tuple(0 if n == 1 else s // x.itemsize for n, s in zip(x.shape[-2:], x.strides[-2:], strict=True))


def _batch_strides(x: DeviceArray, count: int) -> tuple[int, ...]:
    """Strides in elements of the leading dimensions, 0 where x is broadcast."""
    own = [0 if n == 1 else s // x.itemsize for n, s in zip(x.shape[:-2], x.strides[:-2], strict=True)]
    return (0,) * (count - len(own)) + tuple(own)


def _collapsed(sizes: tuple[int, ...], strides: list[tuple[int, ...]]) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """The same walk over memory with as few dimensions as possible."""
    kept: list[tuple[int, tuple[int, ...]]] = []
    for size, steps in zip(sizes, zip(*strides, strict=True), strict=True):
        if size == 1:
            continue
        if kept and all(before == step * size for before, step in zip(kept[-1][1], steps, strict=True)):
            kept[-1] = (kept[-1][0] * size, steps)
        else:
            kept.append((size, steps))
    return tuple(size for size, _ in kept), [tuple(steps[i] for _, steps in kept) for i in range(len(strides))]


def _part(x: DeviceArray, axis: int, part: slice, dims: int) -> DeviceArray:
    """A part of one of `dims` leading dimensions of the result."""
    own = axis - (dims - (x.ndim - 2))
    if own < 0 or x.shape[own] == 1:
        return x
    return x[(*(slice(None),) * own, part)]
