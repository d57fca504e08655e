"""Reading and writing by index: embedding, take, put, gather, scatter, and their derivatives, without float atomics.

An array is seen as (outer, n, inner), with index along the middle. Writes that may meet are made by one thread a
column in the order of the index, so that the last wins and sums repeat; sums of many rows sort their keys first
(`segments`). An index out of range is noted (`faults`); what is read there is NaN (all bits set), what would be written
is not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from minigrad.kernels.cuda import elementwise, segments
from minigrad.kernels.cuda.elementwise import WORDS, converted
from minigrad.kernels.cuda.faults import FAULT, note
from minigrad.kernels.cuda.intrinsics import load4, store4
from minigrad.kernels.cuda.language import Kernel, cuda, float32, int64, kernel, uint8, uint16
from minigrad.kernels.cuda.layout import divisor, quotient
from minigrad.kernels.cuda.reductions import ELEMENTS, served
from minigrad.ops.along import out_of_range
from minigrad.ops.embedding import outside_vocabulary
from minigrad.ops.index import ALL, SLOT, sides, thaw

THREADS = 256
_MISSING = {"uint8": uint8(255), "uint16": uint16(65535), "float32": float32("nan"), "int64": int64(-1)}
_SHAPE = "int32, int32, int32"  # a size and what divides by it (`layout.divisor`)


class Words(NamedTuple):
    """Kernels that move elements of one size."""

    take: Kernel
    gather: Kernel
    put: Kernel
    scatter: Kernel


def _make(word: str) -> Words:
    missing = _MISSING[word]

    read = f"{word}*, int64*, {word}*, int32, int32, {_SHAPE}, {_SHAPE}, {FAULT}"
    written = f"{word}*, int64*, {word}*, int32, int32, int32, {_SHAPE}"

    @kernel(read, name=f"take_{word}", threads=THREADS)
    def take(x, ids, y, total, n, inner, inner_magic, inner_shift, count, count_magic, count_shift, words, fault):
        """y (outer, count, inner) = x (outer, n, inner) at ids (count)."""
        i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if i < total:
            place = quotient(i, inner_magic, inner_shift)
            outer = quotient(place, count_magic, count_shift)
            row = ids[place - outer * count]
            inside = 0 <= row < n
            if not inside:
                note(words, fault, row)
            y[i] = x[(outer * n + row) * inner + i - place * inner] if inside else missing

    @kernel(read, name=f"gather_{word}", threads=THREADS)
    def gather(x, index, y, total, n, inner, inner_magic, inner_shift, count, count_magic, count_shift, words, fault):
        """y (outer, count, inner) = x (outer, n, inner) at index (outer, count, inner)."""
        i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if i < total:
            place = quotient(i, inner_magic, inner_shift)
            outer = quotient(place, count_magic, count_shift)
            row = index[i]
            inside = 0 <= row < n
            if not inside:
                note(words, fault, row)
            y[i] = x[(outer * n + row) * inner + i - place * inner] if inside else missing

    @kernel(written, name=f"put_{word}", threads=THREADS)
    def put(values, ids, y, columns, n, count, inner, magic, shift):
        """y (outer, n, inner) at ids (count) becomes values (outer, count, inner); a thread a column."""
        i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if i < columns:
            outer = quotient(i, magic, shift)
            j = i - outer * inner
            for k in range(count):
                row = ids[k]
                if 0 <= row < n:
                    y[(outer * n + row) * inner + j] = values[(outer * count + k) * inner + j]

    @kernel(f"{written}, {FAULT}", name=f"scatter_{word}", threads=THREADS)
    def scatter(values, index, y, columns, n, count, inner, magic, shift, words, fault):
        """y (outer, n, inner) at index (outer, count, inner) becomes values; a thread a column."""
        i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if i < columns:
            outer = quotient(i, magic, shift)
            j = i - outer * inner
            for k in range(count):
                at = (outer * count + k) * inner + j
                row = index[at]
                if 0 <= row < n:
                    y[(outer * n + row) * inner + j] = values[at]
                else:
                    note(words, fault, row)

    return Words(take, gather, put, scatter)


MOVE = {word: _make(word) for word in _MISSING}
_NAN = _MISSING["float32"]
_FIRST, _OUTSIDE = int64(0), int64(-1)
_NOWHERE = int64(-(2**63))  # outside of any table, also if counted from its end


@kernel(f"float32*, int64*, float32*, int32, int32, {_SHAPE}, {FAULT}", name="take_vectors", threads=THREADS)
def _take_vectors(x, ids, y, total, n, inner, magic, shift, words, fault):
    """`take` of rows of `inner` vectors of four float32: an embedding."""
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < total:
        place = quotient(i, magic, shift)
        row = ids[place]
        if 0 <= row < n:
            a, b, c, d = load4(x, 4 * (row * inner + i - place * inner))
            store4(y, 4 * i, a, b, c, d)
        else:
            store4(y, 4 * i, _NAN, _NAN, _NAN, _NAN)
            note(words, fault, row)


@kernel(f"int64*, int64*, int32, int32, int32, {FAULT}", name="row_numbers", threads=THREADS)
def _number(ids, numbers, n, size, first, words, fault):
    """Row numbers so far, times `size`, plus positions that may be counted from the end; -1 where one is outside."""
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < n:
        given = ids[i]
        row = given + size if given < 0 else given
        inside = 0 <= row < size
        if not inside:
            note(words, fault, given)
        before = _FIRST if first else numbers[i]
        numbers[i] = before * size + row if inside and before >= 0 else _OUTSIDE


@kernel(f"int64*, int64*, int32, int64, {FAULT}", name="ids_within", threads=THREADS)
def _within(ids, kept, n, size, words, fault):
    """The ids themselves, those outside 0 .. size - 1 as one that is outside for all that follows."""
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < n:
        inside = 0 <= ids[i] < size
        kept[i] = ids[i] if inside else _NOWHERE
        if not inside:
            note(words, fault, ids[i])


def _make_scatter_add(dtype: str) -> Kernel:
    zero = ELEMENTS[dtype](0)

    @kernel(
        f"{dtype}*, int64*, {dtype}*, int32, int32, int32, {_SHAPE}, {FAULT}",
        name=f"scatter_add_{dtype}",
        threads=THREADS,
        float64=dtype == "float64",
    )
    def scatter_add(values, index, y, columns, n, count, inner, magic, shift, words, fault):
        """y (outer, n, inner), zeros with values (outer, count, inner) added at index; a thread a column."""
        i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if i < columns:
            outer = quotient(i, magic, shift)
            j = i - outer * inner
            for row in range(n):
                y[(outer * n + row) * inner + j] = zero
            for k in range(count):
                at = (outer * count + k) * inner + j
                row = index[at]
                if 0 <= row < n:
                    y[(outer * n + row) * inner + j] += values[at]
                else:
                    note(words, fault, row)

    return scatter_add


SCATTER_ADD = {dtype: _make_scatter_add(dtype) for dtype in ELEMENTS}


def _blocks(threads: int) -> int:
    return -(-threads // THREADS)


def _ids(calls: Any, ids: Any) -> Any:
    return calls.contiguous(converted(calls, ids, "int64"))


def _take(calls: Any, x: Any, ids: Any, y: Any, n: int, inner: int, fault: tuple[Any, int]) -> None:
    """Append the launch of `take`: contiguous x (outer, n, inner) and y (outer, count, inner)."""
    if not y.size:
        return
    vectors = y.size == ids.size * inner and x.dtype.name == "float32" and inner % 4 == 0
    if vectors and x.pointer % 16 == 0 and y.pointer % 16 == 0:
        total = y.size // 4
        calls.launch(_take_vectors, _blocks(total), THREADS, x, ids, y, total, n, *divisor(inner // 4), *fault)
        return
    word = WORDS[x.itemsize]
    numbers = (y.size, n, *divisor(inner), *divisor(ids.size), *fault)
    calls.launch(MOVE[word.name].take, _blocks(y.size), THREADS, x.view(word), ids, y.view(word), *numbers)


def _look_at(calls: Any, ids: Any, kept: Any, size: int, fault: tuple[Any, int]) -> None:
    calls.launch(_within, _blocks(ids.size), THREADS, _ids(calls, ids), kept, ids.size, size, *fault)


def within(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, user: str, dim: int, size: int) -> bool:
    """Ids that an op without a kernel of its own looks up."""
    _look_at(calls, inputs[0], outputs[0], size, calls.runtime.faults.place(*out_of_range(user, dim, size)))
    return True


# --- embedding ----------------------------------------------------------------------------------------


def _vocabulary(calls: Any, vocab: int) -> tuple[Any, int]:
    return calls.runtime.faults.place(IndexError, outside_vocabulary(vocab))


def embedding(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, padding_idx: int | None) -> bool:
    """Rows of the table."""
    weight, ids = inputs
    (vocab, width), fault = weight.shape, _vocabulary(calls, weight.shape[0])
    if not width:  # no rows to take, and ids to look at
        _look_at(calls, ids, calls.scratch(ids.shape, np.int64), vocab, fault)
    _take(calls, calls.contiguous(weight), _ids(calls, ids), outputs[0], vocab, width, fault)
    return True


def embedding_grad(
    calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, shape: tuple[int, int], padding_idx: int | None
) -> bool:
    """The table's gradient; the padding row stays zero."""
    g, ids = inputs
    left_out = -1 if padding_idx is None else padding_idx
    values = calls.contiguous(served(calls, g))
    table = outputs[0] if values.dtype == outputs[0].dtype else calls.scratch(shape, values.dtype)
    fault = _vocabulary(calls, shape[0])
    segments.add_rows(calls, values, _ids(calls, ids), table, ids.size, shape[1], fault, left_out)
    if table is not outputs[0]:
        elementwise.cast(calls, [table], outputs, dtype=outputs[0].dtype)
    return True


