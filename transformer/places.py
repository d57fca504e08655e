"""Where new tokens stand: behind so many others, a number that Python knows, or one that a plan is told when it runs.

Eager code counts in whole numbers, and looks at the positions that are filled. A compiled step is made once for many
positions: it is told where it stands by a tensor, and looks at all of its room under a mask.
"""

from __future__ import annotations

from dataclasses import dataclass

import minigrad as mg
from minigrad import Tensor


@dataclass(frozen=True)
class Told:
    """So many tokens stand before, int64 ``()``; with the new ones they are at most `room`."""

    before: Tensor
    room: int

    def __add__(self, more: int) -> Told:
        return Told(self.before + more, self.room + more)


Start = int | Told


def end(start: Start, count: int) -> int:
    """How many positions there are with `count` new ones; the whole room where it is not known before."""
    return start.room if isinstance(start, Told) else start + count


def rows(x: Tensor, start: Start, count: int, dim: int = 0) -> Tensor:
    """The `count` slices of x along `dim` from `start` on."""
    if isinstance(start, int):
        return x.narrow(dim, start, count)
    return x.index_select(dim, positions(start, count))


def positions(start: Told, count: int) -> Tensor:
    """Where `count` new tokens stand, int64 ``(count,)``."""
    first = start.before.reshape(1)
    return first if count == 1 else first + mg.arange(count, device=first.device)
