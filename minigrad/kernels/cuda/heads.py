"""Rows of heads ``(..., T, d)`` where they lie: any strides of batches, heads and rows (attention, RoPE)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from minigrad.kernels.cuda.calls import DeviceCalls
from minigrad.kernels.cuda.memory import DeviceArray
from minigrad.kernels.cuda.tiles import CHUNK


def four_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """``(batches, heads, T, d)``: one of them where they are missing, heads of all leading dimensions beyond two."""
    lead = len(shape) - 2
    return (1,) * (2 - lead) + tuple(shape) if lead <= 2 else (1, math.prod(shape[:lead]), *shape[lead:])


def as_four(calls: DeviceCalls, x: DeviceArray) -> DeviceArray:
    """Leading dimensions as two (batches, heads); a copy only of more of them that are not contiguous."""
    return (x if x.ndim <= 4 else calls.contiguous(x)).reshape(four_shape(x.shape))


def has_rows(x: DeviceArray) -> bool:
    """Can a kernel read and write x where it is: contiguous elements, and leading dimensions that are two?"""
    return (x.shape[-1] == 1 or x.strides[-1] == x.itemsize) and (x.ndim <= 4 or x.is_contiguous)


def rows_of_heads(calls: DeviceCalls, x: DeviceArray) -> DeviceArray:
    """x ``(batches, heads, T, d)`` with contiguous elements."""
    return as_four(calls, x if has_rows(x) else calls.contiguous(x))


def row_strides(x: DeviceArray) -> list[int]:
    """Strides of batches, heads and rows in elements; 0 for one of them."""
    return [0 if n == 1 else s // x.itemsize for n, s in zip(x.shape[:3], x.strides[:3], strict=True)]


def in_vectors(*arrays: DeviceArray) -> bool:
    """Are all rows made of aligned pieces of 16 bytes?"""
    width = CHUNK[arrays[0].dtype.name]
    return all(
        x.pointer % 16 == 0 and x.shape[-1] % width == 0 and not any(s % width for s in row_strides(x)) for x in arrays
    )


def in_pairs(*arrays: DeviceArray) -> int:
    """Do all rows begin at a multiple of two elements' size?"""
    return int(all(x.pointer % (2 * x.itemsize) == 0 and not any(s % 2 for s in row_strides(x)) for x in arrays))
