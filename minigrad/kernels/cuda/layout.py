"""How arrays lie in memory, as kernels take it: as few dimensions as describe them all, and quick division by sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from minigrad.kernels.cuda.language import device, int32, int64

LARGEST = 2**31 - 1  # elements and offsets that a kernel counts in 32 bits
_LOW = int64(0xFFFFFFFF)


class Dims(NamedTuple):
    """Sizes of dimensions, and for each array its strides along them (in elements)."""

    sizes: tuple[int, ...]
    strides: tuple[tuple[int, ...], ...]


def element_strides(array: Any) -> tuple[int, ...]:
    """The strides of an array in elements."""
    size = array.itemsize
    return tuple([stride // size for stride in array.strides])


def broadcast_strides(shape: Sequence[int], strides: Sequence[int], target: Sequence[int]) -> tuple[int, ...]:
    """The strides with which an array of `shape` and `strides` is read as one of shape `target`: 0 where it repeats."""
    extra = len(target) - len(shape)
    steps = [0 if size == 1 else stride for size, stride in zip(shape, strides, strict=True)]
    return (*[0] * extra, *steps) if extra >= 0 else tuple(steps[-extra:])


def collapse(shape: Sequence[int], strides: Sequence[Sequence[int]]) -> Dims:
    """Leave out dimensions of size 1, join neighbours that every array steps through evenly. At least one is left."""
    sizes: list[int] = []
    kept: list[list[int]] = [[] for _ in strides]
    for size, *steps in zip(shape, *strides, strict=True):
        if size == 1:
            continue
        if sizes and all(row[-1] == size * step for row, step in zip(kept, steps, strict=True)):
            sizes[-1] *= size
            for row, step in zip(kept, steps, strict=True):
                row[-1] = step
        else:
            sizes.append(size)
            for row, step in zip(kept, steps, strict=True):
                row.append(step)
    if not sizes:
        return Dims((1,), tuple((0,) for _ in kept))
    return Dims(tuple(sizes), tuple(tuple(row) for row in kept))


def dense_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """The strides of row-major order, in elements."""
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def divisor(size: int) -> tuple[int, int, int]:
    """(size, magic, shift) by which `quotient` divides numbers below 2^31 (Granlund and Montgomery 1994).

    The magic number is ceil(2^shift / size), 32 bits without sign, given as the int32 with those bits.
    """
    shift = 31 + (size - 1).bit_length()
    magic = -(-(1 << shift) // size)
    return size, magic - (1 << 32) if magic >= 1 << 31 else magic, shift


@device
def quotient(i, magic, shift):
    """i // size, for a `divisor`."""
    return int32(((int64(i) & _LOW) * (int64(magic) & _LOW)) >> shift)
