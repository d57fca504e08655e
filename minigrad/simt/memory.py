"""Memory as a kernel sees it: indexed by non-negative integers inside of its bounds, and watched for races if asked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from minigrad.simt.errors import OutOfBoundsError, RaceError


def poison(shape: Any, dtype: np.dtype) -> np.ndarray:
    """Memory in which every bit is set: NaN for floating types, -1 for integers."""
    array = np.empty(shape, dtype)
    array.reshape(-1).view(np.uint8).fill(0xFF)
    return array


class Memory:
    """An array that a kernel reads and writes. `array` is the numpy array below, for the emulations of intrinsics."""

    __slots__ = ("array", "name")

    def __init__(self, array: np.ndarray, name: str) -> None:
        self.array = array
        self.name = name

    def __getitem__(self, index: Any) -> Any:
        if index.__class__ is int and index >= 0:
            try:
                return self.array[index]
            except IndexError:
                self._fail(index)
        self.check(index)
        return self.array[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        if index.__class__ is not int or index < 0:
            self.check(index)
        try:
            self.array[index] = value
        except IndexError:
            self._fail(index)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype:
        return self.array.dtype

    @property
    def size(self) -> int:
        return self.array.size

    def __len__(self) -> int:
        return len(self.array)

    def address(self, index: Any) -> int:
        """The byte address of an element, by which emulations check alignment. Raises OutOfBoundsError."""
        self.check(index)
        position = index if isinstance(index, tuple) else (index,)
        return int(self.array.ctypes.data) + sum(int(i) * s for i, s in zip(position, self.array.strides, strict=False))

    def check(self, index: Any) -> None:
        """Raise OutOfBoundsError unless `index` (an integer, a slice, or a tuple of them) lies inside."""
        position = index if isinstance(index, tuple) else (index,)
        if len(position) > self.array.ndim:
            self._fail(index)
        for part, length in zip(position, self.array.shape, strict=False):
            if isinstance(part, slice):
                first, last = part.start or 0, length if part.stop is None else part.stop
                if not 0 <= first <= last <= length:
                    self._fail(index)
            elif isinstance(part, (float, np.floating)):
                raise OutOfBoundsError(f"{self.name}[{index}]: an index must be an integer")
            elif not 0 <= part < length:
                self._fail(index)

    def _fail(self, index: Any) -> None:
        shown = ", ".join(str(part) for part in index) if isinstance(index, tuple) else str(index)
        raise OutOfBoundsError(f"{self.name}[{shown}] lies outside of its shape {self.array.shape}")


class WatchedMemory(Memory):
    """Memory that reports every element touched to `touched(address, write, atomic, text)`."""

    __slots__ = ("touched",)

    def __init__(self, array: np.ndarray, name: str, touched: Callable[[int, bool, bool, str], None]) -> None:
        super().__init__(array, name)
        self.touched = touched

    def __getitem__(self, index: Any) -> Any:
        self.report(index, False)
        return self.array[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.report(index, True)
        self.array[index] = value

    def report(self, index: Any, write: bool, atomic: bool = False) -> None:
        """Say that the running thread touches the element, or every element of a slice."""
        self.check(index)
        part = self.array[index]
        base = self.address(tuple((i.start or 0) if isinstance(i, slice) else i for i in _tuple(index)))
        text = f"{self.name}[{index}]"
        if isinstance(part, np.ndarray):
            for offset in np.ndindex(part.shape):
                self.touched(base + sum(i * s for i, s in zip(offset, part.strides, strict=True)), write, atomic, text)
        else:
            self.touched(base, write, atomic, text)


def _tuple(index: Any) -> tuple[Any, ...]:
    return index if isinstance(index, tuple) else (index,)


class Races:
    """Who touched what since when: `epoch` counts the block's barriers, a thread's `syncs` those of its warp.

    Two accesses are ordered if they are one thread's, if a barrier of the block lies between, or within a warp a
    `syncwarp`. Between blocks nothing orders. Accesses of different sizes that overlap in part are not matched.
    """

    def __init__(self) -> None:
        self.in_block: dict[int, list[tuple[Any, int, bool, bool]]] = {}  # address -> thread, warp epoch, write, atomic
        self.in_grid: dict[int, dict[int, tuple[bool, bool]]] = {}  # address -> block -> wrote, only by atomics

    def barrier(self) -> None:
        """The block met at a barrier: what came before is ordered before what comes."""
        self.in_block.clear()

    def touch(self, thread: Any, address: int, write: bool, atomic: bool, shared: bool, text: str) -> None:
        """Raise RaceError if an access conflicts with an earlier one."""
        earlier = self.in_block.setdefault(address, [])
        for other, syncs, wrote, was_atomic in earlier:
            if (
                other is not thread
                and (write or wrote)
                and not (atomic and was_atomic)
                and not (other.warp is thread.warp and syncs < thread.syncs)
            ):
                raise RaceError(
                    f"{text} is {'written' if write else 'read'} here and was {'written' if wrote else 'read'} by "
                    f"thread {tuple(other.position)} with no barrier in between"
                )
        entry = (thread, thread.syncs, write, atomic)
        if entry not in earlier:
            earlier.append(entry)
        if shared:
            return
        blocks = self.in_grid.setdefault(address, {})
        for block, (wrote, only_atomic) in blocks.items():
            if block != thread.block and (write or wrote) and not (atomic and only_atomic):
                raise RaceError(f"{text} is touched by two blocks, number {block} and {thread.block}, and one writes")
        wrote, only_atomic = blocks.get(thread.block, (False, True))
        blocks[thread.block] = (wrote or write, only_atomic and atomic)
