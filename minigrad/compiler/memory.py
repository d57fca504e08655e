"""Memory planning: every intermediate result gets a place in one arena, reused once its last reader is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

ALIGN = 64  # bytes: a cache line, and the width of the widest vectors


@dataclass(frozen=True)
class Buffer:
    """`size` bytes, needed from step `start` to step `stop` inclusive."""

    size: int
    start: int
    stop: int


def place(buffers: Sequence[Buffer]) -> tuple[list[int], int]:
    """Offsets for the buffers, and the arena's size in bytes.

    Largest first, each at the lowest offset where it meets no buffer that is alive at the same time (greedy by size).
    """
    offsets = [0] * len(buffers)
    placed: list[int] = []
    total = 0
    for i in sorted(range(len(buffers)), key=lambda i: (-buffers[i].size, buffers[i].start)):
        buffer = buffers[i]
        size = -(-buffer.size // ALIGN) * ALIGN
        at = 0
        for j in placed:  # in the order of offsets
            other = buffers[j]
            if other.start <= buffer.stop and buffer.start <= other.stop:
                if offsets[j] - at >= size:
                    break
                at = max(at, offsets[j] + -(-other.size // ALIGN) * ALIGN)
        offsets[i] = at
        placed.append(i)
        placed.sort(key=lambda j: offsets[j])
        total = max(total, at + size)
    return offsets, total
