"""Arrays put together and taken apart: joins, windows on memory, triangles. All but the triangles are copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from minigrad.kernels.cuda import elementwise
from minigrad.kernels.cuda.elementwise import WORDS
from minigrad.kernels.cuda.language import Kernel, cuda, float32, int64, kernel, uint8, uint16
from minigrad.kernels.cuda.layout import divisor, quotient
from minigrad.ops.index import thaw

THREADS = 256
_ZEROS = {"uint8": uint8(0), "uint16": uint16(0), "float32": float32(0), "int64": int64(0)}


def cat(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, dim: int) -> bool:
    start = 0
    for part in inputs:
        end = start + part.shape[dim]
        elementwise.copy(calls, outputs[0][(slice(None),) * dim + (slice(start, end),)], part)
        start = end
    return True


def join(
    calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, shape: Sequence[int], indices: Sequence[Any]
) -> bool:
    """Zeros with each part at its own index; a part that lies there already is left."""
    (y,) = outputs
    if sum(part.size for part in inputs) != y.size:
        elementwise.fill(calls, y, 0)
    for part, index in zip(inputs, indices, strict=True):
        window = _window(y, index)
        if window.pointer != part.pointer:
            elementwise.copy(calls, window, part)
    return True


def slice_add(
    calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, shape: Sequence[int], index: Sequence[Any]
) -> bool:
    return join(calls, inputs, outputs, shape=shape, indices=[index])


def _window(y: Any, index: Sequence[Any]) -> Any:
    return y.through(lambda array: array[(*thaw(tuple(index)), ...)])


def strided_scatter(
    calls: Any,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    *,
    shape: Sequence[int],
    strides: Sequence[int],
    offset: int,
) -> bool:
    """base with a strided window replaced by value."""
    (base, value), (y,) = inputs, outputs
    elementwise.copy(calls, y, base)
    elementwise.copy(calls, _strided(y, shape, strides, offset), value)
    return True


def strided_add(
    calls: Any,
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    *,
    base_shape: Sequence[int],
    shape: Sequence[int],
    strides: Sequence[int],
    offset: int,
) -> bool:
    """Zeros with g in a strided window; declines a window that meets itself."""
    (g,), (y,) = inputs, outputs
    reach = 0
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1:
            if stride <= reach:
                return False
            reach += (size - 1) * stride
    elementwise.fill(calls, y, 0)
    elementwise.copy(calls, _strided(y, shape, strides, offset), g)
    return True


def _strided(y: Any, shape: Sequence[int], strides: Sequence[int], offset: int) -> Any:
    return y.window(tuple(shape), tuple(stride * y.itemsize for stride in strides), offset * y.itemsize)


def _make_triangle(word: str) -> Kernel:
    zero = _ZEROS[word]

    @kernel(
        f"{word}*, {word}*, int32, int32, int32, int32, int32, int32, int32, int32, int32",
        name=f"triangle_{word}",
        threads=THREADS,
    )
    def triangle(x, y, total, m, m_magic, m_shift, n, n_magic, n_shift, diagonal, lower):
        """Matrices (m, n): what lies below the diagonal (or above) and on it, zeros elsewhere."""
        i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
        if i < total:
            line = quotient(i, n_magic, n_shift)
            above = (i - line * n) - (line - quotient(line, m_magic, m_shift) * m) - diagonal
            kept = above <= 0 if lower else above >= 0
            y[i] = x[i] if kept else zero

    return triangle


TRIANGLE = {word: _make_triangle(word) for word in _ZEROS}


def _triangle_binder(name: str) -> Callable[..., bool]:
    def bind(calls: Any, inputs: Sequence[Any], outputs: Sequence[Any], *, diagonal: int) -> bool:
        x, (y,) = calls.contiguous(inputs[0]), outputs
        if y.size:
            word = WORDS[x.itemsize]
            m, n = x.shape[-2:]
            numbers = (y.size, *divisor(m), *divisor(n), diagonal, name == "tril")
            calls.launch(TRIANGLE[word.name], -(-y.size // THREADS), THREADS, x.view(word), y.view(word), *numbers)
        return True

    bind.__name__ = bind.__qualname__ = name
    return bind


tril, triu = _triangle_binder("tril"), _triangle_binder("triu")