# --- index tensors ------------------------------------------------------------------------------------


class Places(NamedTuple):
    """What index tensors point at: rows of an array with its dimensions permuted, seen as (outer, n, inner).

    order   the permutation that puts the indexed dimensions side by side; they make up n
    ids     the rows, `taken` numbers on the device, -1 where an index is out of range
    fault   that such a one is noted as
    shape   of what is taken there: (outer, taken, inner) in full
    """

    order: tuple[int, ...]
    outer: int
    n: int
    inner: int
    ids: Any
    fault: tuple[Any, int]
    taken: int
    shape: tuple[int, ...]


def _places(calls: Any, shape: Sequence[int], index: Sequence[Any], tensors: Sequence[Any]) -> Places | None:
    """Where `index` points, or None where it is more than integer tensors in slots and whole dimensions."""
    found = sides(tuple(index), len(shape))
    if found is None or any(tensor.dtype.kind not in "iu" for tensor in tensors):
        return None
    before, slots, after = found
    taken = np.broadcast_shapes(*[tensor.shape for tensor in tensors])
    faults = [_past(calls, shape, d) for d in slots]
    outer, inner = [shape[d] for d in before], [shape[d] for d in after]
    return Places(
        (*before, *slots, *after),
        math.prod(outer),
        math.prod([shape[d] for d in slots]),
        math.prod(inner),
        _numbers(calls, taken, [shape[d] for d in slots], tensors, faults),
        faults[0],
        math.prod(taken),
        (*outer, *taken, *inner),
    )


