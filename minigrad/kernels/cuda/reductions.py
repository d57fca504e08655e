"""Sums, products, largest and smallest over any dimensions; the places of extremes; running sums.

An array is seen as (outer, n, inner) with the middle reduced. Long reductions are cut into parts by their shape alone,
and the parts' results are reduced in a second launch: no atomics, so that a result repeats bit for bit. Kernels exist
for float32, float64 and int64; halves, other integers and bool are converted before and after.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from minigrad.kernels.cuda import elementwise
from minigrad.kernels.cuda.expressions import maximum, minimum
from minigrad.kernels.cuda.intrinsics import load4
from minigrad.kernels.cuda.language import Kernel, cuda, device, float32, float64, int64, kernel
from minigrad.kernels.cuda.teams import ALL, WARP, plus, reducer, times

THREADS = 256
ROWS = THREADS // WARP  # rows of a block in which every warp has its own
SHORT = 256  # up to so many elements a row is one warp's
LANES, DEPTH = 32, 8  # columns and rows of a block that reduces columns
BLOCKS = 528  # about as many as a large device runs at once: reductions are cut until there are so many

ELEMENTS = {"float32": float32, "float64": float64, "int64": int64}
_LEAST = {"float32": float32("-inf"), "float64": float64("-inf"), "int64": int64(-(2**63))}
_MOST = {"float32": float32("inf"), "float64": float64("inf"), "int64": int64(2**63 - 1)}


class Kernels(NamedTuple):
    """What reduces one kind of element: short rows, long rows, columns."""

    short: Kernel
    rows: Kernel
    columns: Kernel


def _make(name: str, combine: Any, dtype: str, identity: Any) -> Kernels:
    element = ELEMENTS[dtype]
    whole = dtype == "int64"
    wide = dtype == "float32"
    over_warp, over_block = reducer(combine, identity, WARP), reducer(combine, identity, THREADS)
    options: Any = {"threads": THREADS, "float64": dtype == "float64"}

    @device
    def mapped(value, squared):
        return value * value if squared else value

    if whole:

        @device
        def finished(value, root):
            return value

    else:

        @device
        def finished(value, root):
            return math.sqrt(value) if root else value

    @kernel(f"{dtype}*, {dtype}*, int32, int32, int32, int32", name=f"{name}_short_{dtype}", **options)
    def short(x, y, rows, n, squared, root):
        """A warp a row."""
        row = cuda.blockIdx.x * ROWS + (cuda.threadIdx.x >> 5)
        if row < rows:
            lane = cuda.threadIdx.x & 31
            value = identity
            for j in range(lane, n, WARP):
                value = combine(value, mapped(x[row * n + j], squared))
            value = over_warp(value, None)
            if lane == 0:
                y[row] = finished(value, root)

    if wide:

        @device
        def gathered(x, start, stop, squared, vector):
            """A thread's share of x[start:stop], four at a time where memory allows it."""
            a, b, c, d = identity, identity, identity, identity
            if vector:
                for j in range(start + 4 * cuda.threadIdx.x, stop, 4 * THREADS):
                    p, q, r, s = load4(x, j)
                    a, b = combine(a, mapped(p, squared)), combine(b, mapped(q, squared))
                    c, d = combine(c, mapped(r, squared)), combine(d, mapped(s, squared))
            else:
                for j in range(start + cuda.threadIdx.x, stop, THREADS):
                    a = combine(a, mapped(x[j], squared))
            return combine(combine(a, b), combine(c, d))

    else:

        @device
        def gathered(x, start, stop, squared, vector):
            value = identity
            for j in range(start + cuda.threadIdx.x, stop, THREADS):
                value = combine(value, mapped(x[j], squared))
            return value

    @kernel(f"{dtype}*, {dtype}*, int32, int32, int32, int32, int32, int32", name=f"{name}_rows_{dtype}", **options)
    def rows(x, y, n, parts, length, squared, root, vector):
        """A block a part of a row."""
        shared = cuda.shared.array(WARP, element)
        row, part = cuda.blockIdx.x // parts, cuda.blockIdx.x % parts
        start = row * n + part * length
        value = gathered(x, start, min(start + length, (row + 1) * n), squared, vector)
        value = over_block(value, shared)
        if cuda.threadIdx.x == 0:
            y[cuda.blockIdx.x] = finished(value, root)

    @kernel(f"{dtype}*, {dtype}*, int32, int32, int32, int32, int32, int32", name=f"{name}_columns_{dtype}", **options)
    def columns(x, y, n, inner, parts, length, squared, root):
        """A block 32 columns of a part; the grid is (outer and tiles of columns, parts)."""
        shared = cuda.shared.array((DEPTH, LANES), element)
        lane, depth = cuda.threadIdx.x & 31, cuda.threadIdx.x >> 5
        tiles = (inner + LANES - 1) // LANES
        outer, tile = cuda.blockIdx.x // tiles, cuda.blockIdx.x % tiles
        column, part = tile * LANES + lane, cuda.blockIdx.y
        value = identity
        if column < inner:
            first = part * length
            last = min(first + length, n)
            a, b, c, d = identity, identity, identity, identity
            row = first + depth
            while row + 3 * DEPTH < last:
                at = (outer * n + row) * inner + column
                p, q, r, s = x[at], x[at + DEPTH * inner], x[at + 2 * DEPTH * inner], x[at + 3 * DEPTH * inner]
                a, b = combine(a, mapped(p, squared)), combine(b, mapped(q, squared))
                c, d = combine(c, mapped(r, squared)), combine(d, mapped(s, squared))
                row += 4 * DEPTH
            while row < last:
                a = combine(a, mapped(x[(outer * n + row) * inner + column], squared))
                row += DEPTH
            value = combine(combine(a, b), combine(c, d))
        shared[depth, lane] = value
        cuda.syncthreads()
        if depth == 0 and column < inner:
            for k in range(1, DEPTH):
                value = combine(value, shared[k, lane])
            y[(outer * parts + part) * inner + column] = finished(value, root)

    return Kernels(short, rows, columns)


@device
def _larger(a, b):
    return max(a, b)


@device
def _smaller(a, b):
    return min(a, b)


REDUCE = {
    (name, dtype): _make(name, combine, dtype, identity)
    for dtype, element in ELEMENTS.items()
    for name, combine, identity in (
        ("sum", plus, element(0)),
        ("prod", times, element(1)),
        ("amax", _larger if dtype == "int64" else maximum, _LEAST[dtype]),
        ("amin", _smaller if dtype == "int64" else minimum, _MOST[dtype]),
    )
}


def served(calls: Any, x: Any) -> Any:
    """`x`, or a copy of it converted to a dtype that the kernels here serve."""
    if x.dtype.name in ELEMENTS:
        return x
    return elementwise.converted(calls, x, "float32" if x.dtype.name in ("float16", "bfloat16") else "int64")


def _parts(blocks: int, n: int, least: int) -> tuple[int, int]:
    """(parts, their length) into which n elements are cut where `blocks` blocks are not many: by shape alone."""
    wanted = min(-(-BLOCKS // blocks), -(-n // least))
    length = -(-n // wanted)
    length = -(-length // 4) * 4
    return -(-n // length), length


def reduce(
    calls: Any, name: str, x: Any, y: Any, outer: int, n: int, inner: int, squared: bool = False, root: bool = False
) -> None:
    """Append launches that reduce contiguous `x` (outer, n, inner) to contiguous `y` (outer, inner)."""
    kernels = REDUCE[name, x.dtype.name]
    if inner == 1 and n <= SHORT:
        calls.launch(kernels.short, -(-outer // ROWS), THREADS, x, y, outer, n, squared, root)
        return
    tiles = outer if inner == 1 else outer * -(-inner // LANES)
    parts, length = _parts(tiles, n, 4096 if inner == 1 else 64)
    partial = y if parts == 1 else calls.scratch((outer, parts, inner), x.dtype)
    last = parts == 1 and root
    if inner == 1:
        vector = n % 4 == 0 and x.pointer % 16 == 0
        calls.launch(kernels.rows, outer * parts, THREADS, x, partial, n, parts, length, squared, last, vector)
    else:
        calls.launch(kernels.columns, (tiles, parts), THREADS, x, partial, n, inner, parts, length, squared, last)
    if parts > 1:
        reduce(calls, name, partial, y, outer, parts, inner, root=root)


def _split(calls: Any, x: Any, dims: Sequence[int]) -> tuple[Any, int, int, int]:
    """Contiguous memory of `x` with the dimensions `dims` side by side, and (outer, n, inner)."""
    kept = [d for d in range(x.ndim) if d not in dims]
    together = not dims or list(dims) == list(range(dims[0], dims[0] + len(dims)))
    if not together:
        x = x.transpose([*kept, *dims])
        dims = range(len(kept), x.ndim)
    x = calls.contiguous(x)
    first = dims[0] if dims else x.ndim
    sizes = x.shape[:first], x.shape[first : first + len(dims)], x.shape[first + len(dims) :]
    outer, n, inner = (math.prod(part) for part in sizes)
    return x, outer, n, inner


def _binder(op: str, name: str, norm: bool = False) -> Callable[..., bool]:
    def bind(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, dims: Sequence[int], keepdim: bool) -> bool:
        (x,), (y,) = inputs, outputs
        if not y.size:
            return True
        if not x.size:
            if name in ("amax", "amin"):
                return False
            elementwise.fill(calls, y, 1 if name == "prod" else 0)
            return True
        x, outer, n, inner = _split(calls, served(calls, x), dims)
        direct = y.dtype == x.dtype and y.is_contiguous
        result = y if direct else calls.scratch(y.shape, x.dtype)
        reduce(calls, name, x, result, outer, n, inner, norm, norm)
        if not direct:
            elementwise.cast(calls, [result], [y], dtype=y.dtype)
        return True

    bind.__name__ = bind.__qualname__ = op
    return bind


sum = _binder("sum", "sum")
prod = _binder("prod", "prod")
amax = _binder("amax", "amax")
amin = _binder("amin", "amin")
norm = _binder("norm", "sum", norm=True)


# --- rows: the last dimension, or one that is moved there ----------------------------------------------


def to_rows(calls: Any, x: Any, dim: int) -> Any:
    """Contiguous memory of `x` with dimension `dim` moved to the end."""
    return calls.contiguous(x.transpose([*(d for d in range(x.ndim) if d != dim), dim]))


def from_rows(calls: Any, y: Any, dim: int, write: Callable[[Any], None]) -> None:
    """`write` an output whose dimension `dim` is moved to the end; it is moved back afterwards where needed."""
    moved = y.transpose([*(d for d in range(y.ndim) if d != dim), dim])
    if moved.is_contiguous:
        write(moved)
        return
    rows = calls.scratch(moved.shape, y.dtype)
    write(rows)
    calls.copy(moved, rows)


def _make_places(name: str, dtype: str, largest: bool) -> Kernel:
    element = ELEMENTS[dtype]
    worst = (_LEAST if largest else _MOST)[dtype]

    @device
    def better(value, place, other, at):
        """Does (value, place) win: the more extreme, NaN first, the earlier of equals?"""
        if value != value or other != other:
            return (value != value) and (other == other or place < at)
        if value == other:
            return place < at
        return value > other if largest else value < other

    @device
    def over_warp(value, place):
        for step in (16, 8, 4, 2, 1):
            other, at = cuda.shfl_xor_sync(ALL, value, step), cuda.shfl_xor_sync(ALL, place, step)
            if better(other, at, value, place):
                value, place = other, at
        return value, place

    @kernel(f"{dtype}*, int64*, int32", name=f"{name}_{dtype}", threads=THREADS, float64=dtype == "float64")
    def places(x, y, n):
        """A block a row: the place of its extreme."""
        values = cuda.shared.array(WARP, element)
        where = cuda.shared.array(WARP, int64)
        start = int64(cuda.blockIdx.x) * n
        value, place = worst, int64(n)
        for j in range(cuda.threadIdx.x, n, THREADS):
            if better(x[start + j], int64(j), value, place):
                value, place = x[start + j], int64(j)
        value, place = over_warp(value, place)
        lane = cuda.threadIdx.x & 31
        if lane == 0:
            values[cuda.threadIdx.x >> 5] = value
            where[cuda.threadIdx.x >> 5] = place
        cuda.syncthreads()
        value, place = worst, int64(n)
        if lane < ROWS:
            value, place = values[lane], where[lane]
        value, place = over_warp(value, place)
        if cuda.threadIdx.x == 0:
            y[cuda.blockIdx.x] = place

    return places


PLACES = {
    (name, dtype): _make_places(name, dtype, name == "argmax") for name in ("argmax", "argmin") for dtype in ELEMENTS
}


def _arg_binder(name: str) -> Callable[..., bool]:
    def bind(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, dim: int, keepdim: bool) -> bool:
        (x,), (y,) = inputs, outputs
        if not x.ndim:
            elementwise.fill(calls, y, 0)
        elif x.size:
            rows = to_rows(calls, served(calls, x), dim)
            n = rows.shape[-1]
            calls.launch(PLACES[name, rows.dtype.name], rows.size // n, THREADS, rows, y, n)
        return bool(x.size) or not y.size

    bind.__name__ = bind.__qualname__ = name
    return bind


argmax, argmin = _arg_binder("argmax"), _arg_binder("argmin")


def _make_cumsum(dtype: str) -> Kernel:
    element = ELEMENTS[dtype]
    zero = element(0)

    @device
    def scanned(value, lane):
        """The sum of the values of the lanes up to and including this one."""
        for step in (1, 2, 4, 8, 16):
            other = cuda.shfl_up_sync(ALL, value, step)
            if lane >= step:
                value += other
        return value

    @kernel(f"{dtype}*, {dtype}*, int32", name=f"cumsum_{dtype}", threads=THREADS, float64=dtype == "float64")
    def cumsum(x, y, n):
        """A block a row, 256 elements at a time, the sum so far carried on."""
        totals = cuda.shared.array(WARP, element)
        start = int64(cuda.blockIdx.x) * n
        lane, warp = cuda.threadIdx.x & 31, cuda.threadIdx.x >> 5
        carried = zero
        for first in range(0, n, THREADS):
            j = first + cuda.threadIdx.x
            value = scanned(x[start + j] if j < n else zero, lane)
            if lane == 31:
                totals[warp] = value
            cuda.syncthreads()
            before = carried
            for k in range(ROWS):
                if k < warp:
                    before += totals[k]
                carried += totals[k]
            cuda.syncthreads()
            if j < n:
                y[start + j] = before + value

    return cumsum


CUMSUM = {dtype: _make_cumsum(dtype) for dtype in ELEMENTS}


def cumsum(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, dim: int) -> bool:
    (x,), (y,) = inputs, outputs
    if not x.ndim:
        elementwise.copy(calls, y, x)
        return True
    if not x.size:
        return True
    rows = to_rows(calls, served(calls, x), dim)
    n = rows.shape[-1]

    def write(target: Any) -> None:
        result = target if target.dtype == rows.dtype else calls.scratch(rows.shape, rows.dtype)
        calls.launch(CUMSUM[rows.dtype.name], rows.size // n, THREADS, rows, result, n)
        if result is not target:
            elementwise.cast(calls, [result], [target], dtype=target.dtype)

    from_rows(calls, y, dim, write)
    return True