def _past(calls: Any, shape: Sequence[int], dim: int) -> tuple[Any, int]:
    """What an index that `dim` does not have is noted as, in numpy's words."""
    where = f"is out of bounds for axis {dim} with size {shape[dim]}"
    return calls.runtime.faults.place(IndexError, f"indexing a tensor of shape {list(shape)}: index {{}} {where}")


def _numbers(
    calls: Any, shape: tuple[int, ...], sizes: Sequence[int], tensors: Sequence[Any], faults: Sequence[tuple[Any, int]]
) -> Any:
    """Row numbers of `shape`: the positions in index tensors, counted from the start, in row-major order of `sizes`."""
    numbers = calls.scratch(shape, np.dtype("int64"))
    for i, (tensor, size, fault) in enumerate(zip(tensors, sizes, faults, strict=True)):
        ids = calls.contiguous(converted(calls, tensor, "int64").through(lambda a: np.broadcast_to(a, shape)))
        calls.launch(_number, _blocks(numbers.size), THREADS, ids, numbers, numbers.size, size, i == 0, *fault)
    return numbers


def take(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, index: Sequence[Any]) -> bool:
    """x[index]; declines boolean masks, whose result has a shape that depends on values."""
    x, *tensors = inputs
    places = _places(calls, x.shape, index, tensors)
    if places is None:
        return False
    permuted = calls.contiguous(x.transpose(places.order))
    _take(calls, permuted, places.ids, outputs[0], places.n, places.inner, places.fault)
    return True


def put_add(
    calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, shape: Sequence[int], index: Sequence[Any]
) -> bool:
    """Zeros of `shape` with g added at index; declines boolean masks."""
    g, *tensors = inputs
    (y,) = outputs
    places = _places(calls, shape, index, tensors)
    if places is None:
        return False
    taken = calls.contiguous(served(calls, g)).reshape((places.outer, places.taken, places.inner))
    values = calls.contiguous(taken.transpose((1, 0, 2)))
    table = calls.scratch((places.n, places.outer, places.inner), values.dtype)
    segments.add_rows(calls, values, places.ids, table, places.taken, places.outer * places.inner, places.fault)
    permuted = y.transpose(places.order)
    rows = calls.contiguous(table.transpose((1, 0, 2))).reshape(permuted.shape)
    elementwise.cast(calls, [rows], [permuted], dtype=y.dtype)
    return True


def put(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, index: Sequence[Any]) -> bool:
    """x with the elements at index replaced by value; a mask takes a single value. The output may be x itself."""
    x, value, *tensors = inputs
    (y,) = outputs
    if any(tensor.dtype.name == "bool" for tensor in tensors):
        return _put_masked(calls, x, value, y, index, tensors)
    if not tensors:
        elementwise.copy(calls, y, x)
        elementwise.copy(calls, y.through(lambda a: a[(*thaw(tuple(index)), ...)]), value)
        return True
    places = _places(calls, x.shape, index, tensors)
    if places is None:
        return False
    elementwise.copy(calls, y, x)
    values = calls.scratch(places.shape, y.dtype)
    elementwise.copy(calls, values, value)
    with_order = y.transpose(places.order)
    target = calls.contiguous(with_order)
    word, columns = WORDS[y.itemsize], places.outer * places.inner
    if columns and places.taken:
        numbers = (columns, places.n, places.taken, *divisor(places.inner))
        arrays = (values.view(word), places.ids, target.view(word))
        calls.launch(MOVE[word.name].put, _blocks(columns), THREADS, *arrays, *numbers)
    elementwise.copy(calls, with_order, target)
    return True


def _put_masked(calls: Any, x: Any, value: Any, y: Any, index: Sequence[Any], tensors: Sequence[Any]) -> bool:
    """A single value where the mask holds; declines as many values as the mask has True, and masks beside others."""
    (mask, *others), slot = tensors, list(index).index(SLOT)
    if others or value.size != 1 or any(item != ALL for item in index[:slot]):
        return False
    spread = mask.reshape((*mask.shape, *(1,) * (x.ndim - slot - mask.ndim)))
    return elementwise.launch(calls, [("where", (0, 1, 2))], [spread, value.reshape(()), x], [y], [3])


# --- along one dimension ------------------------------------------------------------------------------


class Along(NamedTuple):
    """Sizes (outer, n, inner) and (outer, taken, inner) of an array and an index that agree but along one dimension."""

    outer: int
    n: int
    inner: int
    taken: int

    @property
    def columns(self) -> int:
        return self.outer * self.inner


def _along(x_shape: Sequence[int], index_shape: Sequence[int], dim: int) -> Along:
    count, n = (index_shape[dim], x_shape[dim]) if index_shape else (1, 1)
    return Along(math.prod(index_shape[:dim]), n, math.prod(index_shape[dim + 1 :]), count)


def _fault(calls: Any, name: str, shape: Sequence[int], dim: int) -> tuple[Any, int]:
    return calls.runtime.faults.place(*out_of_range(name, dim, shape[dim] if shape else 1))


def _corner(x: Any, index: Any, dim: int) -> Any:
    """The part of `x` that an index reaches, which may be smaller in the other dimensions."""
    return x[tuple(slice(n if d == dim else m) for d, (n, m) in enumerate(zip(x.shape, index.shape, strict=True)))]


def gather(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, dim: int) -> bool:
    x, index = inputs
    (y,) = outputs
    if y.size:
        along, word = _along(x.shape, index.shape, dim), WORDS[x.itemsize]
        x = calls.contiguous(_corner(x, index, dim))
        fault = _fault(calls, "gather", x.shape, dim)
        numbers = (y.size, along.n, *divisor(along.inner), *divisor(along.taken), *fault)
        arrays = (x.view(word), _ids(calls, index), y.view(word))
        calls.launch(MOVE[word.name].gather, _blocks(y.size), THREADS, *arrays, *numbers)
    return True


def scatter(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, dim: int) -> bool:
    """x with the elements at index along `dim` replaced by src; of those that meet, the last stays."""
    x, src, index = inputs
    (y,) = outputs
    elementwise.copy(calls, y, x)
    if index.size:
        along, word = _along(x.shape, index.shape, dim), WORDS[x.itemsize]
        values = calls.scratch(index.shape, y.dtype)
        elementwise.copy(calls, values, src[tuple(slice(n) for n in index.shape)] if src.ndim else src)
        corner = _corner(y, index, dim)
        target = calls.contiguous(corner)
        fault = _fault(calls, "scatter", x.shape, dim)
        numbers = (along.columns, along.n, along.taken, *divisor(along.inner), *fault)
        arrays = (values.view(word), _ids(calls, index), target.view(word))
        calls.launch(MOVE[word.name].scatter, _blocks(along.columns), THREADS, *arrays, *numbers)
        elementwise.copy(calls, corner, target)
    return True


def scatter_add_zeros(
    calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, dim: int, shape: Sequence[int]
) -> bool:
    """Zeros of `shape` with src added at index along `dim`."""
    src, index = inputs
    (y,) = outputs
    if not index.size:
        if y.size:
            elementwise.fill(calls, y, 0)
        return True
    along = _along(shape, index.shape, dim)
    values = calls.contiguous(served(calls, src[tuple(slice(n) for n in index.shape)]))
    corner = _corner(y, index, dim)
    if corner.size != y.size:
        elementwise.fill(calls, y, 0)
    direct = corner.is_contiguous and y.dtype == values.dtype
    target = corner if direct else calls.scratch(corner.shape, values.dtype)
    ids, fault = _ids(calls, index), _fault(calls, "scatter_add", shape, dim)
    if along.columns == 1:  # one thread would add up all
        segments.add_rows(calls, values, ids, target, along.taken, 1, fault)
    else:
        numbers = (along.columns, along.n, along.taken, *divisor(along.inner), *fault)
        calls.launch(SCATTER_ADD[values.dtype.name], _blocks(along.columns), THREADS, values, ids, target, *numbers)
    if not direct:
        elementwise.cast(calls, [target], [corner], dtype=y.dtype)
    return True
